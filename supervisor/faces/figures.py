"""Figures of tokens, money and time in the few characters that a table has for them. Standard library only: `status` imports this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervisor.faces.status import age

BAR = 6
"""Columns of a bar."""


def money(usd: float) -> str:
    """`$4.21`, `$0.0123`, `$0.00`."""
    return f"${usd:.2f}" if usd >= 0.995 or not usd else f"${usd:.4f}"


def short(value: float | None) -> str:
    """`840`, `1.2k`, `61k`, `3.4M`, or a dash."""
    if value is None:
        return "-"
    for unit in ("", "k", "M", "G"):
        if abs(value) < 999.5 or unit == "G":
            return f"{value:.1f}{unit}" if unit and abs(value) < 9.95 else f"{value if abs(value) >= 0.5 else 0:.0f}{unit}"
        value /= 1000
    return "-"


def bar(used: float | None, whole: float | None) -> str:
    """`████░░`; full is all of the share, or more."""
    if used is None or not whole:
        return ""
    full = min(BAR, max(0, round(BAR * used / whole)))
    return "█" * full + "░" * (BAR - full)


def span(seconds: float | None) -> str:
    """`0.4s`, `12s`, `4m10s`, or a dash."""
    if seconds is None:
        return "-"
    return f"{seconds:.1f}s" if 0 < seconds < 9.95 else age(seconds)


def percent(part: float | None, digits: int = 0) -> str:
    return "-" if part is None else f"{round(100 * part, digits) + 0.0:.{digits}f}%"  # + 0.0: never "-0"


def percentiles(of: Mapping[str, float | None] | None) -> str:
    """`0.1/3.2/12`, in seconds."""
    if of is None or of["p50"] is None:
        return "-"
    return "/".join(f"{value:.1f}" if value < 9.95 else f"{value:.0f}" for value in (of["p50"], of["p95"] or 0.0, of["p99"] or 0.0))


def cost(of: Mapping[str, Any] | None) -> str:
    """`$4.21`; `>$4.21` when the price of some is not known, `?` when it is of none."""
    if of is None:
        return "-"
    known: float = of["known_usd"]
    if of["unpriced"] and not known:
        return "$?"
    return f"{'>' if of['unpriced'] else ''}{money(known)}"
