"""`nightcrew send`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from supervisor.cli import common
from supervisor.cli.names import agent_name
from supervisor.core.errors import UsageError
from supervisor.host.paths import Home, home
from supervisor.ledger import queries


@click.command()
@click.argument("words", nargs=-1, metavar="NAME [TEXT]", shell_complete=agent_name)
@click.option("-f", "--file", type=click.Path(path_type=Path, dir_okay=False), help="Read the text from a file.")
@click.option("--now", is_flag=True, help="Refuse when the agent cannot take it now, instead of keeping it.")
@click.option("-a", "--all", "everything", is_flag=True, help="To every agent that runs and has a terminal, instead of NAME.")
@click.option("--run", help="To every agent of a run that has a terminal, instead of NAME.")
@common.json_option
def command(words: tuple[str, ...], file: Path | None, now: bool, everything: bool, run: str | None, as_json: bool) -> None:
    """Type a text into the terminal of an agent, as one paste, and press Enter.

    TEXT may be - for the standard input. When the agent cannot take it now, it is kept and typed later; nightcrew status shows it.

    \b
    nightcrew send lint "please also check the tests"
    git diff | nightcrew send lint -
    nightcrew send --run 1121-k3f9 --file note.md
    """
    if everything and run is not None:
        raise UsageError("say whom to send to", why="give --all or --run, not both")
    many = everything or run is not None
    names, texts = ((), words) if many else (words[:1], words[1:])
    if not many and not names:
        raise UsageError("say whom to send to", why="give a name, --all or --run", hint="nightcrew status")
    if len(texts) + (file is not None) != 1:
        raise UsageError("say what to send", why="give one text, - for the standard input, or --file", hint="nightcrew send --help")
    text = common.typable(_given(texts, file))
    where = home()
    tasks = _wanted(where, names, run)
    answer = common.ask(where, "send", {"tasks": tasks, "text": text, "now": now, "some": many}, timeout_s=common.DELIVERY_S)
    _say(answer)
    common.print_names([one["task"] for one in answer["deliveries"]], answer, as_json=as_json)


def _given(texts: tuple[str, ...], file: Path | None) -> bytes:
    if file is None and texts[0] != "-":
        return texts[0].encode("utf-8", "surrogateescape")
    try:
        with file.open("rb") if file is not None else sys.stdin.buffer as source:
            return source.read(common.TEXT_MAX + 1)
    except OSError as error:
        raise UsageError("cannot read", on=str(file or "the standard input"), why=error.strerror or str(error)) from error


def _wanted(where: Home, names: tuple[str, ...], run: str | None) -> list[str]:
    if names:
        return [common.task_named(where, names[0], archived=False).id]
    if run is not None:
        return common.tasks_named(where, (run,))
    return [view.id for view in queries.unfinished(common.ledger(where)) if view.attempt_state == "running"]


def _say(answer: dict[str, Any]) -> None:
    for task, why in answer["left_out"].items():
        common.say(f"{task} was left out: {why}")
    for one in answer["deliveries"]:
        if one["state"] != "confirmed":
            common.say(f"{one['task']}: {_SAID[one['state']]}{one['why']}")


_SAID = {"pending": "kept, and typed when it can take it: ", "unconfirmed": "typed, not confirmed: ", "dropped": "not sent: "}
