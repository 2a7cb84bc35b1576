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
        now = now or datetime.now().astimezone()
        at = now.replace(tzinfo=None, hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0)
        return _absolute(at if at.timestamp() > now.timestamp() else at + timedelta(days=1))
    try:
        return duration(value)
    except ValueError:
        raise ValueError('give a duration such as "2h", a time of day such as "06:30", or a date with a time') from None


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
