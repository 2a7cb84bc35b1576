"""`nightcrew logs`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from supervisor.cli import common
from supervisor.core.errors import NotFound
from supervisor.host.paths import home
from supervisor.ledger import queries

LOOK_S = 0.1
CHUNK = 65536


@click.command()
@click.argument("name", shell_complete=common.complete_task)
@click.option("-f", "--follow", is_flag=True, help="Go on until the task has ended. Ctrl-C only stops looking.")
@click.option("--attempt", type=click.IntRange(min=1), help="An earlier attempt (default: the newest).")
@click.option("--stream", type=click.Choice(["stdout", "stderr", "both"]), default="both", show_default=True)
def command(name: str, follow: bool, attempt: int | None, stream: str) -> None:
    """Show what an agent printed: its stdout on stdout, its stderr on stderr, byte for byte."""
    where = home()
    view = common.task_named(where, name)
    epoch = attempt or view.epoch
    if not 1 <= epoch <= view.epoch:
        if not follow:
            why = f"its attempts are numbered 1 to {view.epoch}" if view.epoch else "it has not started"
            raise NotFound("no log of", on=view.id, why=why, hint=f"nightcrew status {view.id}")
        epoch = 1
    directory = where.attempt(view.id, epoch)
    tails = [_Tail(directory / f"{kind}.log", kind) for kind in ("stdout", "stderr") if stream in (kind, "both")]
    shown = sum([tail.copy() for tail in tails])
    while follow:
        ended = _ended(view.id, epoch)
        shown += sum([tail.copy() for tail in tails])
        if ended:
            break
        time.sleep(LOOK_S)
    if not shown and (directory / "screen.txt").exists():
        click.echo((directory / "screen.txt").read_text(encoding="utf-8", errors="replace"), nl=False)


def _ended(task: str, epoch: int) -> bool:
    db = common.ledger(home())
    try:
        view = queries.one(db, task)
        return view.epoch > epoch or (view.epoch == epoch and view.end is not None) or (view.final and view.epoch < epoch)
    finally:
        db.close()


class _Tail:
    """Copies what is new in one log."""

    def __init__(self, path: Path, stream: str) -> None:
        self._path = path
        self._out = sys.stdout.buffer if stream == "stdout" else sys.stderr.buffer
        self._at = 0

    def copy(self) -> int:
        """Bytes copied now."""
        copied = 0
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                while chunk := file.read(CHUNK):
                    self._out.write(chunk)
                    copied += len(chunk)
        except FileNotFoundError:
            return 0
        self._out.flush()
        self._at += copied
        return copied
