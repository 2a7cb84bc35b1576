"""The terms of a night, and the window of the day in which batch tasks start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from supervisor.kernel.states import BatchTime

# Window
# ------
# The window of the day in which batch tasks start.


@dataclass(frozen=True, slots=True)
class Window:
    """From one minute of the day to another, over midnight when the end is the earlier one. By the clock on the wall: on the day on which
    it is set back, the window may be open for an hour longer or twice; see `batch_time` for the day on which it is set forward."""

    begin: int
    """Minutes after midnight."""
    end: int

    def holds(self, minute: int) -> bool:
        """Whether that minute of the day lies in it; the end does not."""
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end

    def __str__(self) -> str:
        return f"{self.begin // 60:02}:{self.begin % 60:02}-{self.end // 60:02}:{self.end % 60:02}"


def batch_time(window: Window | None, minutes: Iterable[int], *, when_idle: bool) -> BatchTime:
    """Whether batch tasks may start: in the window, and outside of it, or without one, when idle if that is asked. `minutes` of the day:
    the one that the clock shows, and for an hour after it was set forward also the one that it would show, so that a window which it
    leaps over opens all the same."""
    if window is not None and any(map(window.holds, minutes)):
        return BatchTime.ALWAYS
    if when_idle:
        return BatchTime.IDLE
    return BatchTime.ALWAYS if window is None else BatchTime.NEVER


def why_batch_waits(window: Window | None, now: BatchTime) -> str:
    """Why a batch task does not start, in a person's words; empty when the time is not the reason."""
    match now:
        case BatchTime.ALWAYS:
            return ""
        case BatchTime.IDLE:
            return "waits until no other task runs or waits" + (f", or for {window}" if window else "")
        case BatchTime.NEVER:
            return f"waits for {window}"


# Night
# -----
# A night: a run with terms. Until when tasks start, how long those that run may take after that, and what all of it may cost.
#
# Pure: every moment is seconds since 1970, every amount US dollars.


class OnCap(StrEnum):
    """What becomes of the tasks that run when the cap is reached."""

    DRAIN = "drain"
    """They go on, while each request fits below it."""
    STOP = "stop"
    """They are stopped."""


class NightState(StrEnum):
    """How far a night has come; it never goes back."""

    OPEN = "open"
    CLOSING = "closing"
    """Nothing starts any more; what runs goes on."""
    OVER = "over"
    """What runs is being stopped."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class NightTerms:
    """Within what a night stays."""

    until: float = 0.0
    """No task starts from then on; 0: no such time."""
    grace_s: float = 600.0
    """How long those that run then may still take."""
    cost_max: float = 0.0
    """What all its requests may cost together; 0: no cap of its own."""
    parallel: int = 0
    """Of its agents so many live at once; 0: as many as there are slots."""
    on_cap: OnCap = OnCap.DRAIN


@dataclass(frozen=True, slots=True)
class NightOrder:
    """What is handed over with the run that is to be a night."""

    terms: NightTerms
    plan: str = ""
    """Path of the plan's file, for people."""
    plan_hash: str = ""
    """SHA-256 of its bytes."""
    timer: str = ""
    """The timer that asked for it; empty: a person did."""


@dataclass(frozen=True, slots=True)
class NightDefaults:
    """`[night]` of config.toml: the terms of a night that does not say them itself, and what holds in every night."""

    until: str = ""
    """As it is written, since it means the next such time when a night begins."""
    grace_s: float = 600.0
    cost_max: float = 0.0
    parallel: int = 0
    on_cap: OnCap = OnCap.DRAIN
    inhibit_sleep: bool = True
    """While a night goes on the machine is asked not to sleep."""
    ask_max: int = 3
    """How often an agent that needs a person is asked about again."""
    quiet_hours: Window | None = None
    """When nothing but what is urgent is told."""


CENT = 1e-9
"""Dollars: what float sums may be off."""


@dataclass(frozen=True, slots=True)
class NightSpent:
    """What the requests of a night have cost, as the gateway says."""

    usd: float = 0.0
    """Of those that have ended."""
    reserved: float = 0.0
    """The most that those under way can cost."""
    refused: bool = False
    """One could not be sent, because it did not fit below the cap any more."""
    tasks: Mapping[str, float] = field(default_factory=dict)
    """Of tasks that have asked: what they cost, with the most that theirs under way can cost."""


@dataclass(frozen=True, slots=True)
class Night:
    """A night that has not ended."""

    run: str
    terms: NightTerms
    state: NightState = NightState.OPEN
    why: str = ""
    """Why nothing starts any more; empty while it is open."""
    until_words: str = ""
    """`until` as the local clock shows it."""
    spent: NightSpent = field(default_factory=NightSpent)
    unheard: float = 0.0
    """Dollars that attempts which ended since the gateway said `spent` are expected to have cost beyond it."""

    def left(self) -> float:
        """Dollars that no request has spent; only with a cap."""
        return self.terms.cost_max - self.spent.usd

    @property
    def stops_by_cap(self) -> bool:
        """Whether its cap is reached and stops what runs."""
        return self.why == CAP_REACHED and self.terms.on_cap is OnCap.STOP

    def is_over(self, wall: float) -> bool:
        """Whether what runs is to be stopped, of one that starts nothing any more."""
        return self.stops_by_cap or bool(self.terms.until and wall >= self.terms.until + self.terms.grace_s)


CAP_REACHED = "the night's cost_max was reached"
"""`Night.why` of one that closed for its cap."""
