"""When a night starts by itself, as systemd and cron write it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.night import DAYS, EVERY_DAY, LATE_H, Timetable, parse_days, parse_time, too_late

TABLES = st.builds(Timetable, st.integers(0, 24 * 60 - 1), st.sets(st.integers(0, 6), min_size=1).map(lambda days: tuple(sorted(days))))
MOMENTS = st.datetimes(datetime(2001, 1, 1), datetime(2100, 1, 1))


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("mon-fri", (0, 1, 2, 3, 4)),
        ("Sat-mon", (0, 5, 6)),
        ("mon,wed, sun", (0, 2, 6)),
        ("monday", (0,)),
        ("sun-sun", (6,)),
        ("fri-mon,wed", (0, 2, 4, 5, 6)),
    ],
)
def test_days_are_read_as_people_write_them(text: str, days: tuple[int, ...]) -> None:
    assert parse_days(text) == days


@pytest.mark.parametrize("text", ["", "mo", "mon-", "xyz", "mon;tue", "1-5"])
def test_what_names_no_day_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="give days"):
        parse_days(text)


@pytest.mark.parametrize("text", ["", "24:00", "7", "07:60", "22:30:00", "half past ten"])
def test_what_is_no_time_of_day_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="time of day"):
        parse_time(text)


def test_a_timetable_as_cron_and_systemd_write_it() -> None:
    assert Timetable(parse_time("22:30")).cron_fields() == "30 22 * * *"
    assert Timetable(parse_time("22:30")).on_calendar() == "*-*-* 22:30:00"
    some = Timetable(parse_time("7:05"), parse_days("mon-wed,sun"))
    assert some.cron_fields() == "5 7 * * 1,2,3,0"
    assert some.on_calendar() == "Mon,Tue,Wed,Sun *-*-* 07:05:00"
    assert some.words == "07:05 on mon, tue, wed, sun"
    assert Timetable(0).words == "00:00 every day"


def cron_fires(table: Timetable, at: datetime) -> bool:
    """crontab(5), read independently: whether the five fields match that minute."""
    minute, hour, _, _, days = table.cron_fields().split()
    on = days == "*" or str((at.weekday() + 1) % 7) in days.split(",")
    return on and (int(minute), int(hour)) == (at.minute, at.hour)


@given(TABLES, MOMENTS)
def test_newest_and_next_are_moments_at_which_cron_fires_and_none_lies_between(table: Timetable, now: datetime) -> None:
    newest, then = table.newest(now), table.next(now)
    assert newest <= now < then
    assert cron_fires(table, newest) and cron_fires(table, then)
    between = [newest + timedelta(days=day) for day in range(1, (then - newest).days)]
    assert not any(cron_fires(table, at) for at in between)


@given(TABLES)
def test_a_calendar_event_names_the_same_days_as_the_cron_line(table: Timetable) -> None:
    words = table.on_calendar().split()
    named = EVERY_DAY if len(words) == 2 else tuple(DAYS.index(day.lower()) for day in words[0].split(","))
    assert named == table.days


def test_a_start_after_the_deadline_of_its_night_is_too_late() -> None:
    due, until = datetime(2026, 11, 22, 22, 30), datetime(2026, 11, 23, 6, 30)
    assert not too_late(due, due, until)
    assert not too_late(due, datetime(2026, 11, 23, 6, 29), until)
    assert "that night ended at 06:30" in too_late(due, until, until)
    assert not too_late(due, due + timedelta(hours=LATE_H), None)
    assert "missed by more than" in too_late(due, due + timedelta(hours=LATE_H, minutes=1), None)


def test_a_time_that_the_clocks_show_twice_or_skip_is_one_night() -> None:
    table = Timetable(parse_time("02:30"))
    twice = {f"{table.newest(datetime(2026, 10, 25, 2, 30, 1, fold=fold)):%Y-%m-%d %H:%M}" for fold in (0, 1)}
    assert twice == {"2026-10-25 02:30"}
    assert table.newest(datetime(2026, 3, 29, 3, 0, 5)) == datetime(2026, 3, 29, 2, 30)  # cron and systemd start it after the gap
