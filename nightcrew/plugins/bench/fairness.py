"""Runs and scenarios of `bench fairness`, and worlds with limits that the gateway learns."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from nightcrew.plugins.bench.crews import Say
from nightcrew.plugins.bench.fairness_world import (
    LINK_S,
    ROUNDING,
    TOKENS_PER_S,
    AdmissionPolicy,
    Bucket,
    ClientsAgent,
    ClientStreams,
    Gateway,
    NoGateway,
    SimulationUpstream,
    Timeline,
    Turn,
    World,
)
from nightcrew.plugins.bench.figures import Aim, grid, missed, quantile
from supervisor.gateway.admission.types import Level, Observed
from supervisor.kernel.gateway_settings import Limits
from supervisor.kernel.states import TaskClass

# Runs
# ----
# One run: clients, a policy and a provider for some virtual time, and its figures.


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

    policy: Callable[[World[SimulationUpstream]], AdmissionPolicy]
    agents: tuple[ClientsAgent, ...]
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
    upstream: SimulationUpstream
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
    upstream = SimulationUpstream(timeline, limit_tpm, scenario.burst_s)
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


def _plan_outside(outside: Outside, upstream: SimulationUpstream, timeline: Timeline, seed: int, until_s: float) -> None:
    draw = random.Random(f"{seed}/{OTHER}")  # noqa: S311 - a simulation, not a secret
    per_s = outside.share * upstream.limit_tpm / 60 / outside.mean_tokens
    at = outside.start * until_s + draw.expovariate(per_s)
    while at < outside.end * until_s:
        tokens = round(outside.mean_tokens * draw.uniform(0.5, 1.5))
        timeline.at(at, partial(upstream.take, OTHER, tokens))
        at += draw.expovariate(per_s)


# Learned limits
# --------------
# Learned limits: what the gateway makes of a provider whose limits nobody configured, over a matrix of providers, in virtual time.
#
# The provider keeps a bucket each for requests, input and output. A request is taken when a request, its input (or a full bucket,
# when it is larger than that) and one token of output are there; its input is charged at once, its output at its end or while it is
# produced. Its head comes `head_s` later, with the levels of the moment of the charge: tokens rounded to thousands, the time of the
# full refill in whole seconds, as Anthropic says them. A refusal is as late. Somebody else may take a part of every limit, at
# random moments; all of that is served. A limit may change while the crew works. Nothing here is told to the gateway but by those
# heads.


RUN_S = 600.0
LEARNED_LIMITS_QUICK_S = 240.0
WARM_S = 60.0
"""Utilisation is of the time after this."""
PIECE_S = 1.0
"""Output that is charged while it is produced is charged so often."""
TAKEN_EVERY_S = 1.0
"""The other one takes something this often, in the mean."""
STEP_S = 0.25
MINUTE_S = 60.0
HEARD_S = 12.0
"""What others do is heard of this late, at the latest."""
SPARE = 0.05
"""Part of the capacity that must be left beside the largest waiting request before nothing being sent is called a stall."""


@dataclass(frozen=True, slots=True)
class Other:
    """Somebody else with the same key, who takes `share` of each limit from `start_s` on."""

    share: float
    start_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """One provider and one crew. Limits are per minute."""

    limits: Mapping[str, float]
    binding: str
    """The limit that the crew could use up."""
    agents: int = 16
    mean_input: float = 3_000.0
    mean_output: float = 300.0
    burst_s: float = 60.0
    head_s: float = 0.0
    other: Other | None = None
    factor: float = 1.0
    """What every limit is multiplied with at a third of the run."""
    remembered: float | None = None
    """The gateway remembers the limits as so many times what they are; None: it remembers nothing."""
    produced: bool = False
    """Output is charged while it is produced, and not at the end."""


ITPM = {"requests": 1_000.0, "input": 80_000.0, "output": 40_000.0}
RPM = {"requests": 50.0, "input": 2_000_000.0, "output": 400_000.0}
OTPM = {"requests": 1_000.0, "input": 400_000.0, "output": 16_000.0}
_BY_INPUT = Case(ITPM, "input")
_BY_REQUESTS = Case(RPM, "requests", agents=15)
_BY_OUTPUT = Case(OTPM, "output", mean_input=1_000.0, mean_output=800.0)
_WIDE = Case({"requests": 4_000.0, "input": 450_000.0, "output": 90_000.0}, "input", 10, mean_input=14_000.0, head_s=1.5)

CASES: Mapping[str, Case] = {
    "input": _BY_INPUT,
    "input_late": replace(_BY_INPUT, head_s=1.5),
    "input_very_late": replace(_BY_INPUT, head_s=10.0),
    "input_2_agents": replace(_BY_INPUT, agents=2, mean_input=14_000.0, limits=ITPM | {"input": 50_000.0}),
    "input_50_agents": replace(_BY_INPUT, agents=50, head_s=1.5),
    "narrow": replace(_BY_INPUT, limits={"requests": 1_000.0, "input": 50_000.0, "output": 8_000.0}, mean_input=14_000.0, head_s=1.5),
    "wide": _WIDE,
    "wide_small_bucket": replace(_WIDE, burst_s=12.0, agents=16),
    "small_bucket": replace(_BY_INPUT, burst_s=12.0),
    "small_bucket_late": replace(_BY_INPUT, burst_s=12.0, head_s=1.5),
    "small_bucket_very_late": replace(_BY_INPUT, burst_s=12.0, head_s=10.0),
    "requests": _BY_REQUESTS,
    "requests_late": replace(_BY_REQUESTS, head_s=1.5),
    "requests_small_bucket": replace(_BY_REQUESTS, burst_s=12.0, head_s=1.5),
    "requests_50_agents": replace(_BY_REQUESTS, agents=50, head_s=1.5),
    "output": _BY_OUTPUT,
    "output_late": replace(_BY_OUTPUT, head_s=1.5),
    "output_produced": replace(_BY_OUTPUT, head_s=1.5, produced=True),
    "output_small_bucket": replace(_BY_OUTPUT, burst_s=12.0, head_s=1.5),
    "output_50_agents": replace(_BY_OUTPUT, agents=50, head_s=1.5, produced=True),
    "output_long": replace(_BY_OUTPUT, agents=8, mean_output=2_000.0, head_s=1.5, produced=True),
    "output_long_narrow": replace(_BY_OUTPUT, agents=5, mean_output=3_000.0, head_s=1.5, produced=True, limits=OTPM | {"output": 8_000.0}),
    "outside_30": replace(_BY_INPUT, head_s=1.5, other=Other(0.3)),
    "outside_40": replace(_BY_INPUT, head_s=1.5, other=Other(0.4)),
    "outside_30_later": replace(_BY_INPUT, head_s=1.5, other=Other(0.3, 100.0)),
    "outside_40_later": replace(_BY_INPUT, other=Other(0.4, 100.0)),
    "outside_40_later_late": replace(_BY_INPUT, head_s=1.5, other=Other(0.4, 100.0)),
    "outside_40_later_very_late": replace(_BY_INPUT, head_s=10.0, other=Other(0.4, 100.0)),
    "outside_40_later_small_bucket": replace(_BY_INPUT, burst_s=12.0, head_s=1.5, other=Other(0.4, 100.0)),
    "outside_40_later_requests": replace(_BY_REQUESTS, head_s=1.5, other=Other(0.4, 100.0)),
    "outside_40_later_output": replace(_BY_OUTPUT, head_s=1.5, other=Other(0.4, 100.0)),
    "limit_halved": replace(_BY_INPUT, head_s=1.5, factor=0.5),
    "limit_doubled": replace(_BY_INPUT, agents=50, head_s=1.5, factor=2.0),
    "limit_halved_small_bucket": replace(_BY_INPUT, burst_s=12.0, head_s=1.5, factor=0.5),
    "remembered_4_times": replace(_BY_INPUT, head_s=1.5, remembered=4.0),
    "remembered_a_quarter": replace(_BY_INPUT, head_s=1.5, remembered=0.25),
}


@dataclass(frozen=True, slots=True)
class Learned:
    """What is reported of one case."""

    upstream_429: int
    utilisation_after_1min: float
    """What our agents were charged of the binding limit after the first minute, over what it gave in that time less what the other took."""
    phantom_outside_per_min: float
    """The most outside use that was claimed, in the mean of a minute, beyond what others took in the minutes before each claim, as a part
    of the limit."""
    stalls_s: float
    """The longest time between two requests in which the provider had room for the largest that waited, for all output under way and for
    `SPARE`, less the time in which the limit gives what the second one took; from the first head on."""


class Provider:
    """Takes `World.send`'s requests, and keeps account."""

    def __init__(self, timeline: Timeline, case: Case, seed: int, until_s: float) -> None:
        self.case = case
        self.buckets = {name: Bucket(case.burst_s * limit / 60, limit / 60) for name, limit in case.limits.items()}
        self.limits = dict(case.limits)
        self.refusals: list[float] = []
        self.ours: list[tuple[float, float]] = []
        """(when, amount) of the binding limit."""
        self.others: list[tuple[float, float]] = []
        self.unwritten = 0.0
        """Output of requests that were taken, and is not charged yet."""
        self.heard_at: float | None = None
        """When the first head was out."""
        self.sent_at = self.paced_s = 0.0
        """When the newest request came in, and how long the limit takes to give what that takes."""
        self._timeline = timeline
        self._draw = random.Random(f"{seed}/other")  # noqa: S311 - a simulation, not a secret
        self._until = until_s
        if case.other:
            share = case.other.share
            timeline.at(case.other.start_s, lambda: self._others_take(share))
        if case.factor != 1.0:
            timeline.at(until_s / 3, lambda: self._change(case.factor))

    def takes(self, tokens: float) -> bool:
        """Whether it takes a request of so much input now."""
        now = self._timeline.now
        need = {"requests": 1.0, "input": tokens, "output": 1.0}
        return all(bucket.level(now) >= min(need[name], bucket.cap) for name, bucket in self.buckets.items())

    def has_room(self, waiting: Sequence[Turn]) -> bool:
        """Whether it has room for any of them, for all output under way, and `SPARE` beside that."""
        now = self._timeline.now
        written = self.unwritten + max(turn.output for turn in waiting)
        need = {"requests": 1.0, "input": max(turn.input for turn in waiting), "output": written}
        return all(bucket.level(now) >= min(need[name] + SPARE * bucket.cap, bucket.cap) for name, bucket in self.buckets.items())

    def receive(self, turn: Turn, policy: Gateway) -> None:
        """A request comes in."""
        now = self.sent_at = self._timeline.now
        self.paced_s = self._paced_s(turn)
        taken = self.takes(turn.input)
        if taken:
            turn.taken_at = now
            self._charge("requests", 1)
            self._charge("input", turn.input)
            self.unwritten += turn.output
        else:
            self.refusals.append(now)
        head, wait = self._head(), self._wait(turn)
        self._timeline.after(self.case.head_s + LINK_S, lambda: self._answer(turn, policy, head, wait if not taken else None))

    def given(self, since: float, until: float) -> float:
        """What the binding limit gave in that time, at its rates."""
        first, change = self.case.limits[self.case.binding] / 60, self._until / 3
        before = max(0.0, min(until, change) - since)
        return first * (before + self.case.factor * (until - since - before))

    def _paced_s(self, turn: Turn) -> float:
        """How long the binding limit takes to give what the turn takes, beside the other one."""
        amount = {"requests": 1.0, "input": float(turn.input), "output": float(turn.output)}[self.case.binding]
        share = self.case.other.share if self.case.other else 0.0
        return amount / (self.limits[self.case.binding] / 60 * (1 - share))

    def _answer(self, turn: Turn, policy: Gateway, head: Observed, retry_after: int | None) -> None:
        self.heard_at = self.heard_at or self._timeline.now
        if retry_after is not None:
            policy.refused(turn, retry_after, head)
            return
        policy.responded(turn, head)
        made_s = turn.output / TOKENS_PER_S
        self._timeline.after(turn.first_byte_s, lambda: policy.began(turn, None))
        pieces = max(1, math.ceil(made_s / PIECE_S)) if self.case.produced else 1
        for number in range(1, pieces + 1):
            self._timeline.after(turn.first_byte_s + made_s * number / pieces, lambda: self._write(turn.output / pieces))
        self._timeline.after(turn.first_byte_s + made_s + LINK_S, lambda: policy.ended(turn))

    def _write(self, tokens: float) -> None:
        self.unwritten -= tokens
        self._charge("output", tokens)

    def _charge(self, name: str, amount: float, *, ours: bool = True) -> None:
        self.buckets[name].spend(amount, self._timeline.now)
        if name == self.case.binding:
            (self.ours if ours else self.others).append((self._timeline.now, amount))

    def _others_take(self, share: float) -> None:
        part = share * TAKEN_EVERY_S / 60 * self._draw.uniform(0.5, 1.5)
        for name, limit in self.limits.items():
            self._charge(name, part * limit, ours=False)
        self._timeline.after(self._draw.expovariate(1 / TAKEN_EVERY_S), lambda: self._others_take(share))

    def _change(self, factor: float) -> None:
        now = self._timeline.now
        for name, bucket in self.buckets.items():
            bucket.level(now)
            self.limits[name] *= factor
            bucket.cap, bucket.rate = bucket.cap * factor, bucket.rate * factor

    def _wait(self, turn: Turn) -> int:
        now = self._timeline.now
        need = {"requests": 1.0, "input": float(turn.input), "output": 1.0}
        return max(1, math.ceil(max(bucket.wait_for(need[name], now) for name, bucket in self.buckets.items())))

    def _head(self) -> Observed:
        now = self._timeline.now
        sent = now + self.case.head_s
        levels = {}
        for name, bucket in self.buckets.items():
            step = 1 if name == "requests" else ROUNDING
            remaining = (
                max(0.0, float(round(bucket.level(now) / step) * step)) if step > 1 else float(math.floor(max(0.0, bucket.level(now))))
            )
            full_at = now + (bucket.cap - bucket.level(now)) / bucket.rate
            levels[name] = Level(self.limits[name], remaining, max(0.0, float(math.ceil(full_at) - math.floor(sent))))
        return Observed(levels, rounding=ROUNDING)


