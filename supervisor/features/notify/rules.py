"""Which messages a person is sent, and when. Pure: what is known is one value, `Known`, and every moment in it is wall-clock seconds, since
it outlives the supervisor. A moment that lies ahead (the clock was set back) counts as long ago, so nothing waits for it.

- **Grouped**: what happens waits `GROUP_S` for others like it, and after a message of its kind for the pause that the kind has. Who needs a
  person is told at once; who does soon after that, in one message once the pause is over.
- **Told once**: a notice whose key was heard within `AGAIN_S` is not told again, and one that goes on is not either.
- **Quiet hours**: what is not urgent waits for their end, and is one message then.
- **Sent at most once in `AGAIN_S`**: that it is sent is kept before it is sent. Whether a message arrived whose sender was killed meanwhile
  nobody knows; it is sent again, but not before `AGAIN_S` have passed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from supervisor.kernel.errors import one_line
from supervisor.kernel.night import Window

AGAIN_S: Final = 900.0
REFRESH_S: Final = 300.0
"""So often it is noted of something that goes on that it still does."""
GROUP_S: Final = 10.0
PAUSE_S: Final = 300.0
URGENT_PAUSE_S: Final = 60.0
RETRY_S: Final = (30.0, 120.0, 480.0, 1800.0)
"""After a try that failed; after the last of them no other follows."""
LINES: Final = 10
"""Of one kind in a message; of the others it has the number."""
LINE_MAX: Final = 200
HEARD_MAX: Final = 2000
"""Keys that are remembered; of more the oldest would be told again."""
OUTBOX_MAX: Final = 20
"""Messages that are under way at once; while there are so many, what is new is gathered."""
STALE_S: Final = 86400.0
"""What is older when it is heard is told to nobody."""
CAP_NEAR: Final = 0.8


ASKED_S: Final = 0.25
"""So long an agent that needs a person waits for others like it."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast messages follow one another."""

    group_s: float = GROUP_S
    """So long what happens waits for others like it; who needs a person ASKED_S."""
    pause_s: float = PAUSE_S
    """From a message of a kind to the next."""
    urgent_pause_s: float = URGENT_PAUSE_S
    """The same of what is urgent, and of who needs a person."""
    tries: int = 1 + len(RETRY_S)


AWAY: Final = Pace()
HERE: Final = Pace(group_s=1.0, pause_s=10.0, urgent_pause_s=10.0, tries=1)
"""On this machine: for who is there and looks, and for nobody later."""


DESKTOP: Final = "desktop"
"""The receiver that is the desktop of this machine."""
DESKTOP_VARIABLES: Final = ("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR")
"""What a program needs to find the desktop of the shell from which a supervisor was started."""


class Kind(StrEnum):
    """What a person may want to be told."""

    NEEDS_PERSON = "needs_person"
    FAILED = "failed"
    BREAKER_OPEN = "breaker_open"
    CAP_NEAR = "cap_near"
    NIGHT_DONE = "night_done"


