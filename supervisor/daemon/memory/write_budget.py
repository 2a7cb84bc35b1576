"""How much each agent may write into the memory through nightcrew: every version is kept for ever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memory.versions import Author
from supervisor.core.errors import Refused

BYTES = 16 * 2**20
"""At once."""
REFILL_S = 3600.0
"""Seconds until all of them may be written again."""
EACH = 256
"""Bytes that a write costs beside its text."""
FORGET = 10_000
"""Tasks that are remembered."""


@dataclass(slots=True)
class _Left:
    bytes: float
    at: float


class WriteBudget:
    """Of one supervisor."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._left: dict[str, _Left] = {}

    def take(self, author: Author, size: int) -> None:
        """Raises Refused, with nothing taken, when an agent has written too much."""
        if not author.is_agent:
            return
        now = self._monotonic()
        left = self._left.pop(author.name, None) or _Left(BYTES, now)
        left.bytes, left.at = min(BYTES, left.bytes + (now - left.at) * BYTES / REFILL_S), now
        self._left[author.name] = left  # the newest are last
        if len(self._left) > FORGET:
            del self._left[next(iter(self._left))]
        if left.bytes < size + EACH:
            wait = (size + EACH - left.bytes) * REFILL_S / BYTES
            raise Refused(
                "it has written too much into the memory",
                on=author.name,
                why=f"at most {BYTES >> 20} MiB an hour",
                hint=f"wait {wait:.0f} s",
            )
        left.bytes -= size + EACH
