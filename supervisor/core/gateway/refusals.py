"""What the refusals of one request say: something about its pool, or only about itself.

A request that is refused again, while others that were sent after its last refusal were served, is at fault itself (a prompt on which the
provider fails, a limit of its own that it hits). The pool's breakers do not open for it, and after a few such refusals it is answered.
Until then it steps back, so that another request is the next probe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from supervisor.core.gateway.bucket import NEVER
from supervisor.core.gateway.commands import TurnAway
from supervisor.core.gateway.nouns import Refusal

if TYPE_CHECKING:
    from supervisor.core.gateway.pool import Pool
    from supervisor.core.gateway.ticket import Ticket

FAULTS_MOST: Final = 5
"""So many refusals of its own, and it is answered."""
STEP_BACK_S: Final = 30.0
"""It waits 4, 8, 16, then this many seconds longer than the breaker."""
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
        self.by: set[Pool] = set()
        """Who refused it since it last made a pause: the others are asked first."""

    def add(self, pool: Pool, why: Refusal, now: float) -> bool:
        """One more. Whether it is the request's own fault."""
        fault = why not in _ACCOUNT and pool.trouble.served_since(self.at)
        self.count += 1
        self.faults += fault
        self.at = now
        self.by.add(pool)
        return fault

    def too_many(self, ticket: Ticket, why: str) -> TurnAway | None:
        """The answer to a request that is at fault itself too often; none of its places is kept."""
        if self.faults < FAULTS_MOST:
            return None
        return TurnAway(ticket.id, 429, f"the upstream refused this request {self.count} times, and served others meanwhile: {why}", 60)

    def pause_s(self, ticket: Ticket, wait_s: float, now: float) -> float:
        """Seconds until it queues again; `wait_s` is what its pool asks for. None when another pool may serve it at once."""
        if any(door.pool.trouble.calm and door.pool not in self.by for door in ticket.route.doors):
            return 0.0
        self.by = {ticket.pool}
        if self.faults or (self.count > 1 and ticket.lane.waiting):  # whoever is alone is the probe itself
            ready = ticket.pool.trouble.ready_at(now)
            opens = ready if ready < NEVER else now
            wait_s = max(wait_s, opens - now + min(STEP_BACK_S, 2.0**self.count))
        return wait_s