WORDS: Final = {
    Kind.NEEDS_PERSON: "needs you",
    Kind.FAILED: "failed",
    Kind.BREAKER_OPEN: "no model is served",
    Kind.CAP_NEAR: "near its cap",
    Kind.NIGHT_DONE: "the night is over",
}


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where messages go."""

    name: str
    """As it may be shown: `env:NAME`, `file:PATH`, or the place in the settings of an address that is written there."""
    source: str = field(repr=False)
    """As the settings have it; an address that is written there is a secret."""


@dataclass(frozen=True, slots=True)
class Terms:
    """`[notify]` of the user's settings."""

    receivers: tuple[Receiver, ...] = ()
    on: frozenset[Kind] = frozenset(Kind)
    urgent: frozenset[Kind] = frozenset({Kind.BREAKER_OPEN, Kind.CAP_NEAR})
    """Those that quiet hours do not hold."""
    quiet: Window | None = None
    text: bool = False
    """Whether titles, questions and causes are told, which may quote a prompt."""
    pace: Pace = AWAY

    @property
    def names(self) -> tuple[str, ...]:
        """Of the receivers."""
        return tuple(receiver.name for receiver in self.receivers)


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that happened, or goes on."""

    kind: Kind
    key: str
    """The same for the same thing."""
    line: str
    at: float


@dataclass(frozen=True, slots=True)
class Group:
    """Notices of one kind that nobody was told of yet."""

    kind: Kind
    since: float
    count: int
    lines: tuple[str, ...]
    at: float = 0.0
    """When the first of them happened."""


@dataclass(frozen=True, slots=True)
class Message:
    """One that is under way."""

    number: int
    title: str
    body: str
    left: tuple[str, ...]
    """Names of the receivers that have not taken it."""
    tries: int = 0
    next_at: float = 0.0
    at: float = 0.0
    """When the first thing that it tells happened."""


@dataclass(frozen=True, slots=True)
class Known:
    """All that a supervisor must know to tell everything once."""

    cursor: int = 0
    """The newest row of the journal that was heard."""
    heard: Mapping[str, float] = field(default_factory=dict)
    """Key -> when it was told, or was last seen to go on; none older than `AGAIN_S`."""
    groups: tuple[Group, ...] = ()
    outbox: tuple[Message, ...] = ()
    told: Mapping[str, float] = field(default_factory=dict)
    """Kind -> when its last message was made."""
    last: int = 0
    """Number of the newest message."""


# What is heard -----------------------------------------------------------------------------------------------------------------------


def of_journal(event: str, task: str | None, data: Mapping[str, Any], at: float, *, text: bool) -> Notice | None:
    """What a row of the ledger's journal tells; None: nothing. `text`: with causes and questions, which may quote a prompt."""
    if (state := _failed(event, data)) and task is not None:
        return Notice(Kind.FAILED, f"failed {task}", line(f"{task}: {state}", data.get("cause") or data.get("reason") if text else ""), at)
    match event:
        case "set aside" if task is not None:
            return needs_person(task, str(data.get("question") or "") if text else "", at)
        case "night refused":
            return Notice(Kind.NEEDS_PERSON, f"night refused {data.get('why')}", line("a night was not begun", data.get("why")), at)
        case "outage":
            return Notice(Kind.BREAKER_OPEN, "outage", line("an outage: nothing new starts", data.get("why")), at)
        case "night ended":
            return Notice(Kind.NIGHT_DONE, f"night {data.get('run')}", line(f"night {data.get('run', '')} has ended", data.get("why")), at)
    return None


def _failed(event: str, data: Mapping[str, Any]) -> str:
    """How a task ended that will not be run again and did not end well; empty: it did not end so. What a person cancelled is no news, and
    what is skipped follows from another's end."""
    state = str(data.get("task")) if event.startswith("end ") else event
    return state if state in ("failed", "quarantined", "expired") else ""


def shown(title: str, body: str) -> str:
    """A message as one line."""
    first, more = body.partition("\n")[::2]
    return f"{title}: {first}" if more else first


def needs_person(task: str, asks: str, at: float) -> Notice:
    """An agent waits for an answer."""
    return Notice(Kind.NEEDS_PERSON, f"needs {task}", line(f"{task} needs you", asks), at)


def cap_near(name: str, part: float | None, at: float) -> list[Notice]:
    """A cap of which so great a part is spent; none below `CAP_NEAR`, and without that cap."""
    if part is None or part < CAP_NEAR:
        return []
    return [Notice(Kind.CAP_NEAR, f"cap {name}", f"{one_line(name)}: {100 * part:.0f}% is spent", at)]


def line(what: str, why: object = "") -> str:
    """One line of a message, whatever is in it: nothing that drives a terminal or turns the direction of text, at most LINE_MAX
    characters."""
    shown = one_line(f"{what}: {why}" if why else what)
    return shown if len(shown) <= LINE_MAX else f"{shown[: LINE_MAX - 1]}…"


