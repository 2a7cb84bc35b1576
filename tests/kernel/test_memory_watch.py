"""Whether an agent comes near its memory, and whether it leaks."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from supervisor.kernel.limits import KEPT, Bounds, Step, Watched, look

MIB = 2**20
BOUNDS = Bounds(limit=1000 * MIB, warn=0.8, restart=0.95)


def said(looks: Iterable[float], bounds: Bounds = BOUNDS, every_s: float = 15.0) -> list[tuple[int, Step, str]]:
    """What was said at which look; `looks` are MiB."""
    watched, found = Watched(), []
    for number, memory in enumerate(looks):
        watched, step, why = look(watched, number * every_s, int(memory * MIB), bounds)
        if step is not None:
            found.append((number, step, why))
        assert len(watched.looks) <= KEPT
    return found


def test_it_is_warned_once_and_begun_again_near_the_limit() -> None:
    assert said([100, 799, 801, 850, 940, 951, 960]) == [
        (2, Step.WARN, "it holds 801 MiB, 80% of memory_max"),
        (5, Step.RESTART, "it holds 951 MiB, 95% of memory_max"),
    ]


def test_it_is_warned_again_once_it_was_well_below() -> None:
    assert [number for number, *_ in said([850, 790, 850, 700, 850])] == [0, 4]


def test_who_switches_it_off_hears_nothing() -> None:
    assert said([999, 2000], Bounds(limit=1000 * MIB)) == []


def test_a_leak_is_named_long_before_the_limit() -> None:
    found = said(200 + 2 * number for number in range(400))
    assert [step for _, step, _ in found] == [Step.NAME_LEAK, Step.WARN, Step.RESTART]
    number, _, why = found[0]
    assert 15 * number <= 600, "within ten minutes"
    assert why.startswith("it grows by 8.0 MiB a minute, steadily for ") and "memory_max of 1000 MiB is met in 1h3" in why
    assert "a leak?" in found[1][2] and "a leak?" in found[2][2], "and it is the reason of what comes after"


def test_a_leak_that_begins_late_is_named_too() -> None:
    looks = [300.0] * 200 + [300 + 3 * number for number in range(100)]
    (number, step, _), *_ = said(looks)
    assert step is Step.NAME_LEAK and 200 < number < 275


@pytest.mark.parametrize("seed", range(4))
def test_what_swells_and_shrinks_is_no_leak(seed: int) -> None:
    rng = random.Random(seed)
    looks = [300 + 200 * (number // 20 % 2) + rng.uniform(-20, 20) for number in range(300)]
    assert said(looks) == [], f"seed {seed}"


def test_slow_growth_that_meets_no_limit_for_hours_is_not_worth_a_word() -> None:
    assert said((100 + 0.5 * number for number in range(200)), Bounds(limit=2**40)) == []
    assert said([100.0] * 100) == []
