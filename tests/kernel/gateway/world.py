"""Clients that do as they like and a provider that serves all it gets, in virtual time, around one `Traffic`; a check after every event."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from supervisor.gateway.admission.traffic import Traffic
from supervisor.gateway.admission.types import (
    NOTHING_OBSERVED,
    Arrived,
    Began,
    End,
    Ended,
    Event,
    Refusal,
    Refused,
    Responded,
    Send,
    Tick,
    TurnAway,
    Usage,
    Withdrawn,
)
from supervisor.kernel.gateway_settings import GatewaySettings


@dataclass(frozen=True)
class Fate:
    """What will happen to a request once it is sent."""

    usage: Usage
    first_byte_s: float = 1.0
    then_s: float = 5.0
    end: End | Refusal = End.SERVED
    """A refusal happens once; then it is served."""
    gives_up_after_s: float | None = None
    usage_known: bool = True


@dataclass
class World:
    """Its time is `now`; `at` plans something."""

    settings: GatewaySettings
    now: float = 0.0
    fates: dict[int, Fate] = field(default_factory=dict)
    sent: list[tuple[float, int]] = field(default_factory=list)
    ended: dict[int, str] = field(default_factory=dict)
    settled: dict[int, tuple[float, Usage]] = field(default_factory=dict)
    after_each: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.traffic = Traffic(self.settings, self.now)
        self._acts: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._refused: set[int] = set()

    def at(self, when: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._acts, (max(when, self.now), self._count, act))

    def arrive(self, when: float, event: Arrived, fate: Fate) -> None:
        self.fates[event.ticket] = fate
        self.at(when, lambda: self.tell(event))
        if fate.gives_up_after_s is not None:
            self.at(when + fate.gives_up_after_s, lambda: self._give_up(event.ticket))

    def run(self, until: float = float("inf")) -> None:
        """Until nothing happens any more."""
        ticks = 0
        while True:
            wake = self.traffic.wakes_at(self.now)
            due = self._acts[0][0] if self._acts else float("inf")
            when = min(due, float("inf") if wake is None else wake)
            if when == float("inf") or when > until:
                return
            ticks = ticks + 1 if when == self.now else 0
            assert ticks < 10_000, "it wakes itself without end"
            self.now = when
            if due <= when:
                heapq.heappop(self._acts)[2]()
            else:
                self.tell(Tick())

    def tell(self, event: Event) -> None:
        for command in self.traffic.handle(event, self.now):
            if isinstance(command, Send):
                assert command.ticket not in self.ended, "sent after its end"
                self.sent.append((self.now, command.ticket))
                self._serve(command.ticket)
            elif isinstance(command, TurnAway):
                self._end(command.ticket, f"turned away {command.status}")
        self.after_each()

    def _serve(self, ticket: int) -> None:
        fate = self.fates[ticket]
        if isinstance(fate.end, Refusal) and ticket not in self._refused:
            self._refused.add(ticket)
            self.at(self.now + fate.first_byte_s, lambda: self.tell(Refused(ticket, fate.end)))  # type: ignore[arg-type]
            return
        self.at(self.now + fate.first_byte_s, lambda: self._begin(ticket))
        self.at(self.now + fate.first_byte_s + fate.then_s, lambda: self._finish(ticket))

    def _begin(self, ticket: int) -> None:
        if ticket not in self.ended:
            self.tell(Responded(ticket, NOTHING_OBSERVED))
            if self.fates[ticket].usage_known:
                self.tell(Began(ticket, Usage(self.fates[ticket].usage.input, 1)))

    def _finish(self, ticket: int) -> None:
        if ticket not in self.ended:
            fate = self.fates[ticket]
            end = fate.end if isinstance(fate.end, End) else End.SERVED
            self._end(ticket, str(end))
            self.tell(Ended(ticket, end, fate.usage if fate.usage_known else None))
            self.settled[ticket] = self.now, fate.usage

    def _give_up(self, ticket: int) -> None:
        if ticket not in self.ended:
            self._end(ticket, "gave up")
            self.tell(Withdrawn(ticket))

    def _end(self, ticket: int, how: str) -> None:
        assert ticket not in self.ended, f"ended twice: {self.ended[ticket]}, {how}"
        self.ended[ticket] = how
