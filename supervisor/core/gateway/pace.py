"""What one pool spends a second, of late."""

from __future__ import annotations

from supervisor.core.gateway.dimension import TOKENS

PACE_S = 15.0


class Pace:
    """Requests, input and output that were settled lately, a second: over the period before this one and what there is of this."""

    __slots__ = ("_before", "_since", "_sums")

    def __init__(self, now: float) -> None:
        self._since = now
        self._sums = [0.0, 0.0, 0.0]
        self._before = [0.0, 0.0, 0.0]

    def add(self, tokens_in: float, tokens_out: float, now: float) -> None:
        """Count a request."""
        if now - self._since >= PACE_S:
            self._before = self._sums if now - self._since < 2 * PACE_S else [0.0, 0.0, 0.0]
            self._sums = [0.0, 0.0, 0.0]
            self._since = now
        sums = self._sums
        sums[0] += 1
        sums[1] += tokens_in
        sums[2] += tokens_out

    def rate(self, index: int, now: float) -> float:
        """A second, in one dimension."""
        elapsed = now - self._since
        if elapsed >= 2 * PACE_S:
            return 0.0
        sums = [before + ours for before, ours in zip(self._before, self._sums, strict=True)]
        return (sums[1] + sums[2] if index == TOKENS else sums[index]) / (elapsed + PACE_S)
