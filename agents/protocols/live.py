"""What a headless agent's lines say while it runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from agents.delivery import NUMBER
from agents.protocols.lines import Entry, Object, count, inner, name_of, several, text
from agents.status import AgentState
from supervisor.features.trace.rules import ToolCall

# Live
# ----
# How a headless agent is while it runs, by what it printed so far. Pure, and a step costs what was printed since the step before.


_DETAIL_MAX = 200


@dataclass(frozen=True, slots=True)
class Live:
    """What an agent has said until now."""

    session: str = ""
    """Its own: the first one that spoke. What another one says, which it started, is not heard."""
    state: AgentState | None = None
    """None while it has said nothing of its state."""
    detail: str = ""
    heard: int = 0
    """Lines that told of its state."""
    given: int = 0
    """Number of the newest text that it was given, of those which people sent; 0: none."""
    taken: int = 0
    """The same, of those after which it went on."""
    background: bool = False
    """It says that something goes on in its background, after which it goes on itself."""


def after(before: Live, one: Object, entries: Iterable[Entry]) -> Live:
    """What is known after one of its lines, which says `entries`."""
    session = name_of(one, "session_id") or name_of(one, "sessionID")
    if session and before.session and session != before.session:
        return before
    now = replace(before, session=before.session or session, given=max(before.given, count(one, NUMBER)))
    if text(one, "subtype") == "background_tasks_changed":
        return replace(now, background=bool(several(one, "tasks")))
    if text(one, "subtype") == "session_state_changed":
        state = AgentState.IDLE if text(one, "state") == "idle" else AgentState.WORKING
        return replace(now, state=state, detail="", heard=now.heard + 1, taken=now.given)
    for entry in entries:
        state, detail = _state(entry)
        taken = now.taken if entry.who == "user" else now.given
        now = replace(now, state=state, detail=detail[:_DETAIL_MAX], heard=now.heard + 1, taken=taken)
    return now


def _state(entry: Entry) -> tuple[AgentState, str]:
    match entry.kind:
        case "end":
            return AgentState.IDLE, "" if entry.ok else f"its turn failed: {entry.text}"
        case "retry":
            return AgentState.RATE_LIMITED, f"its request was refused and is sent again: {entry.text}"
        case _:
            return AgentState.WORKING, ""


# Spent
# -----
# What agents say of a limit of their account that is spent, and of when it opens again. Pure.
#
# Claude Code 2.1.329: `You've hit your 5-hour limit · resets 7:04am (UTC)`, or with a date, `resets Nov 25, 3pm (Europe/Berlin)`;
# its protocol says the moment as a number beside that. Codex 0.169.0: `You’ve hit your usage limit. ... try again at 7:04 AM.`, or
# `at Nov 25th, 2026 7:04 AM.`, in the time of its own machine.


_SPENT: Final = re.compile(r"(?:you.ve|you have) (?:hit|reached) your (?!.{0,30}spend).{0,40}limit|usage limit reached", re.IGNORECASE)
_EPOCH: Final = re.compile(r"limit reached\|(\d{10})(?!\d)")
_MOMENT: Final = re.compile(
    r"(?:resets|try again at) (?:at )?(?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th)?,? (?:at )?(?:(\d{4})[, ]+)?)?"
    r"(\d{1,2})(?::(\d\d))? ?([ap])m(?: \(([A-Za-z_+\-/0-9]{1,40})\))?",
    re.IGNORECASE,
)
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_PAST: Final = timedelta(hours=1)
"""A time of day that was so long ago is that of today, and over; one that was longer ago is tomorrow's."""


def is_spent(words: str) -> bool:
    """Whether these words of an error mean that a limit of the account is spent, and not that too much was asked at once. A spend cap is
    no such limit: only a person raises it."""
    return bool(_SPENT.search(words))


def resets_at(words: str, now: float, zone: tzinfo | None = None) -> float:
    """When the limit opens again, in seconds since 1970, as these words say; 0 when they say nothing that can be. `zone`: of times that
    name none; None: this machine's."""
    if epoch := _EPOCH.search(words):
        return float(epoch[1])
    found = _MOMENT.search(words)
    if found is None:
        return 0.0
    month, day, year, hour, minute, half, name = found.groups()
    try:
        here = datetime.fromtimestamp(now, _zone(name, zone)).astimezone(_zone(name, zone))
        clock = here.replace(hour=int(hour) % 12 + 12 * (half.lower() == "p"), minute=int(minute or 0), second=0, microsecond=0, fold=0)
        return _dated(clock, here, (month, day, year)).timestamp()
    except (ValueError, KeyError, OverflowError, OSError):  # no such day, or no such zone
        return 0.0


def _zone(name: str | None, zone: tzinfo | None) -> tzinfo | None:
    return ZoneInfo(name) if name else zone


def _dated(clock: datetime, here: datetime, date: tuple[str | None, str | None, str | None]) -> datetime:
    month, day, year = date
    if month is None or day is None:
        return clock if clock > here - _PAST else clock + timedelta(days=1)
    dated = clock.replace(year=int(year or here.year), month=_MONTHS.index(month.lower()) + 1, day=int(day))
    return dated if year or dated > here - timedelta(days=7) else dated.replace(year=here.year + 1)


# Tool calls
# ----------
# Which tools an agent called and when, by what it printed: of the protocols whose lines, or calls, have a time.


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
