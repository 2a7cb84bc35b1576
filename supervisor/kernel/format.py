"""The one spelling of figures for people; no other module formats them. `supervisor/views/web/static/format.js` has the copy of
those that the page's own scripts need.

| what | spelling |
| --- | --- |
| duration | `40ms`, `4.2s`, `12s`, `3m20s`, `2h05m`, `4d03h`; a second unit of zero is left out: `5m` |
| size | `512 B`, `1.5 KiB`, `384 MiB`, `31.3 GiB` |
| count of tokens | `840`, `1.2k`, `61k`, `3.4M` |
| money | `$4.21`, `$0.25`, `$0.0123` |
| part | `64%` |
| number of things | `1 file`, `2,800 files` |
| list | `a`, `a and b`, `a, b and c`, `a, b and 3 more`; of alternatives `a, b or c` |
| time for programs | `2026-11-28T04:03:57.120Z` |
| time for people, local | `2026-11-28 14:05`, in a report `2026-11-28 14:05 CET`; in a narrow column `14:05`, `21 Nov`, `2025-11` |
| unknown | `-` |
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

TYPE_CHECKING = False  # the runner and the status line import this module: `typing` and `datetime` would cost more than all of it
if TYPE_CHECKING:
    from datetime import datetime, tzinfo

UNKNOWN = "-"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def duration(seconds: float | None) -> str:
    """Format a measured length of time; below 10 seconds with its fraction."""
    if seconds is None:
        return UNKNOWN
    if 0 < seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if 0 < seconds < 9.95:
        return f"{seconds:.1f}s".replace(".0s", "s")
    whole = max(0, round(seconds))
    for unit, length, part, shorter in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= length:
            rest = whole % length // shorter
            return f"{whole // length}{unit}" + (f"{rest:02}{part}" if rest else "")
    return f"{whole}s"


def age(seconds: float | None) -> str:
    """Format the length of something that goes on: whole seconds, rounded down."""
    return UNKNOWN if seconds is None else duration(int(seconds))


def size(number: float) -> str:
    """Format bytes, in units of 1024."""
    value, unit = number, "B"
    for larger in ("KiB", "MiB", "GiB"):
        if abs(value) < 1023.95:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f} {unit}" if unit != "B" and abs(value) < 99.95 else f"{value:.0f} {unit}"


def short(value: float | None) -> str:
    """Format a count of tokens or requests in at most 5 columns."""
    if value is None:
        return UNKNOWN
    unit = ""
    for larger in ("k", "M", "G"):
        if abs(value) < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.1f}{unit}" if unit and abs(value) < 9.95 else f"{value if abs(value) >= 0.5 else 0:.0f}{unit}"


def money(usd: float | None) -> str:
    """Format dollars; below one dollar with up to four decimals."""
    if usd is None:
        return UNKNOWN
    return f"${usd:.2f}" if usd >= 0.995 else f"${usd:.4f}".removesuffix("0").removesuffix("0")


def percent(part: float | None, digits: int = 0) -> str:
    """Format a part of one."""
    return UNKNOWN if part is None else f"{round(100 * part, digits) + 0.0:.{digits}f}%"  # + 0.0: never "-0"


def many(count: int, noun: str) -> str:
    """Format a number of things; the plural of `noun` ends in s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(parts: Sequence[str], most: int | None = None, more: int = 0, last: str = "and") -> str:
    """Join names. Of more than `most` it gives the first ones and counts the others; `more` were left out already."""
    shown = [*parts[:most]]
    if left := len(parts) - len(shown) + more:
        shown.append(f"{left:,} more")
    return f" {last} ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


@lru_cache(maxsize=1024)  # all tasks of a run were submitted at one moment
def rfc3339(seconds: float | None) -> str | None:
    """UTC with milliseconds, or None."""
    from datetime import UTC, datetime

    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def date_time(at: float, *, seconds: bool = False) -> str:
    """`2026-11-28 14:05` or `2026-11-28 14:05:09`, local time."""
    return _local(at).isoformat(" ", "seconds" if seconds else "minutes")


def clock(at: float, *, seconds: bool = False) -> str:
    """`14:05` or `14:05:09`, local time."""
    return date_time(at, seconds=seconds).partition(" ")[2]


def stamped(iso: str | None, zone: tzinfo | None = None) -> str:
    """`2026-11-28 14:05 CET` of an RFC 3339 time, in `zone` or else in local time; a text that is no time stays as it is."""
    from datetime import datetime

    if not iso:
        return UNKNOWN
    try:
        return f"{datetime.fromisoformat(iso).astimezone(zone):%Y-%m-%d %H:%M %Z}"
    except ValueError:
        return iso


def moment(at: float, now: float) -> str:
    """A time in at most 7 columns: `14:05` on the day of `now`, `21 Nov` in its year, else `2025-11`. Local time."""
    then, today = _local(at), _local(now)
    if then.date() == today.date():
        return clock(at)
    return f"{then.day} {_MONTHS[then.month - 1]}" if then.year == today.year else f"{then.year}-{then.month:02}"


def _local(at: float) -> datetime:
    from datetime import datetime

    return datetime.fromtimestamp(at)
