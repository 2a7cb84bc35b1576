"""Positions kept for requests that were told to come back, or whose clients gave up waiting: the same body regains its tag."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from supervisor.core.gateway.model_queue import ClassRank, RoutedTicket
from supervisor.core.gateway.timers import EARLY_S


@dataclass(frozen=True, slots=True)
class KeptPosition:
    """One kept position. Its cost stays charged to its agent until the request comes back, or until `until`."""

    ticket: RoutedTicket
    rank: ClassRank
    until: float


class KeptPositions:
    """All kept positions, by the digest of agent and body; each is kept for the same time."""

    def __init__(self, kept_s: float) -> None:
        self.kept_s = kept_s
        self.kept: dict[str, KeptPosition] = {}
        """By digest."""
        self._in_order: deque[tuple[str, KeptPosition]] = deque()

    @property
    def next_end(self) -> float:
        """When the first one expires; infinite when none is kept."""
        return self._in_order[0][1].until if self._in_order else float("inf")

    def keep(self, ticket: RoutedTicket, now: float, back_in_s: float = 0.0) -> None:
        """Keep its place, and save what it needs until its client should be back; or give its cost back to its agent when it cannot be
        known again."""
        key = ticket.event.body_key
        if not key:
            ticket.rank.charge(ticket, -ticket.cost)
            return
        self._drop(self.kept.get(key))
        place = KeptPosition(ticket, ticket.rank, now + self.kept_s)
        self.kept[key] = place
        self._in_order.append((key, place))
        ticket.lane.save(ticket, now + min(back_in_s, self.kept_s), now)

    def take(self, ticket: RoutedTicket) -> bool:
        """Give it the position that was kept for its body: the old tag; only what it costs more is charged. False: none was kept."""
        place = self.kept.get(ticket.event.body_key)
        if place is None or place.rank is not ticket.rank:
            return False
        del self.kept[ticket.event.body_key]
        ticket.start, ticket.order = place.ticket.start, place.ticket.order
        ticket.rank.charge(ticket, ticket.cost - place.ticket.cost)
        ticket.lane.returned(place.ticket)
        return True

    def expire(self, now: float) -> None:
        """Drop positions whose time is over, and give their cost back."""
        while self._in_order and self._in_order[0][1].until <= now + EARLY_S:
            key, place = self._in_order.popleft()
            if self.kept.get(key) is place:
                del self.kept[key]
                self._drop(place)

    def _drop(self, place: KeptPosition | None) -> None:
        if place is not None:
            place.rank.charge(place.ticket, -place.ticket.cost)