def hear(now_known: Known, happened: Iterable[Notice], goes_on: Iterable[Notice], now: float, terms: Terms) -> Known:
    """What is new of `happened`, and of what `goes_on` at this moment, waits to be told."""
    heard = {key: at for key, at in now_known.heard.items() if not _passed(at, AGAIN_S, now)}
    groups = {group.kind: group for group in now_known.groups}
    for lasting, notices in ((False, happened), (True, goes_on)):
        for notice in notices:
            before = heard.get(notice.key)
            if notice.kind in terms.on and before is None and (lasting or not _passed(notice.at, STALE_S, now)):
                groups[notice.kind] = _with(groups.get(notice.kind), notice, now)
            if before is None or (lasting and now - before >= REFRESH_S):
                heard[notice.key] = now
    heard = dict(list(heard.items())[-HEARD_MAX:])
    changed = heard != now_known.heard or tuple(groups.values()) != now_known.groups
    return replace(now_known, heard=heard, groups=tuple(groups.values())) if changed else now_known


def _with(group: Group | None, notice: Notice, now: float) -> Group:
    if group is None:
        return Group(notice.kind, now, 1, (notice.line,), notice.at)
    lines = group.lines if len(group.lines) >= LINES else (*group.lines, notice.line)
    return replace(group, count=group.count + 1, lines=lines)


def _passed(since: float, seconds: float, now: float) -> bool:
    return not since <= now < since + seconds


# What is sent ------------------------------------------------------------------------------------------------------------------------


def pack(now_known: Known, now: float, minute: int, terms: Terms) -> Known:
    """Make a message of what is due. `minute` of the day, by the clock on the wall."""
    quiet = terms.quiet is not None and terms.quiet.holds(minute)
    may = [group for group in now_known.groups if not quiet or group.kind in terms.urgent]
    if not any(_is_due(group, now_known, now, terms) for group in may) or len(now_known.outbox) >= OUTBOX_MAX or not terms.receivers:
        return now_known
    made = message(now_known.last + 1, may, terms.names)
    return replace(
        now_known,
        groups=tuple(group for group in now_known.groups if group not in may),
        outbox=(*now_known.outbox, made),
        told={**now_known.told, **{str(group.kind): now for group in may}},
        last=made.number,
    )


def _is_due(group: Group, now_known: Known, now: float, terms: Terms) -> bool:
    asks, pace = group.kind is Kind.NEEDS_PERSON, terms.pace
    pause = pace.urgent_pause_s if asks or group.kind in terms.urgent else pace.pause_s
    told = now_known.told.get(str(group.kind))
    return _passed(group.since, ASKED_S if asks else pace.group_s, now) and (told is None or _passed(told, pause, now))


def message(number: int, groups: Collection[Group], receivers: tuple[str, ...]) -> Message:
    """What is told of these groups."""
    title = ", ".join(WORDS[group.kind] if group.count == 1 else f"{group.count} {WORDS[group.kind]}" for group in groups)
    return Message(
        number,
        f"nightcrew: {title}",
        "\n".join(each for group in groups for each in _lines(group)),
        receivers,
        at=min(group.at for group in groups),
    )


def _lines(group: Group) -> list[str]:
    more = group.count - len(group.lines)
    return [*group.lines, *([f"and {more} more {WORDS[group.kind]}"] if more else [])]


def due(now_known: Known, now: float) -> Message | None:
    """The message to send next."""
    return next((one for one in now_known.outbox if not now < one.next_at <= now + RETRY_S[-1]), None)


def sending(now_known: Known, number: int, now: float) -> Known:
    """To be kept before it is sent: should nobody come to say how that ended, it is sent again in AGAIN_S."""
    return _changed(now_known, number, lambda one: replace(one, tries=one.tries + 1, next_at=now + AGAIN_S))


def sent(now_known: Known, number: int, failed: Collection[str], now: float, tries: int = AWAY.tries) -> tuple[Known, bool]:
    """How it ended: who has not taken it is tried again, up to `tries` times. Returns also whether it was given up."""
    one = next(one for one in now_known.outbox if one.number == number)
    given_up = bool(failed) and one.tries >= tries
    if not failed or given_up:
        return replace(now_known, outbox=tuple(other for other in now_known.outbox if other.number != number)), given_up
    left = tuple(name for name in one.left if name in failed)
    again = now + RETRY_S[one.tries - 1]
    return _changed(now_known, number, lambda one: replace(one, left=left, next_at=again)), False


def _changed(now_known: Known, number: int, change: Callable[[Message], Message]) -> Known:
    return replace(now_known, outbox=tuple(change(one) if one.number == number else one for one in now_known.outbox))
