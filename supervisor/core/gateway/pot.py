"""Dollars that several agents spend together: the crew's of 12 hours, and those of one night.

What was spent and the most that the requests in flight can cost never are more than the cap together: a request that does not fit waits
until one of those has ended, and is refused when it would not fit even then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

CENT = 1e-9
"""Dollars: what float sums may be off."""


class Spent(Protocol):
    """What was spent, as far as it counts."""

    def add(self, amount: float, now: float) -> object:
        """So much more."""

    def sum(self, now: float) -> float:
        """All of it."""


class Total:
    """What counts for good."""

    def __init__(self, usd: float) -> None:
        self._usd = usd

    def add(self, amount: float, now: float) -> None:  # noqa: ARG002 - as `Spent`
        """So much more, or less."""
        self._usd = max(0.0, self._usd + amount)

    def sum(self, now: float) -> float:  # noqa: ARG002 - as `Spent`
        """All of it."""
        return self._usd


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now: at `until`, or (None) when a request of the same cap has ended."""

    until: float | None
    pot: Pot | None = None
    """The cap is one that others share, and not its agent's own."""


@dataclass(frozen=True, slots=True)
class Never:
    """It can never be sent; `why` is for the person whose agent stops."""

    why: str


class Pot:
    """One of them."""

    def __init__(self, key: str, whose: str, cap: float | None, spent: Spent) -> None:
        self.key, self.whose = key, whose
        self.cap = cap
        self.spent = spent
        self.bounds = 0.0
        """The most that the requests in flight can cost."""
        self.in_flight = 0
        self.held: list[Any] = []
        """The `Budget` of each agent whose next request waits until one in flight ends."""
        self.refused = False
        """One was refused that would have fit when nothing was spent."""

    def verdict(self, bound: float, now: float) -> Wait | Never | None:
        """Whether a request that can cost so much may go now (None)."""
        if self.cap is None or (spent := self.spent.sum(now)) + self.bounds + bound <= self.cap + CENT:
            return None
        if self.in_flight and spent + bound <= self.cap + CENT:
            return Wait(None, self)
        self.refused = self.refused or bound <= self.cap + CENT
        return Never(too_dear(f"{self.key} of {self.whose}", self.cap, spent, bound))

    def open(self, bound: float | None) -> None:
        """One is sent."""
        self.in_flight += 1
        self.bounds += bound or 0.0

    def close(self, bound: float | None) -> None:
        """It is over."""
        self.in_flight -= 1
        self.bounds = self.bounds - (bound or 0.0) if self.in_flight else 0.0  # float rounding does not pile up


def too_dear(what: str, cap: float, spent: float, bound: float) -> str:
    """What is told of a request that does not fit."""
    return f"{what} is ${cap:.2f}: ${spent:.2f} is spent, and this request can cost at most ${bound:.2f}; a smaller max_tokens lowers that"
