"""The window of the day for batch tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.night import Window, batch_time, why_batch_waits
from supervisor.kernel.states import BatchTime

MINUTES = st.integers(0, 24 * 60 - 1)


@pytest.mark.parametrize(
    ("window", "inside", "outside"),
    [(Window(22 * 60, 6 * 60), (1320, 1439, 0, 359), (360, 720, 1319)), (Window(60, 120), (60, 119), (0, 59, 120, 1439))],
)
def test_it_holds_from_its_beginning_to_before_its_end(window: Window, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    assert all(map(window.holds, inside)) and not any(map(window.holds, outside))


@given(MINUTES, MINUTES, MINUTES)
def test_a_window_and_what_it_leaves_are_the_day(begin: int, end: int, minute: int) -> None:
    if begin != end:
        assert Window(begin, end).holds(minute) is not Window(end, begin).holds(minute)


def test_when_batch_tasks_start_and_why_not() -> None:
    night = Window(22 * 60, 6 * 60)
    assert batch_time(None, [0], when_idle=False) is BatchTime.ALWAYS
    assert batch_time(None, [0], when_idle=True) is BatchTime.IDLE
    assert batch_time(night, [0], when_idle=True) is BatchTime.ALWAYS
    assert batch_time(night, [720], when_idle=True) is BatchTime.IDLE
    assert batch_time(night, [720], when_idle=False) is BatchTime.NEVER
    assert batch_time(night, [720, 0], when_idle=False) is BatchTime.ALWAYS
    assert why_batch_waits(night, BatchTime.NEVER) == "waits for 22:00-06:00"
    assert why_batch_waits(None, BatchTime.IDLE) == "waits until no other task runs or waits"
    assert why_batch_waits(night, BatchTime.IDLE) == "waits until no other task runs or waits, or for 22:00-06:00"
    assert why_batch_waits(night, BatchTime.ALWAYS) == ""
