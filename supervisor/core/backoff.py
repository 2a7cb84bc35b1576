"""How long a failed or lost task waits before it runs again."""

from __future__ import annotations

from typing import Final

BACKOFF_FIRST_S: Final = 2.0
BACKOFF_CAP_S: Final = 300.0


def backoff_s(count: int) -> float:
    """Seconds before re-run number `count` (1 is the first): doubling from 2 s, at most 300 s."""
    return float(min(BACKOFF_CAP_S, BACKOFF_FIRST_S * 2 ** min(max(count, 1) - 1, 16)))
