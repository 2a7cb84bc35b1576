"""What the prompts of a map will take, said before any is sent: tokens, US dollars and minutes, each with what it is at least and at most.

Input tokens are counted by characters, as the gateway does for an agent that it does not know yet; what a model will put out nobody
knows before, so its bounds are wide. Once items of this map or of a run of it were answered, their mean replaces the guess.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from supervisor.core.gateway.estimate import FIRST_OUTPUT, FIRST_RATIO, FIRST_SPREAD
from supervisor.core.gateway.settings import Limits
from supervisor.core.gateway.types import Usage

_LEAST_OUTPUT = 0.1
"""Part of the guessed output below which answers are not expected. A guess: nothing was measured."""


@dataclass(frozen=True, slots=True)
class Range:
    """A number with what it is at least and at most."""

    low: float
    expected: float
    high: float

    def to_shape(self) -> dict[str, float]:
        """JSON of it, rounded to what can be known."""
        return {name: float(f"{getattr(self, name):.4g}") for name in ("low", "expected", "high")}

    def scaled(self, factor: float) -> Range:
        """The same so many times."""
        return Range(self.low * factor, self.expected * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class Seen:
    """What items that were answered took, in all."""

    items: int = 0
    input: int = 0
    """Tokens of all kinds of input."""
    output: int = 0
    sizes: int = 0
    """Bytes of their prompts."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """`cost_usd` None: the model's price is not known. `minutes` None: no limit is known. `binding`: the limit that it is, or empty."""

    calls: int
    input: Range
    output: Range
    cost_usd: Range | None
    minutes: Range | None
    binding: str = ""

    def to_shape(self) -> dict[str, Any]:
        """JSON of it."""
        ranges = {name: getattr(self, name) for name in ("input", "output", "cost_usd", "minutes")}
        return {"calls": self.calls, **{name: one and one.to_shape() for name, one in ranges.items()}, "binding": self.binding or None}


def forecast(
    sizes: Sequence[int], max_tokens: int, limits: Limits | None, cost: Callable[[Usage], float | None], seen: Seen = Seen()
) -> Forecast:
    """For one call for each of `sizes`, the bytes of the prompts, schema included. `cost` gives US dollars of tokens."""
    calls, given = len(sizes), sum(sizes)
    read, made = _input(given, seen), _output(calls, max_tokens, seen)
    low, expected, high = (cost(Usage(round(getattr(read, at)), round(getattr(made, at)))) for at in ("low", "expected", "high"))
    money = None if low is None or expected is None or high is None else Range(low, expected, high)
    minutes, binding = _minutes(calls, read, made, limits)
    return Forecast(calls, read, made, money, minutes, binding)


def _input(given: int, seen: Seen) -> Range:
    if seen.sizes:
        return Range(0.95, 1.0, 1.05).scaled(given * seen.input / seen.sizes)
    tokens = given / FIRST_RATIO
    return Range(tokens * (1 - FIRST_SPREAD), tokens, tokens * (1 + FIRST_SPREAD))


def _output(calls: int, max_tokens: int, seen: Seen) -> Range:
    if seen.items:
        mean = seen.output / seen.items
        spread = 1 / seen.items**0.5
        return Range(mean * max(0.5, 1 - spread), mean, min(max_tokens, mean * (1 + spread))).scaled(calls)
    guess = min(FIRST_OUTPUT, max_tokens)
    return Range(guess * _LEAST_OUTPUT, guess, max_tokens).scaled(calls)


def _minutes(calls: int, read: Range, made: Range, limits: Limits | None) -> tuple[Range | None, str]:
    """By the limit that takes longest. What a full bucket lends at the beginning is not counted: others may have taken it."""
    if limits is None:
        return None, ""
    total = Range(read.low + made.low, read.expected + made.expected, read.high + made.high)
    asked = {"requests": Range(calls, calls, calls), "input": read, "output": made, "tokens": total}
    takes = {name: asked[name].scaled(1 / limit) for name, limit in limits.known().items()}
    if not takes:
        return None, ""
    binding = max(takes, key=lambda name: takes[name].expected)
    return Range(*(max(getattr(one, at) for one in takes.values()) for at in ("low", "expected", "high"))), binding