class Judge:
    """Looks at a run every `STEP_S`."""

    def __init__(self, timeline: Timeline, provider: Provider, policy: Gateway) -> None:
        self.stall_s = 0.0
        self._beyond: defaultdict[int, list[float]] = defaultdict(list)
        """What was claimed of the binding limit beyond what others took, per minute, by minute of the run."""
        self._others: deque[tuple[float, float]] = deque()
        self._read = 0
        self._timeline, self._provider, self._policy = timeline, provider, policy
        self._sent = self._able_s = 0.0
        """When a request was last seen to be sent, and how long one could have been since."""
        timeline.after(STEP_S, self._look)

    def phantom(self) -> float:
        """See `Learned`."""
        limit = self._provider.limits[self._provider.case.binding]
        return max((sum(beyond) / len(beyond) for beyond in self._beyond.values()), default=0.0) / limit

    def _real(self, now: float) -> float:
        """What others took in a minute: the last one, or the one before the last answers could be heard, whichever is more."""
        while self._others and self._others[0][0] < now - MINUTE_S - HEARD_S:
            self._others.popleft()
        while self._read < len(self._provider.others):
            self._others.append(self._provider.others[self._read])
            self._read += 1
        minutes = ((now - MINUTE_S, now), (now - MINUTE_S - HEARD_S, now - HEARD_S))
        return max(sum(amount for at, amount in self._others if first <= at <= last) for first, last in minutes)

    def _look(self) -> None:
        now, provider = self._timeline.now, self._provider
        waiting = self._policy.waiting()
        if self._sent != provider.sent_at:
            self.stall_s = max(self.stall_s, self._able_s - provider.paced_s)
            self._sent, self._able_s = provider.sent_at, 0.0
        if waiting and provider.heard_at is not None and provider.has_room(waiting):
            self._able_s += STEP_S
        beyond = self._policy.outside(provider.case.binding) - self._real(now)
        self._beyond[int(now // MINUTE_S)].append(beyond)
        self._timeline.after(STEP_S, self._look)


def aims_of(case: Case) -> tuple[Aim, ...]:
    """Return the aim of each figure."""
    return (
        Aim("upstream_429", 0 if case.other is None else 1),
        Aim("utilisation_after_1min", 0.95, at_least=True),
        Aim("phantom_outside_per_min", 0.02),
        Aim("stalls_s", 5.0),
    )


def run_learned_limits(case: Case, seed: int, until_s: float = RUN_S) -> Learned:
    """Play one case. The same arguments give the same figures."""
    timeline = Timeline()
    provider = Provider(timeline, case, seed, until_s)
    crew = tuple(ClientsAgent(f"agent-{index:02}", case.mean_input, case.mean_output) for index in range(case.agents))
    clients = ClientStreams(timeline, crew, seed, until_s)
    policy = Gateway(World(timeline, provider, clients), limits=None)
    if case.remembered is not None:
        policy.traffic.recall(_memory(case, case.remembered), 0.0)
    judge = Judge(timeline, provider, policy)
    clients.start(policy)
    timeline.run(until_s)
    taken = sum(amount for at, amount in provider.ours if at > WARM_S)
    free = provider.given(WARM_S, until_s) - sum(amount for at, amount in provider.others if at > WARM_S)
    return Learned(len(provider.refusals), taken / free, judge.phantom(), judge.stall_s)


def measure_learned_limits(
    seeds: Sequence[int], until_s: float = RUN_S, say: Say = lambda _: None, cases: Mapping[str, Case] = CASES
) -> dict[str, dict[str, Any]]:
    """{case: the worst figure of all seeds, and which aims that misses}."""
    found = {}
    for name, case in cases.items():
        say(f"learned limits: {name}")
        found[name] = _worst(case, [run_learned_limits(case, seed, until_s) for seed in seeds])
    return found


def _worst(case: Case, found: Sequence[Learned]) -> dict[str, Any]:
    figures = {
        field.name: (min if field.name.startswith("utilisation") else max)(asdict(one)[field.name] for one in found)
        for field in fields(Learned)
    }
    return {name: round(value, 4) for name, value in figures.items()} | {"missed": missed(aims_of(case), figures)}


def _memory(case: Case, factor: float) -> dict[str, Any]:
    limits = {name: [factor * limit, factor * limit / 60 * case.burst_s] for name, limit in case.limits.items()}
    lane = {"account": "provider", "api": "anthropic", "model_class": "opus-4", "long_context": False}
    return {"pools": [{**lane, "margin": 0.985, "limits": limits}]}


# Scenarios
# ---------
# Who meets whom in `nightcrew bench fairness`, what we want of the figures, and whether we got it.


INPUTS = (1_000.0, 12_000.0)
CREW_SIZES = (5, 10, 15, 20)
DIGITS = {"utilisation": 4, "jain": 4}


def _spread(count: int) -> list[float]:
    low, high = INPUTS
    return [low + (high - low) * index / (count - 1) for index in range(count)]


def greedy(count: int = 50, task_class: TaskClass = TaskClass.NORMAL) -> tuple[ClientsAgent, ...]:
    """Agents that always have a next turn; their mean inputs are spread evenly."""
    return tuple(ClientsAgent(f"agent-{index:02}", mean, task_class=task_class) for index, mean in enumerate(_spread(count)))


def two_hogs() -> tuple[ClientsAgent, ...]:
    """Of 50 greedy agents, one in the lower and one in the upper third of the sizes keep 8 requests open each."""
    return tuple(replace(agent, streams=8) if agent.name in ("agent-16", "agent-33") else agent for agent in greedy())


def interactive() -> tuple[ClientsAgent, ...]:
    """5 agents with a person before them, beside 45 greedy ones that nobody waits for."""
    people = (
        ClientsAgent(f"person-{index}", mean, pause_s=60.0, task_class=TaskClass.INTERACTIVE) for index, mean in enumerate(_spread(5))
    )
    return (*people, *greedy(45, TaskClass.BATCH))


def steady(count: int) -> tuple[ClientsAgent, ...]:
    """Agents with a turn of 2,000 tokens every 15 s."""
    return tuple(ClientsAgent(f"agent-{index:02}", 1_500.0, 500.0, sigma=0.0, every_s=15.0) for index in range(count))


def gateway(world: World[SimulationUpstream]) -> Gateway:
    """Ours, with the limit configured."""
    return Gateway(world, limits=Limits(tpm=LIMIT_TPM))


SCENARIOS: Mapping[str, Scenario] = {
    "nightcrew": Scenario(gateway, greedy()),
    "two_hogs": Scenario(gateway, two_hogs()),
    "interactive": Scenario(gateway, interactive()),
    "outside_use": Scenario(gateway, greedy(), Outside()),
    "no_gateway": Scenario(NoGateway, greedy()),
}


AIMS = (
    Aim("nightcrew.upstream_429", 0),
    Aim("nightcrew.utilisation", 0.98, at_least=True),
    Aim("nightcrew.jain", 0.99, at_least=True),
    Aim("nightcrew.failed_turns", 0),
    Aim("two_hogs.jain", 0.99, at_least=True),
    Aim("interactive.wait_p99_s", 15),
    Aim("outside_use.upstream_429", 2),
)
"""What we want for the full hour and of each seed by itself."""


@dataclass(frozen=True, slots=True)
class Options:
    """How much is simulated."""

    seeds: int = 3
    virtual_s: float = HOUR_S


QUICK = Options(virtual_s=600.0)


def measure(options: Options, root: Path, say: Say) -> dict[str, Any]:  # noqa: ARG001 - nothing is written
    """Return the figures; docs/bench.md describes every key."""
    return measure_scenarios(range(1, options.seeds + 1), options.virtual_s, say)


def measure_scenarios(
    seeds: Sequence[int],
    virtual_s: float = HOUR_S,
    say: Say = lambda _: None,
    scenarios: Mapping[str, Scenario] = SCENARIOS,
    cases: Mapping[str, Case] = CASES,
) -> dict[str, Any]:
    """Return the report of these scenarios and cases."""
    found = {}
    for name, scenario in scenarios.items():
        say(f"scenario {name}")
        found[name] = [run(scenario, seed, virtual_s).figures() for seed in seeds]
    say(f"how many agents are sustained: {', '.join(map(str, CREW_SIZES))}")
    return {
        "scenarios": {name: _mean(figures) for name, figures in found.items()},
        "sustainable": {str(size): round(_sustained(size, seeds, virtual_s), 4) for size in CREW_SIZES},
        "learned": measure_learned_limits(seeds, LEARNED_LIMITS_QUICK_S if virtual_s < HOUR_S else RUN_S, say, cases),
        "aims": list(judge(found)),
        "seeds": list(seeds),
        "virtual_s": virtual_s,
        "limit_tpm": LIMIT_TPM,
    }


def judge(found: Mapping[str, Sequence[Figures]]) -> Iterator[dict[str, Any]]:
    """Yield each aim with the worst seed's value, and whether that meets it."""
    for aim in AIMS:
        scenario, figure = aim.figure.split(".")
        if scenario in found:
            values = [getattr(figures, figure) for figures in found[scenario]]
            worst = min(values) if aim.at_least else max(values)
            yield {"aim": f"{scenario} {figure} {aim}", "worst": _rounded(figure, worst), "met": aim.met(worst)}


def table(report: Mapping[str, Any]) -> str:
    """Return the report for people."""
    short = report["virtual_s"] < HOUR_S
    learned = {name: figures | {"missed": ", ".join(figures["missed"])} for name, figures in report["learned"].items()}
    lines = [
        f"{report['virtual_s'] / 60:g} virtual minutes, {report['limit_tpm']:,.0f} tokens a minute, mean of seeds {report['seeds']}",
        *(["This is too short for the aims, which are of an hour: leave --quick away to judge by them."] if short else []),
        "Rows: the gateway with four crews; no_gateway is the first crew without it. docs/bench.md says more.",
        *grid(report["scenarios"]),
        f"2,000 tokens four times a minute, turns done over turns due, by agents: {report['sustainable']}",
        "Limits that nobody configured, each seed's worst; docs/bench.md says what is in each name:",
        *grid(learned),
        "Aims, of each seed, over an hour:",
        *(f"{aim['aim']:<40}{aim['worst']:>12,}  {'met' if aim['met'] else 'MISSED'}" for aim in report["aims"]),
    ]
    return "\n".join(lines)


def _sustained(size: int, seeds: Sequence[int], virtual_s: float) -> float:
    return fmean(run(Scenario(gateway, steady(size)), seed, virtual_s).done_over_offered() for seed in seeds)


def _mean(figures: Sequence[Figures]) -> dict[str, float]:
    names = asdict(figures[0])
    return {name: _rounded(name, fmean(getattr(one, name) for one in figures)) for name in names}


def _rounded(name: str, value: float) -> float:
    return round(value, DIGITS.get(name, 1))
