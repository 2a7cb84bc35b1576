"""Our policy in the simulated world: the real `Traffic`, told what the proxy would tell it and obeyed as the proxy would obey."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, assert_never

from supervisor.bench.fairness.simulation import Turn, World
from supervisor.core.gateway.client_env import is_patient
from supervisor.core.gateway.commands import Alert, Command, Journal, Send, TurnAway
from supervisor.core.gateway.events import Arrived, Began, Ended, Event, Refused, Responded, Tick
from supervisor.core.gateway.settings import GatewaySettings, Limits, Policy, Upstream
from supervisor.core.gateway.ticket import SENT
from supervisor.core.gateway.traffic import Traffic
from supervisor.core.gateway.types import Agent, Api, End, LaneKey, Observed, Refusal, Usage

LANE = LaneKey(Api.ANTHROPIC, "opus-4")
MAX_TOKENS = 64_000


class Gateway:
    """The gateway. The use of a limit by others and the size of requests must be learned, and the limit itself unless it is configured."""

    def __init__(self, world: World[Any], policy: Policy | None = None, limits: Limits | None = None) -> None:
        """`limits` are what the settings say; without any, every limit must be learned."""
        self._world = world
        upstream = Upstream("provider", Api.ANTHROPIC, "http://127.0.0.1", limits=limits or Limits())
        self.traffic = Traffic(GatewaySettings(upstreams=(upstream,), policy=policy or Policy()), world.now)
        self.journal: list[tuple[float, Journal | Alert]] = []
        self._turns: dict[int, Turn] = {}
        self._tickets: dict[int, int] = {}
        self._last_ticket = 0
        self._wake: float | None = None

    def arrived(self, turn: Turn) -> None:
        """Each request has a ticket of its own, also when it is one that comes again; the body is what tells."""
        self._last_ticket += 1
        self._turns[self._last_ticket], self._tickets[turn.number] = turn, self._last_ticket
        self._tell(
            Arrived(
                self._last_ticket,
                Agent(turn.agent, epoch=1, task_class=turn.task_class, patient=is_patient(turn.task_class)),
                LANE,
                model="claude-opus-4-8",
                upstreams=("provider",),
                body_bytes=turn.body_bytes,
                max_tokens=MAX_TOKENS,
                body_key=f"{turn.agent}/{turn.number}",
                session=turn.agent,
            )
        )

    def waiting(self) -> list[Turn]:
        """Turns that were not sent yet, or were refused."""
        return [self._turns[ticket] for ticket, one in self.traffic.tickets.items() if one.where != SENT]

    def outside(self, name: str) -> float:
        """What it takes for the use of one limit by others, per minute."""
        pools = self.traffic.view(self._world.now).pools
        return sum(dimension.outside_per_minute for pool in pools for dimension in pool.dimensions if dimension.name == name)

    def refused(self, turn: Turn, retry_after: int, headers: Observed) -> None:
        """A 429: the client hears nothing of it."""
        self._tell(Refused(self._tickets[turn.number], Refusal.RATE_LIMITED, replace(headers, retry_after_s=float(retry_after))))

    def responded(self, turn: Turn, headers: Observed) -> None:
        """The head came before the first byte."""
        self._tell(Responded(self._tickets[turn.number], headers))

    def began(self, turn: Turn, headers: Observed | None) -> None:
        """message_start came, in one piece with the head unless that came before."""
        ticket = self._tickets[turn.number]
        if headers is not None:
            self._tell(Responded(ticket, headers))
        self._tell(Began(ticket, Usage(input=turn.input, output=1)))

    def ended(self, turn: Turn) -> None:
        """The whole answer came."""
        ticket = self._tickets.pop(turn.number)
        del self._turns[ticket]
        self._tell(Ended(ticket, End.SERVED, Usage(input=turn.input, output=turn.output)))
        self._world.finish(turn)

    def _tell(self, event: Event) -> None:
        self._obey(self.traffic.handle(event, self._world.now))
        wake = self.traffic.wakes_at(self._world.now)
        if wake is not None and (self._wake is None or wake < self._wake):
            self._wake = wake
            self._world.timeline.at(wake, lambda: self._tick(wake))

    def _tick(self, planned: float) -> None:
        if planned == self._wake:
            self._wake = None
            self._tell(Tick())

    def _obey(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Send():
                    self._world.send(self._turns[command.ticket], self)
                case TurnAway():
                    turn = self._turns.pop(command.ticket)
                    del self._tickets[turn.number]
                    if command.retry_after_s is None:
                        raise RuntimeError(f"{turn.agent} turned away for good: {command.status} {command.why}")
                    self._world.refuse(turn, command.retry_after_s)
                case Journal() | Alert():
                    self.journal.append((self._world.now, command))
                case _:
                    assert_never(command)
