"""`init`, `doctor`, `kinds`, `trust`, `completion`: a machine, a repository and a shell."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class

from supervisor.client import common
from supervisor.client.resolving import kind_name
from supervisor.host.paths import home
from supervisor.kernel.errors import ConfigError, NotFound, UsageError, one_line
from supervisor.kernel.names import nearest

if TYPE_CHECKING:
    from supervisor.kernel.kind import Kind, Trust


# Init
# ----
# `nightcrew init`.


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path())
@click.option("--force", is_flag=True, help="Write it anew when there is one: what it says is lost.")
def command_init(path: Path, force: bool) -> None:
    """Write a nightcrew.toml with every key, commented out, at the root of the repository around PATH (default: here).

    It touches nothing else. A file that is there stays as it is.

    \b
    nightcrew init
    nightcrew init ../shop
    """
    from supervisor.config import project
    from supervisor.host import files
    from worktrees.git import Git
    from worktrees.repository import discover, main_root

    state = files.private_dir(home().root)
    file = main_root(discover(Git(state / "git"), path)) / project.NAME
    there = os.path.lexists(file)
    if there and not force:
        common.say("there is one already, and it stays as it is; nightcrew init --force writes it anew")
    else:
        # The mode of a file that anybody would make there; it holds no secret and is committed.
        files.atomic_write(file, project.template().encode(), 0o666 & ~_umask())
        common.say(f"{'written anew' if there else 'written'}; take the # from what you want, commit it; next: nightcrew doctor")
    click.echo(file)


def _umask() -> int:
    """It can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# Doctor
# ------
# `nightcrew doctor`.


_SHOWN = 100
"""Lines of what was lost."""


@click.command()
@click.option("--fix", is_flag=True, help="Mend what is safe, and say each; then look again.")
@click.option("--recover-ledger", "ledger", is_flag=True, help="Restore a damaged ledger from its newest copy and its journal.")
@click.option("--recover-account", "account", is_flag=True, help="The same for the gateway's account of requests.")
@common.json_option
def command_doctor(fix: bool, ledger: bool, account: bool, as_json: bool) -> int:
    """Check this machine, the programs that nightcrew needs, and what it keeps here. Exit code 1 when something does not work.

    --fix sets the mode of our own directories, closes sessions of ours without an attempt when no supervisor runs, and makes git forget
    worktrees of ours that were removed by hand. For the rest it prints what a person does.

    --recover-ledger restores a damaged ledger from its newest copy and its journal. It says what was lost, keeps the damaged file beside
    it, and is refused while a supervisor runs.

    \b
    nightcrew doctor
    nightcrew doctor --fix
    nightcrew doctor --json | jq '.checks[] | select(.state != "ok")'
    nightcrew doctor --recover-ledger
    """
    if ledger or account:
        if fix or (ledger and account):
            raise UsageError("one of these at a time", on="--fix, --recover-ledger, --recover-account")
        return _recover("ledger" if ledger else "account", as_json)
    from supervisor.doctor import examine
    from supervisor.doctor import examine as output

    here = examine.here()
    checked = examine.examine(here)
    mended = examine.mend(checked) if fix else []
    for one in mended:
        common.say(one_line(f"{one['name']}: {one['what']}" if one["done"] else f"{one['name']} could not be mended: {one['what']}"))
    if mended:
        checked = examine.without_failed(examine.examine(here), mended)
    if as_json:
        common.print_json(**output.shape(checked, mended))
    else:
        for line in output.lines(checked, common.width(), color=common.use_color()):
            common.show(line)
        common.say(output.summary(checked))
    return 1 if output.counts(checked)["fail"] else 0


def _recover(name: str, as_json: bool) -> int:
    from supervisor.doctor import state_directory as state

    report = {"ledger": state.ledger_recovery, "account": state.account}[name](home())
    kept = str(report.kept) if report.kept is not None else None
    if as_json:
        common.print_json(database=name, whole=kept is None, kept=kept, saved=report.saved, lost=report.lost)
    elif kept is None:
        common.show(f"the {name} is whole: nothing was done")
    else:
        common.show(f"saved: {', '.join(f'{table} {count:,}' for table, count in report.saved.items())}")
        for line in report.lost[:_SHOWN]:
            common.show(one_line(line))
        if len(report.lost) > _SHOWN:
            common.say(f"and {len(report.lost) - _SHOWN} more: nightcrew audit show")
        common.say(f"the {name} is whole again; the damaged one is {kept}; next: nightcrew up -d")
    return 0


