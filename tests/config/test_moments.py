"""Moments as people write them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from supervisor.config.task_keys import moment, window
from supervisor.kernel.night import Window


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


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()


@pytest.mark.parametrize("zone", ["CET-1CEST,M3.5.0,M10.5.0/3", "Europe/Berlin"], indirect=True)
@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    ("text", "now", "after_min"),
    [
        ("02:50", datetime(2026, 10, 25, 0, 40, tzinfo=UTC), 10),  # 02:40, for the first time
        ("02:50", datetime(2026, 10, 25, 1, 40, tzinfo=UTC), 10),  # 02:40 again
        ("02:40", datetime(2026, 10, 25, 0, 50, tzinfo=UTC), 50),  # 02:50: it comes once more
        ("02:40", datetime(2026, 10, 25, 1, 50, tzinfo=UTC), 23 * 60 + 50),  # 02:50 again: tomorrow
        ("03:00", datetime(2026, 10, 25, 0, 30, tzinfo=UTC), 90),  # the clocks are set back at 03:00
        ("02:30", datetime(2026, 3, 29, 0, 30, tzinfo=UTC), 60),  # 01:30: an hour later, since there is no 02:30
        ("02:30", datetime(2026, 3, 29, 1, 10, tzinfo=UTC), 23 * 60 + 20),  # 03:10: it is past
        ("06:30", datetime(2026, 3, 28, 21, 30, tzinfo=UTC), 7 * 60),  # 22:30: a night of one hour less
        ("06:30", datetime(2026, 10, 24, 20, 30, tzinfo=UTC), 9 * 60),  # and of one more
        ("06:30", datetime(2026, 3, 28, 5, 30, tzinfo=UTC), 23 * 60),  # 06:30: past means tomorrow, by the clock
    ],
)
def test_where_the_clock_is_set_it_is_still_the_next_one(text: str, now: datetime, after_min: int) -> None:
    assert (moment(text, now) - now.timestamp()) / 60 == after_min


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
