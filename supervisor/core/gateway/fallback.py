"""When a cheaper model answers a batch request in place of the one that it asks for.

A route names the fallback. It answers while every breaker of the model that was asked is open (until one lets a probe through: that is the
model's own again), and while the crew's night has spent `Policy.fallback_at` of its cap. It does not while its own breaker is not closed,
where it shares the limit of the model that was asked, where it is known to cost as much, or where a cap holds and its price is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from supervisor.core.gateway.commands import Command, Journal
from supervisor.core.gateway.events import Arrived, Fallback
from supervisor.core.gateway.model_queue import Door, RoutedTicket
from supervisor.core.gateway.network import Network
from supervisor.core.gateway.pot import Pot
from supervisor.core.gateway.ticket import SENT
from supervisor.core.gateway.types import BreakerState
from supervisor.core.states import TaskClass


class Fallbacks:
    """Decides by the breakers and the night as they are."""

    def __init__(self, network: Network, night: Pot, part: float) -> None:
        self._network = network
        self._night = night
        self._was_near = False
        self.part = part
        """`Policy.fallback_at`."""

    def of(self, event: Arrived, now: float) -> Arrived:
        """The request as it is to be answered now: by its fallback, or (the same object) as it came."""
        other = event.fallback
        if other is None or event.agent.task_class is not TaskClass.BATCH:
            return event
        doors = self._network.route(event.lane, event.upstreams, now).doors
        near = self._near(now)
        if not near and any(door.pool.breakers.lets(now) for door in doors):
            return event
        open_ones = self._usable(other, doors, now)
        if not open_ones or not self._is_cheaper(event, other, must_be=near):
            return event
        names = tuple(door.upstream for door in open_ones)
        return replace(event, lane=other.lane, model=other.model, upstreams=names, bound_usd=other.bound_usd, fallback=None, fell_back=True)

    def moved(self, tickets: Iterable[RoutedTicket], said: Iterable[Command], now: float) -> list[tuple[RoutedTicket, Arrived]]:
        """Those of `tickets` that wait and are to be answered by their fallbacks from now on, once a breaker has opened (as `said`
        says) or the night's cap has come near."""
        before, self._was_near = self._was_near, self._near(now)
        opened = any(isinstance(one, Journal) and one.after is BreakerState.OPEN for one in said)
        if not opened and (before or not self._was_near):
            return []
        waiting = [ticket for ticket in tickets if ticket.where != SENT and ticket.event.fallback is not None]
        return [(ticket, event) for ticket in waiting if (event := self.of(ticket.event, now)) is not ticket.event]

    def _near(self, now: float) -> bool:
        cap = self._night.cap
        return cap is not None and self._night.spent.sum(now) >= self.part * cap

    def _usable(self, other: Fallback, asked: Iterable[Door], now: float) -> list[Door]:
        """Ways to the fallback whose breakers are closed and whose limit is its own."""
        theirs = {door.pool.key for door in asked}
        doors = self._network.route(other.lane, other.upstreams, now).doors
        return [door for door in doors if door.pool.breakers.calm and door.pool.key not in theirs]

    def _is_cheaper(self, event: Arrived, other: Fallback, *, must_be: bool) -> bool:
        """`must_be`: that is what it is for; else it only must not be known to cost as much."""
        if other.bound_usd is None:
            no_cap = event.agent.night is None and (event.agent.cost_max is None or event.agent.cost_assumed)
            return not must_be and no_cap and self._night.cap is None
        return event.bound_usd is None or other.bound_usd < event.bound_usd
