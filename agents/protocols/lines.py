"""Lines of a stranger, and what the parsers hand back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

from agents.agent_state import AgentState
from agents.typing_rules import NUMBER
from supervisor.features.trace.rules import ToolCall
from supervisor.kernel.errors import one_line
from supervisor.kernel.result import json_value

# Outcome
# -------
# What the parsers hand back.


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the agent counted them. `input` is what was neither read from a cache nor written to one."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an agent's work ended, as it says itself."""

    ended: bool = False
    """The protocol said that the turn ended, well or not."""
    is_error: bool = False
    reason: str = ""
    """Why it is an error, on one line; empty when it is none."""
    denials: tuple[str, ...] = ()
    """Tools that it was not allowed to use, with what it wanted of them: a line each, at most DENIALS_MAX."""
    message: str = ""
    """Its last message, at most MESSAGE_MAX characters."""
    structured: Any | None = None
    """What it gave for the schema that it was asked to fill."""
    steps: int | None = None
    """Its own count of turns; None where the protocol has none."""
    usage: Usage | None = None
    cost_usd: float | None = None
    session: str = ""
    """By which its conversation is resumed."""
    began: bool = False
    """It said that it has a conversation to work in."""
    models: tuple[str, ...] = ()
    transcript: str = ""
    """Where it says that it keeps its conversation. A path in an agent's words: for people, never opened by us."""
    spent: str = ""
    """That it gave up because a limit of its account is spent, in its own words; empty: it did not."""
    resets_at: float = 0.0
    """When that limit opens again, in seconds since 1970; 0: its protocol does not say it but in words."""
    unfinished: tuple[str, ...] = ()
    """What it had in the background and did not wait for."""


What = Literal["start", "message", "tool", "outcome", "denied", "retry", "error", "end"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened."""

    kind: What
    """`message` somebody spoke · `tool` a call · `outcome` of a call · `denied` a call that was not allowed · `retry` of a request
    that the provider refused · `end` of a turn."""
    who: str
    """`agent`, `user`, `system`; of an agent inside the agent, `agent/TOOL-ID`."""
    text: str = ""
    """At most TEXT_MAX characters."""
    tool: str = ""
    call: str = ""
    """The id that joins a call and its outcome."""
    ok: bool | None = None
    """Of an outcome or an end: whether it went well."""


MESSAGE_MAX = 8_000
TEXT_MAX = 64_000
LINE_MAX = 200
DENIALS_MAX = 20
SMALL_MAX = 20
"""Of models, and of what runs in the background."""


# Lines
# -----
# JSON lines of a stranger: objects from bytes, and values from objects, each of the type that is asked for or a harmless one.


LINE_BYTES = 16 * 2**20
"""A longer line is left out: nothing that an agent has to say takes that much."""

Object = Mapping[str, Any]


def objects(pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON objects that have a `type`, a line each, and those in a line that is an array of them. What else there is, is left out."""
    for line in _lines(pieces):
        found = json_value(line) if _TYPE in line else None
        for one in found if isinstance(found, list) else (found,):
            if isinstance(one, dict):
                yield one


_TYPE = b'"type"'


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Line by line, in time that grows with the bytes alone; the last one counts without a line feed as well. Lines without _TYPE may be
    missing: where there are very many, it pays to pass them by."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        begin = 0
        while (end := piece.find(b"\n", begin)) >= 0:
            if size + end - begin <= LINE_BYTES:
                yield b"".join([*held, piece[begin:end]])
            held.clear()
            size, begin = 0, _next(piece, end + 1)
        size += len(piece) - begin
        if size <= LINE_BYTES:
            held.append(piece[begin:])
        else:
            held.clear()
    if held:
        yield b"".join(held)


def _next(piece: bytes, begin: int) -> int:
    """Where the next line with _TYPE begins, or the piece's last line, which may be a part of one."""
    found = piece.find(_TYPE, begin)
    return max(begin, piece.rfind(b"\n", begin, found if found >= 0 else len(piece)) + 1)


def text(shape: Object, name: str) -> str:
    """A text, or nothing."""
    found = shape.get(name)
    return found if isinstance(found, str) else ""


def inner(shape: Object, name: str) -> Object:
    """An object, or an empty one."""
    found = shape.get(name)
    return found if isinstance(found, dict) else {}


def several(shape: Object, name: str) -> list[Object]:
    """The objects in a list."""
    found = shape.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def count(shape: Object, name: str) -> int:
    """A number of things, or 0."""
    found = shape.get(name)
    return found if type(found) is int and 0 <= found < 2**53 else 0


def amount(shape: Object, name: str) -> float | None:
    """A number that is not negative, or None."""
    found = shape.get(name)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) and 0 <= found < 1e15 else None


def short(said: str, size: int = LINE_MAX) -> str:
    """On one line of at most about `size` characters, harmless to a terminal."""
    head = one_line(" ".join(said[: 4 * size].split()))
    return head if len(head) <= size and len(said) <= 4 * size else f"{head[:size]}…"


def wanted(given: Any) -> str:
    """What a call of a tool was about, on one line: the only value that it was given, or the telling one, or all as JSON."""
    if isinstance(given, dict):
        for name in ("command", "file_path", "filePath", "path", "pattern", "url", "query", "prompt"):
            if isinstance(given.get(name), str):
                return short(given[name])
    return short(given if isinstance(given, str) else json.dumps(given) if given else "")


def name_of(shape: Object, name: str) -> str:
    """An id or a name: a short text without anything odd, or nothing."""
    found = text(shape, name)
    return found if len(found) <= 128 and found.isascii() and found.isprintable() else ""


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
