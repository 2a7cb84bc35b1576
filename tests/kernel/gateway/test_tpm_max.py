"""`tpm_max` with clients that ask for far more output than they take: the cap is used, and over time it is not passed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from supervisor.gateway.admission.budget import DOUBT, FASTEST, FEW, MINUTE_MOST
from supervisor.gateway.admission.types import Agent, Began, End, Ended, Usage
from supervisor.kernel.gateway_settings import Limits
from tests.kernel.gateway.playbook import Playbook, ask, sends, sent, settings, upstream
from tests.kernel.gateway.world import Fate, World

MOST = 128_000
"""`max_tokens` as Claude Code sends it."""
SPEED = 80.0
"""Tokens a second that the model puts out."""


WIDE = upstream(limits=Limits(tpm=50e6))


@dataclass
class Crowd(World):
    """One capped agent whose `streams` each send the next request as soon as the one before it has ended."""

    agent: Agent = field(kw_only=True)
    speed: float = SPEED
    sizes: Iterator[tuple[int, int]] = field(kw_only=True)
    """Input and output of each request."""

    def begin(self, streams: int) -> None:
        for number in range(streams):
            self.at(self.now + 0.01 * number, self.next)

    def next(self) -> None:
        tokens, output = next(self.sizes)
        ticket = len(self.fates) + 1
        fate = Fate(Usage(tokens, output), 1.0, output / self.speed)
        self.arrive(self.now, ask(ticket, self.agent, tokens=tokens, max_tokens=MOST), fate)

    def _end(self, ticket: int, how: str) -> None:
        super()._end(ticket, how)
        self.next()

    def used(self, since: float, until: float) -> int:
        """Tokens of the requests that ended in this time."""
        return sum(usage.input + usage.output for when, usage in self.settled.values() if since <= when < until)

    def produced(self, since: float, until: float) -> float:
        """Output that the model made in this time, and input of what was sent in it."""
        total = 0.0
        for when, ticket in self.sent:
            usage, began = self.fates[ticket].usage, when + self.fates[ticket].first_byte_s
            total += usage.input if since <= when < until else 0
            total += min(max(0.0, min(until, began + usage.output / self.speed) - max(since, began)) * self.speed, usage.output)
        return total


def crowd(cap: float, sizes: Iterator[tuple[int, int]], speed: float = SPEED) -> Crowd:
    return Crowd(settings(WIDE, hold_s=1e6), agent=Agent("capped", 1, tpm_max=cap), sizes=sizes, speed=speed)


def turns(chance: random.Random, output: int) -> Iterator[tuple[int, int]]:
    while True:
        yield chance.randrange(400, 2500), min(MOST, max(1, round(chance.lognormvariate(math.log(output), 0.6))))


@pytest.mark.parametrize(
    ("cap", "streams", "output"), [(20_000, 4, 270), (100_000, 16, 270), (128_000, 24, 270), (400_000, 60, 270), (100_000, 40, 1500)]
)
def test_an_agent_uses_its_cap_whatever_max_tokens_it_sends(cap: float, streams: int, output: int, seed: int) -> None:  # T04
    """`output`: the median of its answers."""
    world = crowd(cap, turns(random.Random(seed), output))
    world.begin(streams)
    world.run(until=660.0)
    used = world.used(60.0, 660.0) / (10 * cap)
    print(f"used {used:.3f} of the cap")
    assert 0.9 <= used <= 1.05, "what ended in these ten minutes may have been counted a moment before them"


@pytest.mark.parametrize("cap", [20_000, 100_000])
def test_answers_that_are_suddenly_long_pass_the_cap_by_a_known_part_and_are_paid_for(cap: float) -> None:
    """200 answers of a few tokens, and then every one is as long and as fast as a model can be."""

    def sizes() -> Iterator[tuple[int, int]]:
        yield from [(50, 5)] * 200
        while True:
            yield 50, MOST

    world = crowd(cap, sizes(), FASTEST)
    world.begin(300)
    hours = 3
    world.run(until=hours * 3600.0)
    worst = max(world.produced(at, at + 60.0) for at in range(0, hours * 3600, 20))
    all_of_it = world.produced(0.0, hours * 3600.0)
    print(f"the worst minute holds {worst / cap:.2f} caps, {hours} hours {all_of_it / (hours * 60 * cap):.3f} of theirs")
    assert worst <= cap + max(DOUBT * cap, FEW * MINUTE_MOST)
    in_flight = max(DOUBT * cap / MINUTE_MOST, FEW) * MOST
    assert all_of_it <= cap * (hours * 60 + 1) + in_flight, "but for what is under way at the end"


@pytest.mark.parametrize(("cap", "at_once"), [(1_000_000, 16), (50_000, 11), (5_000, 4)])
def test_of_first_requests_with_unknown_outputs_only_so_many_go_at_once(cap: float, at_once: int) -> None:
    """Each is expected to put out 1200, and may put out 18,000 in a minute: 11 of them are 4 caps off. A pool's ramp begins with 16."""
    capped = Agent("capped", 1, tpm_max=cap)
    play = Playbook(Limits(tpm=50e6))
    went = sends(play.tell([ask(number, capped, tokens=10, max_tokens=MOST) for number in range(1, 101)]))
    assert len(went) == at_once
    assert sends(play.tell(Ended(1, End.SERVED, Usage(10, 100))))[:1] == [at_once + 1]


def test_small_answers_are_not_in_doubt() -> None:
    capped = Agent("capped", 1, tpm_max=50_000)
    play = Playbook(Limits(tpm=50e6))
    assert len(sends(play.tell([ask(number, capped, tokens=10, max_tokens=500) for number in range(1, 101)]))) == 16


def test_what_the_input_was_too_much_lets_the_next_one_go_at_once() -> None:
    capped = Agent("capped", 1, tpm_max=11_000)
    play = Playbook(Limits(tpm=50e6)) >> [ask(1, capped, tokens=6000), ask(2, capped, tokens=6000)] << sent(1)
    assert play >> Began(1, Usage(2000, 1)) << sent(2)
