"""`nightcrew logs`."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator

import click

from supervisor.cli import common
from supervisor.cli.names import any_name
from supervisor.cli.tail import CHUNK, Tail
from supervisor.core.errors import NotFound
from supervisor.host import foreign
from supervisor.host.paths import home
from supervisor.ledger import queries

LOOK_S = 0.1
SCREEN_MAX = 2**22


@click.command()
@click.argument("name", shell_complete=any_name)
@click.option("-f", "--follow", is_flag=True, help="Go on until the task has ended. Ctrl-C only stops looking.")
@click.option("--attempt", type=click.IntRange(min=1), help="An earlier attempt (default: the newest).")
@click.option("--stream", type=click.Choice(["stdout", "stderr", "both", "gate"]), default="both", show_default=True)
@click.option("--transcript", "as_transcript", is_flag=True, help="Who said and did what, read from the stream of JSON on its stdout.")
@click.option("--raw", is_flag=True, help="Byte for byte also on a terminal, which the agent can steer then.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with -f or --transcript a line for each piece.")
def command(name: str, follow: bool, attempt: int | None, stream: str, as_transcript: bool, raw: bool, as_json: bool) -> None:
    """Show what an agent printed: its stdout on stdout, its stderr on stderr; or what its gate did.

    Byte for byte into a file or a pipe. On a terminal colours survive, and what would steer it is shown as escapes.

    \b
    nightcrew logs lint
    nightcrew logs --stream gate lint
    nightcrew logs -f --stream stderr 1121-k3f9/lint
    nightcrew logs --transcript discounts
    """
    where = home()
    view = common.task_named(where, name)
    epoch = attempt or view.epoch
    if not 1 <= epoch <= view.epoch:
        if not follow:
            why = f"its attempts are numbered 1 to {view.epoch}" if view.epoch else "it has not started"
            raise NotFound("no log of", on=view.id, why=why, hint=f"nightcrew status {view.id}")
        epoch = 1
    directory = where.attempt(view.id, epoch)
    if view.final and not any((directory / f"{kind}.log").exists() for kind in ("stdout", "stderr")):
        common.say(f"there are no logs of {view.id}: its logs were removed, or it never came so far; nightcrew status {view.id}")
    if as_transcript:
        from supervisor.cli import transcript

        transcript.show(view, _pieces(Tail(directory / "stdout.log"), view.id, epoch if follow else None), as_json=as_json)
        return
    streams = ("stdout", "stderr") if stream == "both" else (stream,)
    tails = [Tail(directory / f"{kind}.log") for kind in streams]
    if as_json and not follow:
        common.print_json(task=view.id, epoch=epoch, **{tail.stream: _text(tail.read()) for tail in tails})
        return
    shown = sum([_show(tail, as_json, raw) for tail in tails])
    while follow:
        ended = _ended(view.id, epoch)
        shown += sum([_show(tail, as_json, raw) for tail in tails])
        if ended:
            break
        time.sleep(LOOK_S)
    if not shown and not as_json and stream != "gate":
        click.echo(_text(foreign.read_plain(directory / "screen.txt", SCREEN_MAX) or b""), nl=False)


def _pieces(tail: Tail, task: str, followed: int | None) -> Iterator[bytes]:
    """What there is of a log, and then what comes until the attempt `followed` has ended."""
    while True:
        ended = followed is None or _ended(task, followed)  # asked before the last look
        while data := tail.read(CHUNK):
            yield data
        if ended:
            return
        time.sleep(LOOK_S)


def _show(tail: Tail, as_json: bool, raw: bool) -> int:
    """Print what is new; its size in bytes."""
    if not as_json:
        return tail.show(raw=raw)
    shown = 0
    while data := tail.read(CHUNK):
        shown += len(data)
        click.echo(json.dumps({"schema": 1, "stream": tail.stream, "text": _text(data)}))
    return shown


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _ended(task: str, epoch: int) -> bool:
    with contextlib.closing(common.ledger(home(), task)) as db:
        view = queries.one(db, task)
    return view.epoch > epoch or (view.epoch == epoch and view.end is not None) or (view.final and view.epoch < epoch)
