"""What agents say of a limit of their account that is spent, and of when it opens again. Pure.

Claude Code 2.1.329: `You've hit your 5-hour limit · resets 7:04am (UTC)`, or with a date, `resets Nov 25, 3pm (Europe/Berlin)`; its
protocol says the moment as a number beside that. Codex 0.169.0: `You’ve hit your usage limit. ... try again at 7:04 AM.`, or
`at Nov 25th, 2026 7:04 AM.`, in the time of its own machine.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

_SPENT: Final = re.compile(r"(?:you.ve|you have) (?:hit|reached) your (?!.{0,30}spend).{0,40}limit|usage limit reached", re.IGNORECASE)
_EPOCH: Final = re.compile(r"limit reached\|(\d{10})(?!\d)")
_MOMENT: Final = re.compile(
    r"(?:resets|try again at) (?:at )?(?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th)?,? (?:at )?(?:(\d{4})[, ]+)?)?"
    r"(\d{1,2})(?::(\d\d))? ?([ap])m(?: \(([A-Za-z_+\-/0-9]{1,40})\))?",
    re.IGNORECASE,
)
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_PAST: Final = timedelta(hours=1)
"""A time of day that was so long ago is that of today, and over; one that was longer ago is tomorrow's."""


def is_spent(words: str) -> bool:
    """Whether these words of an error mean that a limit of the account is spent, and not that too much was asked at once. A spend cap is
    no such limit: only a person raises it."""
    return bool(_SPENT.search(words))


def resets_at(words: str, now: float, zone: tzinfo | None = None) -> float:
    """When the limit opens again, in seconds since 1970, as these words say; 0 when they say nothing that can be. `zone`: of times that
    name none; None: this machine's."""
    if epoch := _EPOCH.search(words):
        return float(epoch[1])
    found = _MOMENT.search(words)
    if found is None:
        return 0.0
    month, day, year, hour, minute, half, name = found.groups()
    try:
        here = datetime.fromtimestamp(now, _zone(name, zone)).astimezone(_zone(name, zone))
        clock = here.replace(hour=int(hour) % 12 + 12 * (half.lower() == "p"), minute=int(minute or 0), second=0, microsecond=0, fold=0)
        return _dated(clock, here, (month, day, year)).timestamp()
    except (ValueError, KeyError, OverflowError, OSError):  # no such day, or no such zone
        return 0.0


def _zone(name: str | None, zone: tzinfo | None) -> tzinfo | None:
    return ZoneInfo(name) if name else zone


def _dated(clock: datetime, here: datetime, date: tuple[str | None, str | None, str | None]) -> datetime:
    month, day, year = date
    if month is None or day is None:
        return clock if clock > here - _PAST else clock + timedelta(days=1)
    dated = clock.replace(year=int(year or here.year), month=_MONTHS.index(month.lower()) + 1, day=int(day))
    return dated if year or dated > here - timedelta(days=7) else dated.replace(year=here.year + 1)
