"""Who meets whom in `nightcrew bench fairness`, what we want of the figures, and whether we got it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from statistics import fmean
from typing import Any

from supervisor.bench.aims import Aim
from supervisor.bench.fairness import learned_limits
from supervisor.bench.fairness.baselines import EXPECTED_OUTPUT, MARGIN, MAX_TOKENS, CountAfter, NoGateway, Reserve, Semaphore
from supervisor.bench.fairness.clients import Agent
from supervisor.bench.fairness.nightcrew_policy import Gateway
from supervisor.bench.fairness.runs import HOUR_S, LIMIT_TPM, Figures, Outside, Scenario, run
from supervisor.bench.fairness.simulation import Upstream, World
from supervisor.core.gateway.settings import Limits
from supervisor.core.states import TaskClass

INPUTS = (1_000.0, 12_000.0)
QUICK_S = 600.0
CREW_SIZES = (5, 10, 15, 20)
DIGITS = {"utilisation": 4, "jain": 4}


def _spread(count: int) -> list[float]:
    low, high = INPUTS
    return [low + (high - low) * index / (count - 1) for index in range(count)]


def greedy(count: int = 50, task_class: TaskClass = TaskClass.NORMAL) -> tuple[Agent, ...]:
    """Agents that always have a next turn; their mean inputs are spread evenly."""
    return tuple(Agent(f"agent-{index:02}", mean, task_class=task_class) for index, mean in enumerate(_spread(count)))


def two_hogs() -> tuple[Agent, ...]:
    """Of 50 greedy agents, one in the lower and one in the upper third of the sizes keep 8 requests open each."""
    return tuple(replace(agent, streams=8) if agent.name in ("agent-16", "agent-33") else agent for agent in greedy())


def interactive() -> tuple[Agent, ...]:
    """5 agents with a person before them, beside 45 greedy ones that nobody waits for."""
    people = (Agent(f"person-{index}", mean, pause_s=60.0, task_class=TaskClass.INTERACTIVE) for index, mean in enumerate(_spread(5)))
    return (*people, *greedy(45, TaskClass.BATCH))


def steady(count: int) -> tuple[Agent, ...]:
    """Agents with a turn of 2,000 tokens every 15 s."""
    return tuple(Agent(f"agent-{index:02}", 1_500.0, 500.0, sigma=0.0, every_s=15.0) for index in range(count))


def gateway(world: World[Upstream]) -> Gateway:
    """Ours, with the limit configured."""
    return Gateway(world, limits=Limits(tpm=LIMIT_TPM))


SCENARIOS: Mapping[str, Scenario] = {
    "nightcrew": Scenario(gateway, greedy()),
    "two_hogs": Scenario(gateway, two_hogs()),
    "interactive": Scenario(gateway, interactive()),
    "outside_use": Scenario(gateway, greedy(), Outside()),
    "no_gateway": Scenario(NoGateway, greedy()),
    "count_after": Scenario(CountAfter, greedy()),
    "reserve_max": Scenario(partial(Reserve, output=MAX_TOKENS), greedy()),
    "semaphore": Scenario(Semaphore, greedy()),
    "token_bucket": Scenario(partial(Reserve, output=EXPECTED_OUTPUT, margin=MARGIN), greedy()),
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


def measure(
    seeds: Sequence[int],
    virtual_s: float = HOUR_S,
    say: Callable[[str], None] = lambda _: None,
    scenarios: Mapping[str, Scenario] = SCENARIOS,
    cases: Mapping[str, learned_limits.Case] = learned_limits.CASES,
) -> dict[str, Any]:
    """The report that `nightcrew bench fairness --json` prints; docs/bench.md describes every key."""
    found = {}
    for name, scenario in scenarios.items():
        say(f"scenario {name}")
        found[name] = [run(scenario, seed, virtual_s).figures() for seed in seeds]
    say(f"how many agents are sustained: {', '.join(map(str, CREW_SIZES))}")
    return {
        "scenarios": {name: _mean(figures) for name, figures in found.items()},
        "sustainable": {str(size): round(_sustained(size, seeds, virtual_s), 4) for size in CREW_SIZES},
        "learned": learned_limits.measure(seeds, learned_limits.QUICK_S if virtual_s < HOUR_S else learned_limits.RUN_S, say, cases),
        "aims": list(judge(found)),
        "seeds": list(seeds),
        "virtual_s": virtual_s,
        "limit_tpm": LIMIT_TPM,
    }


def judge(found: Mapping[str, Sequence[Figures]]) -> Iterator[dict[str, Any]]:
    """Each aim with the worst seed's value, and whether that meets it."""
    for aim in AIMS:
        scenario, figure = aim.figure.split(".")
        if scenario in found:
            worst = aim.worst([getattr(figures, figure) for figures in found[scenario]])
            yield {"aim": f"{scenario} {figure} {aim}", "worst": _rounded(figure, worst), "met": aim.met(worst)}


def table(report: Mapping[str, Any]) -> str:
    """The report for people."""
    seeds, names = report["seeds"], [field.name for field in fields(Figures)]
    short = report["virtual_s"] < HOUR_S
    lines = [
        f"{report['virtual_s'] / 60:g} virtual minutes, {report['limit_tpm']:,.0f} tokens a minute, mean of seeds {seeds[0]}-{seeds[-1]}",
        *(["This is too short for the aims, which are of an hour: leave --quick away to judge by them."] if short else []),
        "Rows: the gateway with four crews, from no_gateway on what others do instead, with the first crew; docs/bench.md says more.",
        "",
        f"{'':14}" + "".join(f"{name.replace('_', ' '):>14}" for name in names),
        *(f"{name:14}" + "".join(f"{figures[key]:>14,}" for key in names) for name, figures in report["scenarios"].items()),
        "",
        "2,000 tokens four times a minute, turns done over turns due:",
        *(f"{size:>4} agents {share:>8.3f}" for size, share in report["sustainable"].items()),
        "",
        "Limits that nobody configured, each seed's worst; docs/bench.md says what is in each name:",
        *learned_limits.table(report["learned"]),
        "",
        f"{'aim (of each seed, over an hour)':<40}{'worst seed':>12}",
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
