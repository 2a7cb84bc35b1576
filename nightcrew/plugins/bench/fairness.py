"""Runs and scenarios of `bench fairness`, and worlds with limits that the gateway learns."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from nightcrew.plugins.bench.crews import Say
from nightcrew.plugins.bench.fairness_world import (
    OTHER,
    AdmissionPolicy,
    Case,
    Charge,
    ClientsAgent,
    ClientStreams,
    Gateway,
    NoGateway,
    Other,
    Provider,
    Timeline,
    World,
)
from nightcrew.plugins.bench.figures import Aim, grid, missed, quantile
from supervisor.kernel.gateway_settings import Limits
from supervisor.kernel.states import TaskClass

# Runs
# ----
# One run: clients, a policy and a provider for some virtual time, and its figures.


LIMIT_TPM = 80_000.0
HOUR_S = 3600.0
DRAIN_S = 7200.0
"""Turns that are open at the end may take so long. Figures are of the time before; a turn that has not ended by then has failed."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Agents, a policy, and whether somebody else spends from the same bucket."""

    policy: Callable[[World], AdmissionPolicy]
    agents: tuple[ClientsAgent, ...]
    outside: float = 0.0
    """Share of the limit that another process with the same key takes in the middle third of the run, in requests of some 2,000 tokens."""
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
    upstream: Provider
    clients: ClientStreams
    policy: AdmissionPolicy

    @property
    def interactive(self) -> frozenset[str]:
        """Names of the interactive agents."""
        return frozenset(agent.name for agent in self.scenario.agents if agent.task_class is TaskClass.INTERACTIVE)

    def tokens(self) -> dict[str, float]:
        """What each of our agents was charged in time."""
        spent = {agent.name: 0.0 for agent in self.scenario.agents}
        for charge in self.upstream.charges:
            if charge.at <= self.until_s and charge.number is not None:
                spent[charge.agent] += charge.tokens
        return spent

    def outside_tokens(self) -> float:
        """What the other process was charged in time."""
        return sum(charge.tokens for charge in self.upstream.charges if charge.at <= self.until_s and charge.number is None)

    def figures(self) -> Figures:
        """Sum it up."""
        spent, bucket = self.tokens(), self.upstream.buckets["tokens"]
        held = bucket.capacity + bucket.per_minute / 60 * self.until_s - self.outside_tokens()
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
    other = Other(scenario.outside, until_s / 3, until_s * 2 / 3, every_s=5.0, pauses=True, name=OTHER) if scenario.outside else None
    case = Case({"tokens": limit_tpm}, "tokens", burst_s=scenario.burst_s, head_s=None, other=other)
    upstream = Provider(timeline, case, seed, until_s)
    clients = ClientStreams(timeline, scenario.agents, seed, until_s)
    policy = scenario.policy(World(timeline, upstream, clients))
    clients.start(policy)
    timeline.run(until_s)
    timeline.run(until_s + DRAIN_S, done=lambda: not clients.open)
    return Run(scenario, until_s, upstream, clients, policy)


def jain(values: Sequence[float]) -> float:
    """Jain's index; 1 when nobody got anything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


# Learned limits
# --------------
# What the gateway makes of a provider whose limits nobody configured, over a matrix of providers, in virtual time. Nothing is told to the
# gateway but by the heads of answers.


RUN_S = 600.0
LEARNED_LIMITS_QUICK_S = 240.0
WARM_S = 60.0
"""Utilisation is of the time after this."""
STEP_S = 0.25
MINUTE_S = 60.0
HEARD_S = 12.0
"""What others do is heard of this late, at the latest."""
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


class Judge:
    """Looks at a run every `STEP_S`."""

    def __init__(self, timeline: Timeline, provider: Provider, policy: Gateway) -> None:
        self.stall_s = 0.0
        self._beyond: defaultdict[int, list[float]] = defaultdict(list)
        """What was claimed of the binding limit beyond what others took, per minute, by minute of the run."""
        self._others: deque[Charge] = deque()
        self._read = 0
        self._timeline, self._provider, self._policy = timeline, provider, policy
        self._sent = self._able_s = 0.0
        """When a request was last seen to be sent, and how long one could have been since."""
        timeline.after(STEP_S, self._look)

    def phantom(self) -> float:
        """See `Learned`."""
        limit = self._provider.buckets[self._provider.case.binding].per_minute
        return max((sum(beyond) / len(beyond) for beyond in self._beyond.values()), default=0.0) / limit

    def _real(self, now: float) -> float:
        """What others took in a minute: the last one, or the one before the last answers could be heard, whichever is more."""
        while self._others and self._others[0].at < now - MINUTE_S - HEARD_S:
            self._others.popleft()
        self._others += [charge for charge in self._provider.charges[self._read :] if charge.number is None]
        self._read = len(self._provider.charges)
        minutes = ((now - MINUTE_S, now), (now - MINUTE_S - HEARD_S, now - HEARD_S))
        return max(sum(charge.tokens for charge in self._others if first <= charge.at <= last) for first, last in minutes)

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
    late = [charge for charge in provider.charges if charge.at > WARM_S]
    taken = sum(charge.tokens for charge in late if charge.number is not None)
    free = provider.given(WARM_S, until_s) - sum(charge.tokens for charge in late if charge.number is None)
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


def gateway(world: World) -> Gateway:
    """Ours, with the limit configured."""
    return Gateway(world, limits=Limits(tpm=LIMIT_TPM))


SCENARIOS: Mapping[str, Scenario] = {
    "nightcrew": Scenario(gateway, greedy()),
    "two_hogs": Scenario(gateway, two_hogs()),
    "interactive": Scenario(gateway, interactive()),
    "outside_use": Scenario(gateway, greedy(), outside=0.3),
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
