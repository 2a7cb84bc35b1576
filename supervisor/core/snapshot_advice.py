"""Whether a snapshot pays, from measured times: `nightcrew snapshot advise`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

SETUP_WORTH_S: Final = 5.0
"""Below this a set-up is usually not worth a snapshot: making it, keeping it fresh and removing it costs a person more."""
WORK_WORTH_S: Final = 1.0
"""Pieces of work below this are better given to one agent, which sets up once and needs no snapshot. A rule of thumb, not measured."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What was found, and why."""

    pays: bool
    from_run: int | None
    """The first number of runs with which the snapshot has cost less time than it saved; None: it never does."""
    saved_s: float
    """Seconds of agents' time that the snapshot saves over all the runs, its making included; negative: it costs them."""
    why: str
    """In plain words."""


@dataclass(frozen=True, slots=True)
class Times:
    """Measured seconds. A run without a snapshot costs `setup_s + work_s`; with one `fork_s + work_s`, and making it once
    `setup_s + freeze_s`."""

    setup_s: float
    freeze_s: float
    fork_s: float
    work_s: float


def advise(times: Times, runs: int) -> Advice:
    """Whether a snapshot pays for `runs` runs, and from which on. Raises ValueError for a time that cannot have been measured."""
    if runs < 0 or not all(math.isfinite(value) and value >= 0 for value in (times.setup_s, times.freeze_s, times.fork_s, times.work_s)):
        raise ValueError("times are finite and not negative, and so is the number of runs")
    first = break_even(times)
    saved = runs * (times.setup_s - times.fork_s) - (times.setup_s + times.freeze_s)
    pays, why = _verdict(times, runs, first, saved)
    return Advice(pays, first, saved, why)


def break_even(times: Times) -> int | None:
    """The first number of runs that together save more than the snapshot costs; None when a fork is no faster than a set-up, or by so
    little that it takes a billion of them."""
    gain = times.setup_s - times.fork_s
    cost = times.setup_s + times.freeze_s
    if gain <= 0 or cost / gain >= 1e9:
        return None
    first = max(1, math.floor(cost / gain) - 1)  # the quotient is rounded, so the exact place is looked for from just below it
    while first * gain <= cost:
        first += 1
    return first


def _verdict(times: Times, runs: int, first: int | None, saved: float) -> tuple[bool, str]:
    each = f"a fork of {_shown(times.fork_s)} for a set-up of {_shown(times.setup_s)}"
    if first is None:
        return False, f"no: {each} saves nothing, however often"
    if times.setup_s < SETUP_WORTH_S:
        return False, f"usually not: a set-up of {_shown(times.setup_s)} is under {_shown(SETUP_WORTH_S)}; it would pay from run {first} on"
    if times.work_s < WORK_WORTH_S:
        return (
            False,
            f"usually not: work of {_shown(times.work_s)} is better given to one agent in pieces; it would pay from run {first} on",
        )
    if runs < first:
        return False, f"not for {runs} {_runs(runs)}: {each} pays from run {first} on"
    return True, f"yes, from run {first} on: {each}; over {runs} {_runs(runs)} it saves {_shown(saved)} of {_shown(runs * _cold(times))}"


def _cold(times: Times) -> float:
    return times.setup_s + times.work_s


def _runs(number: int) -> str:
    return "run" if number == 1 else "runs"


def _shown(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
