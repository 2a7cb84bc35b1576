"""A night: a run with terms. Until when tasks start, how long those that run may take after that, and what all of it may cost.

Pure: every moment is seconds since 1970, every amount US dollars.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from supervisor.core.window import Window


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

    def to_shape(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_shape(cls, shape: Mapping[str, Any]) -> NightOrder:
        """Read what `to_shape` gave."""
        terms = {**shape["terms"], "on_cap": OnCap(shape["terms"]["on_cap"])}
        return cls(**{**shape, "terms": NightTerms(**terms)})


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
