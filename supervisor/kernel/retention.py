"""What of the past goes, and what stays: by age and by size, the oldest first. Pure; `supervisor.features.retention.service` does it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Limit:
    """How much of one sort of thing is kept; both 0: all of it, for ever."""

    age_s: float = 0.0
    """Nothing goes before it is so old; 0: age sends nothing away."""
    size: int = 0
    """Bytes of all together; 0: size sends nothing away."""

    def __bool__(self) -> bool:
        return bool(self.age_s or self.size)


@dataclass(frozen=True, slots=True)
class Keep:
    """`[keep]`. Only recordings go by themselves where nobody set anything, after as long as the account of their requests is kept; runs
    in the ledger are moved, and lost by none of this."""

    results: Limit = field(default_factory=Limit)
    """The directories of runs among the records."""
    logs: Limit = field(default_factory=Limit)
    """What agents and gates printed, of attempts in those."""
    recordings: Limit = field(default_factory=lambda: Limit(30 * DAY_S))
    """Of requests and answers at the gateway."""
    history: Limit = field(default_factory=lambda: Limit(90 * DAY_S, 2**28))
    """Runs in the ledger; what goes from there is in the archive."""


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that may go."""

    name: str
    since: float
    """When it ended, or was written last: wall-clock seconds."""
    size: int = 0
    """Bytes."""
    held: str = ""
    """Why it must stay whatever its age; empty: nothing needs it."""


@dataclass(frozen=True, slots=True)
class Going:
    """One thing that goes, and why."""

    thing: Thing
    why: str


def going(things: Iterable[Thing], limit: Limit, now: float, total: int | None = None) -> list[Going]:
    """Those that go, oldest first. What must stay counts in the sum of sizes, and never goes. `total`: that sum, where `things` are only
    the oldest of more. A time in the future (the clock was put back) is no age."""
    ordered = sorted(things, key=lambda thing: (thing.since, thing.name))
    left = sum(thing.size for thing in ordered) if total is None else total
    found = []
    for thing in ordered:
        why = "" if thing.held else _why(thing, limit, now, left)
        if why:
            found.append(Going(thing, why))
            left -= thing.size
    return found


def _why(thing: Thing, limit: Limit, now: float, left: int) -> str:
    if limit.age_s and now - thing.since >= limit.age_s:
        return f"{(now - thing.since) / DAY_S:.0f} days old"
    if limit.size and left > limit.size and thing.size:
        return f"all together have {left} bytes"
    return ""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the ledger knows of a run that decides whether it may go."""

    run: str
    ended: float
    """When the last of its tasks changed."""
    tasks: int
    unfinished: int
    """Tasks."""
    unreleased: int
    """Attempts with a session or a result that is still to be written."""
    worktrees: int
    """Attempts whose worktree is still there."""
    awaited: str = ""
    """What else is not over and needs it: an unfinished task that comes after one of its tasks, goes on with a conversation of it or added
    it, or a night whose report is to come; in a few words."""
    newest: bool = False
    """The newest run of all, or the one with the newest text that was sent: numbers go on from their rows."""
    proven: bool = True
    """The audit log proves each row of its history."""


def held(facts: RunFacts) -> str:
    """Why neither the records nor the rows of a run may go yet; empty: they may."""
    reasons: Sequence[tuple[bool, str]] = (
        (facts.unfinished > 0, f"{facts.unfinished} of its tasks have not ended"),
        (facts.unreleased > 0, "an attempt of it is not over"),
        (facts.worktrees > 0, f"{facts.worktrees} of its worktrees are there: nightcrew clean"),
        (bool(facts.awaited), facts.awaited),
        (facts.newest, "it is the newest run"),
    )
    return next((why for is_so, why in reasons if is_so), "")


def held_rows(facts: RunFacts) -> str:
    """The same for its rows alone."""
    return held(facts) or ("" if facts.proven else "the audit log does not prove its history yet")