# Kinds
# -----
# `nightcrew kinds`: which agents there are, and how each is run.


@click.group()
def command_kinds() -> None:
    """Show the kinds of agent: those that nightcrew brings, and your own.

    \b
    nightcrew kinds ls
    nightcrew kinds show claude
    nightcrew kinds test claude
    """


@command_kinds.command("ls")
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


@command_kinds.command("show")
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


@command_kinds.command("test")
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
    from supervisor.contract import load

    trial = "nightcrew.plugins.bench.kind_trial"
    found = []
    for line in load(f"{trial}:lines")(_one(name), model):
        found.append(line)
        if not as_json:
            sign = {"ok": "✓", "fail": "✗", "skip": "-"}[line.holds]
            common.show(one_line(f"{sign} {line.name:<9} {line.seen}"))
    shape = load(f"{trial}:shape")(found)
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


# Trust
# -----
# `nightcrew trust`.


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path())
@click.option("--kind", "name", shell_complete=kind_name, help="Only this kind (default: each whose program is here and asks).")
@click.option("--yes", is_flag=True, help="Write without asking.")
def command_trust(path: Path, name: str | None, yes: bool) -> int:
    """Tell agents' programs that you trust the repository around PATH (default: here), so that they do not ask in each pane.

    A program that trusts a repository obeys its settings, its hooks among them. What is to be written, and where, is shown and asked
    first. Everything else in the program's file stays.

    \b
    nightcrew trust
    nightcrew trust --kind codex ../shop
    """
    from agents import trust
    from supervisor.host import files
    from worktrees.git import Git
    from worktrees.repository import discover, main_root

    root = main_root(discover(Git(files.private_dir(home().root) / "git"), path))
    wanted = {kind: (record, trust.look(record, root, os.environ)) for kind, record in _kinds(name).items()}
    for kind, (record, change) in wanted.items():
        if change.is_there:
            common.say(one_line(f"{kind} trusts {root} already: {change.path}"))
            continue
        click.echo(one_line(f"{kind}: {change.shown}"))
        click.echo(one_line(f"  in {change.path}"))
        if not yes and not _agreed():
            common.say(f"{kind}: nothing was written")
            return 1
        trust.write(record, change)
        common.say(one_line(f"{kind} trusts {root} from now on"))
    return 0


def _kinds(name: str | None) -> dict[str, Trust]:
    """Raises NotFound for a kind that is not, or keeps no such record."""
    from agents.kinds import kinds

    if name is None:
        found = {one: kind for one in kinds() if (kind := kinds()[one]).trust is not None and shutil.which(kind.binary)}
    elif name in kinds():
        found = {name: kinds()[name]}
    else:
        raise NotFound("no kind is called", on=name, why=nearest(name, kinds()), hint="nightcrew kinds ls")
    records = {one: kind.trust for one, kind in found.items() if kind.trust is not None}
    if not records:
        why = "it keeps no record of trust that we know" if name else "no program on the PATH keeps a record of trust"
        raise NotFound("nothing to write", on=name or "trust", why=why, hint="nightcrew kinds ls")
    return records


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("nobody can be asked", why="there is no terminal", hint="nightcrew trust --yes")
    return click.confirm("Write it?", default=False, err=True)


# Completion
# ----------
# `nightcrew completion SHELL`.


INSTALL = {
    "bash": 'eval "$(nightcrew completion bash)" in ~/.bashrc (bash 4.4 or newer)',
    "zsh": 'eval "$(nightcrew completion zsh)" in ~/.zshrc, below compinit',
    "fish": "nightcrew completion fish > ~/.config/fish/completions/nightcrew.fish",
}
"""How each shell is told for good."""


@click.command()
@click.argument("shell", type=click.Choice(list(INSTALL)))
def command_completion(shell: str) -> None:
    """Print what makes SHELL complete verbs, options, files, and the names of tasks and runs as they are when you press Tab.

    \b
    eval "$(nightcrew completion bash)"
    eval "$(nightcrew completion zsh)"
    nightcrew completion fish | source
    """
    from supervisor.cli.main import cli

    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 - click has a class for each of the three
    lines = made(cli, {}, "nightcrew", "_NIGHTCREW_COMPLETE").source().strip().splitlines()
    lines.insert(lines[0].startswith("#compdef"), f"# To install: {INSTALL[shell]}")  # which zsh wants to see first
    click.echo("\n".join(lines))
