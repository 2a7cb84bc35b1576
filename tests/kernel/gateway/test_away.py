"""Requests whose clients go away and come back: what they need is saved for them, and nobody waits long for who does not return."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import pytest

from supervisor.gateway.admission.types import Agent, Arrived, End, Ended, Event, Send, TurnAway, Usage
from supervisor.kernel.gateway_settings import Limits
from tests.kernel.gateway.playbook import BATCH, INTERACTIVE, NORMAL, ask, settings, upstream
from tests.kernel.gateway.world import Fate, World

LIMIT = Limits(tpm=60_000)
"""1000 tokens a second, and a minute of them in the bucket."""
BIG, SMALL = 40_000, 3_000


@dataclass
class Returning(World):
    """Clients that come again when they were told to, with the same body."""

    asked: dict[int, Arrived] = field(default_factory=dict)
    told: list[tuple[float, str, int]] = field(default_factory=list)
    served: list[tuple[float, str, int]] = field(default_factory=list)
    never_back: bool = False
    late_s: float = 0.2
    patience_s: float = float("inf")
    """The interactive client itself gives up waiting after this, and comes again half a second later."""
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def come(self, event: Arrived, tokens: int) -> None:
        event = replace(event, ticket=next(self.numbers))
        self.asked[event.ticket] = event
        self.fates[event.ticket] = Fate(Usage(tokens, 10), then_s=1.0)
        self.tell(event)
        if event.agent.task_class is INTERACTIVE and self.patience_s != float("inf"):
            self.at(self.now + self.patience_s, lambda: self._impatient(event, tokens))

    def _impatient(self, event: Arrived, tokens: int) -> None:
        if event.ticket in self.traffic.tickets and event.ticket not in {number for _, number in self.sent}:
            self._give_up(event.ticket)
            self.at(self.now + 0.5, lambda: self.come(event, tokens))

    def tell(self, event: Event) -> None:
        for command in self.traffic.handle(event, self.now):
            if isinstance(command, Send):
                self.sent.append((self.now, command.ticket))
                self._serve(command.ticket)
            elif isinstance(command, TurnAway):
                self._turned_away(command)
        if isinstance(event, Ended) and event.end is End.SERVED:
            of = self.asked[event.ticket]
            self.served.append((self.now, of.agent.name, self.fates[event.ticket].usage.total))
            if of.agent.task_class is not INTERACTIVE:
                self.at(self.now + 0.01, lambda: self.come(of, self.fates[event.ticket].usage.input))

    def _turned_away(self, command: TurnAway) -> None:
        assert command.status == 429
        of, again_s = self.asked[command.ticket], command.retry_after_s or 0
        self.told.append((self.now, of.agent.name, again_s))
        self._end(command.ticket, "turned away 429")
        if not self.never_back:
            self.at(self.now + again_s + self.late_s, lambda: self.come(of, self.fates[command.ticket].usage.input))

    def of(self, agent: str) -> list[float]:
        return [when for when, name, _ in self.served if name == agent]


def crowded(below: object = NORMAL, big: int = BIG, **facts: object) -> Returning:
    """Six agents whose requests keep the bucket empty, and at 20 s a person's big one. `hold` is an eighth of the time that this needs."""
    world = Returning(settings(upstream(limits=LIMIT), hold_s=5.0, patient_hold_s=1500.0), **facts)  # type: ignore[arg-type]
    for number in range(6):
        agent = Agent(f"n{number}", 1, below, patient=True)  # type: ignore[arg-type]
        event = ask(0, agent, tokens=SMALL, body_key=f"n{number}")
        world.at(0.1 * number, lambda event=event: world.come(event, SMALL))  # type: ignore[misc]  # bound now
    person = ask(0, Agent("person", 1, INTERACTIVE), tokens=big, body_key="person")
    world.at(20.0, lambda: world.come(person, big))
    return world


@pytest.mark.parametrize("below", [NORMAL, BATCH])
@pytest.mark.parametrize("big", [BIG, 70_000], ids=["most of the bucket", "more than the bucket"])
def test_who_is_told_to_come_back_before_it_can_fit_is_served_when_it_returns(below: object, big: int) -> None:
    world = crowded(below, big)
    world.run(until=140.0)
    assert world.of("person"), f"told to come back {[one for one in world.told if one[1] == 'person']}"
    assert len([one for one in world.told if one[1] == "person"]) <= 2, "Retry-After was the time when it fits"


def test_who_gives_up_waiting_itself_and_returns_at_once_is_served() -> None:
    world = crowded(patience_s=4.0)
    world.run(until=140.0)
    assert world.of("person")


def test_nobody_waits_long_for_who_does_not_return() -> None:
    world = crowded(never_back=True)
    world.run(until=320.0)
    assert not world.of("person")
    used = sum(tokens for when, _, tokens in world.served if 20.0 < when <= 320.0)
    assert used > 0.85 * 1000 * 300, f"{used} of 300,000 tokens"
    gaps = [later - earlier for earlier, later in itertools.pairwise(sorted(when for when, *_ in world.served))]
    assert max(gaps) < 75.0


def test_what_is_above_a_saved_need_is_used_meanwhile() -> None:
    """A client that stays away for long: the bucket fills to what it needs, and the rest goes to the others."""
    world = crowded(late_s=6.0)
    world.run(until=200.0)
    assert world.of("person")
    used = sum(tokens for when, _, tokens in world.served if 20.0 < when <= 200.0)
    assert used > 0.85 * 1000 * 180, f"{used} of 180,000 tokens"
