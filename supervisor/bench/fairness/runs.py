"""One run: clients, a policy and a provider for some virtual time, and its figures."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from supervisor.bench.fairness.clients import Agent, ClientStreams
from supervisor.bench.fairness.simulation import AdmissionPolicy, Timeline, Upstream, World
from supervisor.bench.figures import quantile
from supervisor.core.states import TaskClass

LIMIT_TPM = 80_000.0
HOUR_S = 3600.0
DRAIN_S = 7200.0
"""Turns that are open at the end may take so long. Figures are of the time before; a turn that has not ended by then has failed."""
OTHER = "another process"


@dataclass(frozen=True, slots=True)
class Outside:
    """Another process with the same key: requests of `mean_tokens` at random moments, all of which the provider serves."""

    share: float = 0.3
    """Of the limit."""
    start: float = 1 / 3
    end: float = 2 / 3
    """Parts of the run."""
    mean_tokens: float = 2_000.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """Agents, a policy, and whether somebody else spends from the same bucket."""

    policy: Callable[[World[Upstream]], AdmissionPolicy]
    agents: tuple[Agent, ...]
    outside: Outside | None = None
    burst_s: float = 60.0
    """Seconds of refill that the provider's bucket holds; no policy is told."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What is reported of one run. Counts are of its whole time."""

    upstream_429: float
    """429s that the provider gave."""
    client_429: float
    """429s that clients got, whoever gave them."""
    utilisation: float
    """Tokens charged to our agents over what the bucket held at the start and was refilled with, less what the other process took."""
    jain: float
    """(sum x)^2 / (n sum x^2) of the tokens charged to each agent: 1 is equal, 1/n is one agent alone. Interactive agents are left out."""
    failed_turns: float
    """Turns that their clients gave up, and turns that never ended."""
    wait_p50_s: float
    wait_p99_s: float
    """From a turn's first request to the moment when the provider took it, or its client gave up; seconds, of all turns that were begun.
    When there are interactive agents: of theirs."""


@dataclass(slots=True)
class Run:
    """One run, all of it."""

    scenario: Scenario
    until_s: float
    upstream: Upstream
    clients: ClientStreams
    policy: AdmissionPolicy

    @property
    def interactive(self) -> frozenset[str]:
        """Names of the interactive agents."""
        return frozenset(agent.name for agent in self.scenario.agents if agent.task_class is TaskClass.INTERACTIVE)

    def tokens(self) -> Counter[str]:
        """What each of our agents was charged in time."""
        spent = Counter({agent.name: 0 for agent in self.scenario.agents})
        for charge in self.upstream.charges:
            if charge.at <= self.until_s and charge.number is not None:
                spent[charge.agent] += charge.tokens
        return spent

    def outside_tokens(self) -> int:
        """What the other process was charged in time."""
        return sum(charge.tokens for charge in self.upstream.charges if charge.at <= self.until_s and charge.number is None)

    def figures(self) -> Figures:
        """Sum it up."""
        spent, bucket = self.tokens(), self.upstream.bucket
        held = bucket.cap + bucket.rate * self.until_s - self.outside_tokens()
        waits = self._waits()
        return Figures(
            upstream_429=sum(at <= self.until_s for at in self.upstream.refusals),
            client_429=sum(at <= self.until_s for at in self.clients.refusals),
            utilisation=sum(spent.values()) / held,
            jain=jain([tokens for name, tokens in spent.items() if name not in self.interactive]),
            failed_turns=sum(turn.failed for turn in self.clients.turns) + len(self.clients.open),
            wait_p50_s=quantile(waits, 0.5),
            wait_p99_s=quantile(waits, 0.99),
        )

    def done_over_offered(self) -> float:
        """Turns of open-loop agents that ended well in time, over those that were due."""
        done = sum(turn.ended_at is not None and turn.ended_at <= self.until_s and not turn.failed for turn in self.clients.turns)
        return done / self.clients.offered()

    def _waits(self) -> list[float]:
        judged = self.interactive or {agent.name for agent in self.scenario.agents}
        never = self.until_s + DRAIN_S
        ends = ((turn, turn.ended_at if turn.failed else turn.taken_at) for turn in self.clients.turns if turn.agent in judged)
        return [(never if end is None else end) - turn.born for turn, end in ends]


def run(scenario: Scenario, seed: int, until_s: float = HOUR_S, limit_tpm: float = LIMIT_TPM) -> Run:
    """Play one scenario to its end. The same arguments give the same run."""
    timeline = Timeline()
    upstream = Upstream(timeline, limit_tpm, scenario.burst_s)
    clients = ClientStreams(timeline, scenario.agents, seed, until_s)
    policy = scenario.policy(World(timeline, upstream, clients))
    if scenario.outside:
        _plan_outside(scenario.outside, upstream, timeline, seed, until_s)
    clients.start(policy)
    timeline.run(until_s)
    timeline.run(until_s + DRAIN_S, done=lambda: not clients.open)
    return Run(scenario, until_s, upstream, clients, policy)


def jain(values: Sequence[float]) -> float:
    """Jain's index; 1 when nobody got anything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def _plan_outside(outside: Outside, upstream: Upstream, timeline: Timeline, seed: int, until_s: float) -> None:
    draw = random.Random(f"{seed}/{OTHER}")  # noqa: S311 - a simulation, not a secret
    per_s = outside.share * upstream.limit_tpm / 60 / outside.mean_tokens
    at = outside.start * until_s + draw.expovariate(per_s)
    while at < outside.end * until_s:
        tokens = round(outside.mean_tokens * draw.uniform(0.5, 1.5))
        timeline.at(at, partial(upstream.take, OTHER, tokens))
        at += draw.expovariate(per_s)
