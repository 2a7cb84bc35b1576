"""Which tools an agent called and when, by what it printed: of the protocols whose lines, or calls, have a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from agents.protocols.lines import Object, inner
from agents.protocols.outcome import Entry
from supervisor.core.trace_facts import ToolCall

_YEAR_10000 = 253_402_300_800.0
OPEN_MAX = 1000
"""Calls at one moment: an agent can print as many beginnings as it likes."""


class Clock:
    """Knows when the last object that went through was printed, and when the call in it began and ended."""

    def __init__(self) -> None:
        self.begin = self.end = 0.0

    def watch(self, objects: Iterable[Object]) -> Iterator[Object]:
        """The same objects."""
        for one in objects:
            said = inner(inner(inner(one, "part"), "state"), "time")
            printed = seconds(one.get("timestamp"))
            self.begin, self.end = seconds(said.get("start")) or printed, seconds(said.get("end")) or printed
            yield one


def calls(clock: Clock, entries: Iterable[Entry]) -> Iterator[ToolCall]:
    """The calls whose begin and outcome have a time, in the order of their outcomes. `entries` come of objects that `clock` watches."""
    begun: dict[str, tuple[Entry, float]] = {}
    number = 0
    for entry in entries:
        if entry.kind == "tool" and clock.begin and len(begun) < OPEN_MAX:
            begun[entry.call] = entry, clock.begin
        elif entry.kind in ("outcome", "denied") and entry.call in begun:
            call, at = begun.pop(entry.call)
            number += 1
            if clock.end:
                fine = entry.kind == "outcome" and entry.ok is not False
                yield ToolCall(number, call.tool, at, max(at, clock.end), fine, entry.call, call.text)


def seconds(said: object) -> float:
    """Of RFC 3339, or of milliseconds since 1970; 0.0 for anything else."""
    try:
        found = datetime.fromisoformat(said).timestamp() if isinstance(said, str) and said[-1:] in "Z0123456789" and "T" in said else 0.0
    except (ValueError, OverflowError, OSError):
        return 0.0
    if isinstance(said, int | float) and not isinstance(said, bool):
        found = said / 1000
    return found if 0.0 < found < _YEAR_10000 else 0.0
