"""Moments as people write them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from supervisor.config.moments import moment, window
from supervisor.core.window import Window


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "now", "at"),
    [
        ("06:30", datetime(2026, 11, 22, 22, 15), datetime(2026, 11, 23, 6, 30)),
        ("22:16", datetime(2026, 11, 22, 22, 15), datetime(2026, 11, 22, 22, 16)),
        ("22:15", datetime(2026, 11, 22, 22, 15), datetime(2026, 11, 23, 22, 15)),
        ("6:30", datetime(2026, 12, 31, 23, 59), datetime(2027, 1, 1, 6, 30)),
        ("06:30", datetime(2026, 10, 24, 22, 0), datetime(2026, 10, 25, 5, 30, tzinfo=UTC)),  # the clocks are set back in that night
        ("06:30", datetime(2026, 3, 28, 22, 0), datetime(2026, 3, 29, 4, 30, tzinfo=UTC)),  # and here forward
        ("02:30", datetime(2026, 3, 28, 22, 0), datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),  # there is no 02:30; an hour later there is
        ("02:30", datetime(2026, 10, 24, 22, 0), datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),  # there are two
    ],
)
def test_a_time_of_day_is_the_next_one_that_the_clock_shows(text: str, now: datetime, at: datetime) -> None:
    assert moment(text, now.astimezone()) == at.timestamp()


@pytest.mark.parametrize(("given", "seconds"), [("2h", 7200.0), (90, 90.0), (0.5, 0.5), ("1d", 86400.0)])
def test_a_duration_is_counted_from_the_submission(given: Any, seconds: float) -> None:
    assert moment(given) == seconds


def test_a_date_without_a_zone_is_this_machines() -> None:
    assert moment(datetime(2026, 7, 1, 6, 30)) == datetime(2026, 7, 1, 4, 30, tzinfo=UTC).timestamp()
    assert moment(datetime(2026, 7, 1, 6, 30, tzinfo=timezone(timedelta(hours=9)))) == datetime(2026, 6, 30, 21, 30, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "wrong", ["", "24:00", "6:3", "06:30:10", "tomorrow", "-1h", "2026-11-23", datetime(1970, 1, 2, tzinfo=UTC), "9999d9"]
)
def test_what_is_no_moment_says_what_is(wrong: Any) -> None:
    with pytest.raises(ValueError, match="give a d"):
        moment(wrong)


def test_a_window() -> None:
    assert window("22:00-06:00") == Window(1320, 360)
    assert window(" 0:00 - 23:59 ") == Window(0, 1439)


@pytest.mark.parametrize("wrong", ["", "22:00", "22:00-24:00", "6-8", "06:00-06:00", 7, None, ["22:00", "06:00"]])
def test_what_is_no_window_says_what_is(wrong: Any) -> None:
    with pytest.raises(ValueError, match="the beginning and the end"):
        window(wrong)
