"""A block of ports for each agent, so that two agents that start the same server do not meet.

The blocks lie below what systems hand out by themselves (from 32768 on Linux, 49152 on macOS) and above what common servers ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

FIRST = 20_000
SIZE = 10
"""Ports of one block: a web server, its debugger, a database, a cache, and some to spare."""
BLOCKS = 1000


def block(taken: Collection[int], is_free: Callable[[int], bool]) -> int | None:
    """First port of the lowest block that is not in `taken`, by first ports, and whose ports are all free; None when there is none."""
    starts = (FIRST + SIZE * number for number in range(BLOCKS))
    return next((start for start in starts if start not in taken and all(map(is_free, range(start, start + SIZE)))), None)


def variables(first: int | None) -> dict[str, str]:
    """What tells an agent of its block; nothing when it has none."""
    return {"NIGHTCREW_PORT": str(first), "NIGHTCREW_PORTS": shown(first)} if first is not None else {}


def shown(first: int) -> str:
    """A block in words, `20010-20019`."""
    return f"{first}-{first + SIZE - 1}"
