"""What the three clocks say of the time between two looks."""

from __future__ import annotations

import pytest

from supervisor.kernel.pressure import Jumped, Moment, Slept, between

BEFORE = Moment(wall=1_774_746_000.0, monotonic=500.0, boottime=900.0)


def later(wall: float, monotonic: float, boottime: float) -> Moment:
    return Moment(BEFORE.wall + wall, BEFORE.monotonic + monotonic, BEFORE.boottime + boottime)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(later(1.0, 1.0, 1.0), (), id="a tick"),
        pytest.param(later(600.0, 600.0, 600.0), (), id="stopped by a signal for ten minutes"),
        pytest.param(later(1.9, 1.0, 1.0), (), id="ntp slews"),
        pytest.param(later(28_801.0, 1.0, 28_801.0), (Slept(28_800.0, BEFORE.wall, BEFORE.wall + 28_801.0),), id="slept for eight hours"),
        pytest.param(
            later(28_800.2, 1.0, 28_801.0), (Slept(28_800.0, BEFORE.wall, BEFORE.wall + 28_800.2),), id="a clock of whole seconds"
        ),
        pytest.param(later(3601.0, 1.0, 1.0), (Jumped(3600.0),), id="forward"),
        pytest.param(later(-3599.0, 1.0, 1.0), (Jumped(-3600.0),), id="back"),
        pytest.param(
            later(3661.0, 1.0, 61.0), (Slept(60.0, BEFORE.wall, BEFORE.wall + 3661.0), Jumped(3600.0)), id="slept, and set on waking"
        ),
    ],
)
def test_what_happened_between_two_looks(now: Moment, expected: tuple[Slept | Jumped, ...]) -> None:
    assert between(BEFORE, now) == expected
