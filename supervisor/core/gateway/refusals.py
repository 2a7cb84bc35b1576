"""What the refusals of one request say: something about its pool, or only about itself.

A request that is refused again, while others that were sent after its last refusal were served, is at fault itself (a prompt on which the
provider fails, a limit of its own that it hits). The pool's breakers do not open for it, and after a few such refusals it is answered.
Until then it steps back, so that another request is the next probe.
"""

from __future__ import annotations

from typing import Final

from supervisor.core.gateway.bucket import NEVER
from supervisor.core.gateway.commands import TurnAway
from supervisor.core.gateway.types import Refusal

FAULTS_MOST: Final = 5
"""After so many refusals that are its own fault the request is answered."""
STEP_BACK_S: Final = 30.0
"""A request at fault waits 4, 8, 16, then this many seconds longer than the breaker."""
_ACCOUNT = frozenset({Refusal.WINDOW_SPENT, Refusal.SPEND_CAP})
"""These say something about the account, whoever meets them."""


class Refusals:
    """Of one ticket, from the first on."""

    __slots__ = ("at", "by", "count", "faults")

    def __init__(self) -> None:
        self.count = 0
        self.faults = 0
        """Those that were its own fault."""
        self.at = NEVER
        self.by: set[str] = set()
        """Accounts that refused it since it last made a pause: the others are asked first."""

    def add(self, account: str, why: Refusal, now: float, *, others_served: bool) -> bool:
        """Count one more. `others_served`: the account served requests that were sent after the previous refusal.

        Returns whether this one is the request's own fault.
        """
        fault = why not in _ACCOUNT and others_served
        self.count += 1
        self.faults += fault
        self.at = now
        self.by.add(account)
        return fault

    def too_many(self, ticket: int, why: str) -> TurnAway | None:
        """The answer to a request that is at fault itself too often; none of its places is kept."""
        if self.faults < FAULTS_MOST:
            return None
        return TurnAway(ticket, 429, f"the upstream refused this request {self.count} times, and served others meanwhile: {why}", 60)
