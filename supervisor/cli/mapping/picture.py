"""The live picture of a map, on stderr: progress, throughput, what is left, and a line for each worker."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from supervisor.cli import terminal
from supervisor.core.errors import one_line
from supervisor.faces import status

WORKERS = 10
"""Lines of workers; the others are counted."""
SILENT_S = 5.0
BAR = 60
"""Columns."""
_SMOOTH_S = 20.0


class Picture:
    """A context; `live` says whether it draws. Where it does not, `line` is for who says something now and then."""

    def __init__(self) -> None:
        console = terminal.console()
        self.live = sys.stderr.isatty() and not console.is_dumb_terminal
        self._live = Live(console=console, auto_refresh=False, transient=True) if self.live else None
        self._seen: list[tuple[float, int]] = []

    def __enter__(self) -> Picture:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, found: dict[str, Any]) -> None:
        """Draw how it stands."""
        now, ended = time.monotonic(), worked_through(found)
        self._seen = [one for one in self._seen if now - one[0] < _SMOOTH_S] + [(now, ended)]
        if self._live is not None:
            self._live.update(drawn(found, self._rate()), refresh=True)

    def _rate(self) -> float:
        """Items a second, lately; 0 also where what dead workers had done must be done again."""
        (since, before), (now, ended) = self._seen[0], self._seen[-1]
        return max(0.0, (ended - before) / (now - since)) if now - since > 1.0 else 0.0


def worked_through(found: dict[str, Any]) -> int:
    """Items that have ended, with those of shards under way: a shard may take a minute."""
    return int(found["done"] + found["failed"] + sum(one["at"] for one in found["workers"]))


def drawn(found: dict[str, Any], rate: float) -> Group:
    """The picture of one look."""
    ended = worked_through(found)
    left = found["total"] - ended
    eta = f", {status.age(left / rate)} left" if rate and left else ""
    pace = f"{rate:.1f} items a second{eta}" if rate else "no item has ended lately"
    workers = sorted(found["workers"], key=lambda one: -max(SILENT_S, one["silent_s"]))  # the others keep their places
    lines = [Text(_worker(one), style="yellow" if one["silent_s"] > SILENT_S else "dim") for one in workers[:WORKERS]]
    more = [Text(f"  … and {len(workers) - WORKERS} more", style="dim")] if len(workers) > WORKERS else []
    idle = f", {found['idle']} idle" if found["idle"] else ""
    heading = f"{one_line(found['title'])}: {ended} of {found['total']}, {found['failed']} failed; {len(workers)} at work{idle}"
    return Group(Text(heading, style="bold", no_wrap=True), _bar(ended, found["total"]), Text(pace), *lines, *more)


def _bar(ended: int, total: int) -> Text:
    """How much of it has ended."""
    full = BAR * ended // max(1, total)
    return Text.assemble(("━" * full, "green"), ("─" * (BAR - full), "dim"))


def _worker(one: dict[str, Any]) -> str:
    silent = f", silent for {one['silent_s']:.0f} s" if one["silent_s"] > SILENT_S else ""
    return f"  {one['task']}  item {min(one['at'] + 1, one['items'])} of {one['items']} of its shard{silent}"


def line(found: dict[str, Any]) -> str:
    """The same in a line."""
    return f"{worked_through(found)} of {found['total']} items, {found['failed']} failed; {len(found['workers'])} workers at work"


def shown(value: object) -> str:
    """An item or a reason on one line, whatever is in it."""
    return status.cut(one_line(str(value)), 200)
