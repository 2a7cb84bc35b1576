"""What two looks at the machine's three clocks say of the time between: that it slept, and that somebody set the wall clock. Pure.

Every duration and deadline of ours is counted by the monotonic clock, which stands still while the machine sleeps: so nothing is late for
having slept. What follows the wall clock (`not_after`, the end of a night, the reset of a limit) is due at once after a wake.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SLEPT_MIN_S: Final = 1.0
"""A shorter sleep changes nothing that anybody looks at."""
JUMPED_MIN_S: Final = 2.0
"""A wake sets the wall clock by the hardware's, which counts whole seconds, and NTP moves it by milliseconds: neither is a jump."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The three clocks, read at one moment."""

    wall: float
    """Seconds since 1970."""
    monotonic: float
    """Seconds that stand still while the machine sleeps."""
    boottime: float
    """Seconds that do not."""


@dataclass(frozen=True, slots=True)
class Slept:
    """The machine slept."""

    seconds: float
    begin: float
    """Wall-clock seconds of the look before."""
    end: float
    """Of the look after."""


@dataclass(frozen=True, slots=True)
class Jumped:
    """Somebody, or a time server, set the wall clock."""

    seconds: float
    """Positive: forward."""


def between(before: Moment, now: Moment) -> tuple[Slept | Jumped, ...]:
    """What happened between two looks of one boot, in this order. A process that was stopped meanwhile neither slept nor jumped."""
    passed = now.boottime - before.boottime
    slept = passed - (now.monotonic - before.monotonic)
    jumped = now.wall - before.wall - passed
    found: list[Slept | Jumped] = [Slept(slept, before.wall, now.wall)] if slept >= SLEPT_MIN_S else []
    return (*found, Jumped(jumped)) if abs(jumped) >= JUMPED_MIN_S else tuple(found)
