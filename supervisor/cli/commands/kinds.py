"""`nightcrew kinds`: which agents there are, and how each is run."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli import common
from supervisor.cli.names import kind_name
from supervisor.core.errors import ConfigError, NotFound, one_line
from supervisor.core.names import nearest

if TYPE_CHECKING:
    from supervisor.core.kind import Kind


@click.group()
def command() -> None:
    """Show the kinds of agent: those that nightcrew brings, and your own.

    \b
    nightcrew kinds ls
    nightcrew kinds show claude
    nightcrew kinds test claude
    """


@command.command("ls")
@common.json_option
def ls(as_json: bool) -> None:
    """List every kind, and where its program is.

    \b
    nightcrew kinds ls
    nightcrew kinds ls --json
    """
    from agents.kinds import kinds

    rows = []
    for name in kinds():
        try:
            rows.append(_shape(kinds()[name]))
        except ConfigError as error:  # the others are shown all the same
            rows.append({"name": name, "error": error.line()})
    if as_json:
        common.print_json(kinds=rows)
    for row in [] if as_json else rows:
        click.echo(one_line(f"{row['name']:<10} {row['error'] if 'error' in row else row['description']}{_where(row)}"))


@command.command("show")
@click.argument("name", shell_complete=kind_name)
@common.json_option
def show(name: str, as_json: bool) -> None:
    """Show how one kind is run.

    \b
    nightcrew kinds show claude
    """
    shape = _shape(_one(name))
    if as_json:
        common.print_json(kind=shape)
        return
    for key, value in shape.items():
        if value not in ("", [], {}, False, None):
            click.echo(f"{key:<12} {_text(value)}")


@command.command("test")
@click.argument("name", shell_complete=kind_name)
@click.option("--model", default="", help="What the program calls a model that it takes (default: one that ours know).")
@common.json_option
def test(name: str, model: str, as_json: bool) -> int:
    """Try a kind's program against a simulated provider, and say by line what does not hold. Exit code 1 when something does not.

    Its real program works as a task in a repository, a home and a supervisor made for this, and no token of yours is used. Takes up to a
    minute.

    \b
    nightcrew kinds test claude
    nightcrew kinds test our-agent --model our-model
    nightcrew kinds test codex --json | jq .holds
    """
    from supervisor.bench import kind_contract

    found = []
    for line in kind_contract.lines(_one(name), model):
        found.append(line)
        if not as_json:
            sign = {"ok": "✓", "fail": "✗", "skip": "-"}[line.holds]
            common.show(one_line(f"{sign} {line.name:<9} {line.seen}"))
    shape = kind_contract.shape(found)
    if as_json:
        common.print_json(**shape)
    return 0 if shape["holds"] else 1


def _one(name: str) -> Kind:
    from agents.kinds import kinds

    if name not in kinds():
        raise NotFound("no kind is called", on=name, why=nearest(name, kinds()), hint="nightcrew kinds ls")
    return kinds()[name]


def _shape(kind: Kind) -> dict[str, Any]:
    """The kind as JSON has it: every key of a kind file, and `path`, where its program is on this PATH."""
    shape = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(kind).items() if key != "program"}
    return {**shape, "path": shutil.which(kind.binary) if kind.binary else None}


def _where(row: dict[str, Any]) -> str:
    if not row.get("binary"):
        return ""
    return f"  {row['path'] or 'not on PATH'}{'  (yours)' if row['source'] else ''}"


def _text(value: object) -> str:
    import shlex

    match value:
        case list():
            return shlex.join(map(str, value))
        case dict():
            return " ".join(f"{name}={shlex.quote(str(text))}" for name, text in value.items())
        case _:
            return one_line(str(value))
