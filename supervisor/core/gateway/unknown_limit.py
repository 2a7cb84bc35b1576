"""While a pool's limits are not known, few requests are sent: the answer to the first one says them."""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core.gateway.dimension import Dimension
from supervisor.core.gateway.in_flight import InFlight

PATIENCE_S = 15.0
"""One more request is sent after so long without an answer to the first: models think for minutes."""
REMEMBERED_PART = 0.1
"""Of limits that are remembered and not confirmed so much may be under way at once: ten times too much is no refusal yet."""


class UnknownLimit:
    """Times are monotonic seconds."""

    __slots__ = ("_since", "known")

    def __init__(self, now: float, *, known: bool) -> None:
        self.known = known
        """The limits are known, or there are none to learn."""
        self._since = now

    def begin(self, now: float) -> None:
        """A request is sent while none is under way."""
        self._since = now

    def allows(self, amounts: tuple[float, ...], under_way: InFlight, dimensions: Sequence[Dimension], now: float) -> bool:
        """Whether one more may be sent: the first, one more in a while, and what is little of the limits that are remembered. `amounts` is
        what it needs, by dimension."""
        if self.known or not under_way or now >= self.next_at(len(under_way)):
            return True
        return bool(dimensions) and all(
            under_way.reserved(one.index) + amounts[one.index] <= REMEMBERED_PART * one.upstream.capacity for one in dimensions
        )

    def next_at(self, in_flight: int) -> float:
        """When one more may be sent beside so many that are not answered."""
        return self._since + PATIENCE_S * in_flight
