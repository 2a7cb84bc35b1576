"""Moments as people write them in a plan or in config.toml: a duration, a time of day, a date with a time, a window of the day."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from supervisor.config.reading import duration
from supervisor.core.spec import ABSOLUTE_FROM
from supervisor.core.window import Window

_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def moment(value: Any, now: datetime | None = None) -> Any:
    """A duration in seconds, counted from the submission, or seconds since 1970: of a TOML date with time, and of `"06:30"`, the next time
    that the clock of this machine shows it. Text that is neither raises ValueError."""
    if isinstance(value, datetime):
        return _absolute(value)
    if isinstance(value, str) and (found := _TIME.fullmatch(value.strip())):
        return _absolute(_next(int(found[1]), int(found[2]), (now or datetime.now().astimezone()).timestamp()))
    try:
        return duration(value)
    except ValueError:
        raise ValueError('give a duration such as "2h", a time of day such as "06:30", or a date with a time') from None


def _next(hour: int, minute: int, now: float) -> datetime:
    """The next local time of day after `now`, seconds since 1970. A day on which the clocks are set back may have it twice, and on one on
    which they are set forward it is past once the clock shows more."""
    shown = datetime.fromtimestamp(now)
    today = shown.replace(hour=hour, minute=minute, second=0, microsecond=0, fold=0)
    again = today.replace(fold=1)
    if today.timestamp() > now and today > shown.replace(fold=0):
        return today
    return again if again.timestamp() > now and again.timestamp() > today.timestamp() else today + timedelta(days=1)


def _absolute(at: datetime) -> float:
    """Without a time zone it is this machine's; a time that the clocks skip means the one an hour later, one that comes twice the first."""
    if not ABSOLUTE_FROM <= (seconds := at.timestamp()) < 10**11:
        raise ValueError("give a date between 2001 and 5138")
    return seconds


def window(value: Any) -> Any:
    """A window of the day from `"22:00-06:00"`. Raises ValueError."""
    begin, _, end = value.partition("-") if isinstance(value, str) else ("", "", "")
    times = [found and int(found[1]) * 60 + int(found[2]) for found in map(_TIME.fullmatch, (begin.strip(), end.strip()))]
    if times[0] is None or times[1] is None or times[0] == times[1]:
        raise ValueError('give the beginning and the end of it, such as "22:00-06:00"')
    return Window(times[0], times[1])


Moment = Annotated[float, BeforeValidator(moment), Field(gt=0)]
WindowOfDay = Annotated[Window, BeforeValidator(window)]
