"""How the gateway learns limits that nobody told it: the real one, on real sockets, before a simulated provider that keeps them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from supervisor.bench.aims import Aim, missed, of_learning
from supervisor.bench.gateway import clients, load, scoring, workspace
from supervisor.bench.gateway.scoring import Bucket, Demand, Figures, Sample
from supervisor.bench.workspace import private_place
from supervisor.core.errors import NightcrewError, ToolFailed, UsageError
from supervisor.core.gateway.settings import Limits
from supervisor.gateway import status_client
from supervisor.gateway.sim.child import Simulator
from supervisor.gateway.sim.counting import tokens_of
from supervisor.host.paths import Home

BODY_BYTES = 50_000
OUTPUT_MEAN = 200.0
TOKENS_PER_S = 80.0
LOOK_S = 0.25
"""Between two looks at the provider: so exact are the figures of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Who asks for what, and how the provider limits it. Seconds of a full run; parts are of the run's length."""

    about: str
    agents: int
    limits: Limits
    binding: str
    burst_s: float = 60.0
    head_s: float = 1.5
    steal: float = 0.0
    steal_from: float = 0.0
    """Part of the run after which others begin."""
    remembered: float = 1.0
    """The gateway remembers limits so many times as high, of a run before this one."""
    changes: tuple[tuple[float, float], ...] = ()
    """(part of the run, factor by which all limits change then)."""
    most_429: int = 0
    """Aim. One where the limit changes or others come: until a refusal or a late head says so, nobody can know of it."""


TIER = Limits(rpm=1000, itpm=450_000, otpm=90_000)
SCENARIOS: Mapping[str, Scenario] = {
    "cold_50k": Scenario(about="16 agents, 50,000 ITPM", agents=16, limits=Limits(1000, 50_000, 8_000), binding="input"),
    "cold_450k": Scenario(about="10 agents, 450,000 ITPM", agents=10, limits=TIER, binding="input"),
    "rpm_50": Scenario(about="15 agents, 50 RPM", agents=15, limits=Limits(50, 2_000_000, 400_000), binding="requests"),
    "burst_12s": Scenario(about="16 agents, 450,000 ITPM, a bucket of 12 s", agents=16, limits=TIER, binding="input", burst_s=12.0),
    "outside_40": Scenario(
        about="16 agents, 450,000 ITPM, others take 40 % after a third",
        agents=16,
        limits=TIER,
        binding="input",
        steal=0.4,
        steal_from=1 / 3,
        most_429=1,
    ),
    "changed": Scenario(
        about="16 agents, 100,000 ITPM, remembered as twice that; halved, then doubled again",
        agents=16,
        limits=Limits(1000, 100_000, 20_000),
        binding="input",
        remembered=2.0,
        changes=((0.5, 0.5), (0.75, 2.0)),
        most_429=1,
    ),
}


@dataclass(frozen=True, slots=True)
class Options:
    """How long each scenario runs, and from when on its use is judged."""

    seconds: float = 150.0
    settle_s: float = 60.0
    seed: int = 1


QUICK_S, QUICK_SETTLE_S = 50.0, 20.0


def measure(options: Options, names: Collection[str], under: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """The report of `nightcrew bench gateway --learned`, of the scenarios `names` or, when there are none, of all.

    Raises UsageError for a name that no scenario has, ToolFailed when a process did not start or the provider was never asked.
    """
    if unknown := set(names) - SCENARIOS.keys():
        raise UsageError("no such scenario", on=", ".join(sorted(unknown)), why=f"there are {', '.join(SCENARIOS)}")
    found = {}
    for name in [name for name in SCENARIOS if not names or name in names]:
        say(f"{name}: {SCENARIOS[name].about}; {options.seconds:g} s, seed {options.seed}")
        with private_place(under) as root:
            found[name] = run(SCENARIOS[name], options, root)
    return {"learned": found, **asdict(options), "load_average": psutil.getloadavg()[0]}


def run(scenario: Scenario, options: Options, root: Path) -> dict[str, Any]:
    """One scenario, with a provider, a gateway and an account of its own."""
    home = Home(root / "home")
    secrets = workspace.agents(home, scenario.agents)
    payload = load.body(BODY_BYTES)
    with _provider(scenario, options) as provider:
        url = provider.url
        if scenario.remembered != 1:
            _remember(home, url, secrets[0], payload, scenario.remembered)
        with workspace.gateway(home, url, {}, limits="") as server:
            samples, tally = asyncio.run(_watch(scenario, options, home, url, server.port, secrets, payload))
    if not samples[-1].buckets:
        raise ToolFailed("the provider was never asked", on=scenario.about)
    request = {"requests": 1.0, "input": float(tokens_of(len(payload))), "output": OUTPUT_MEAN}
    found = scoring.figures(samples, Demand(scenario.agents, request, scenario.binding), options.settle_s)
    return {**_rounded(found), **asdict(tally), "missed": missed(aims_of(scenario), asdict(found))}


def _provider(scenario: Scenario, options: Options) -> Simulator:
    return Simulator(
        limits=scenario.limits,
        burst_s=scenario.burst_s,
        head_s=scenario.head_s,
        steal=scenario.steal,
        steal_from_s=scenario.steal_from * options.seconds,
        tokens_per_s=TOKENS_PER_S,
        output_mean=OUTPUT_MEAN,
        seed=options.seed,
        keep_last=0,
    )


def _remember(home: Home, url: str, secret: str, payload: bytes, factor: float) -> None:
    """A gateway before this one, which learned another limit."""

    async def ask(port: int) -> None:
        async with aiohttp.ClientSession() as session:
            await _scale(session, url, factor)
            await clients.ask(session, f"http://127.0.0.1:{port}", secret, payload, clients.Tally())
            await _scale(session, url, 1 / factor)

    with workspace.gateway(home, url, {}, limits="") as server:
        asyncio.run(ask(server.port))


async def _scale(session: aiohttp.ClientSession, url: str, factor: float) -> None:
    async with session.post(f"{url}/sim/limits", json={"times": factor}) as answer:
        answer.raise_for_status()


async def _watch(
    scenario: Scenario, options: Options, home: Home, url: str, port: int, secrets: list[str], payload: bytes
) -> tuple[list[Sample], clients.Tally]:
    changes = [(part * options.seconds, factor) for part, factor in scenario.changes]
    async with aiohttp.ClientSession() as session:
        samples = [await _look(session, url, home)]
        async with clients.asking(f"http://127.0.0.1:{port}", secrets, payload) as tally:
            began = time.monotonic()
            while (gone := time.monotonic() - began) < options.seconds:
                if changes and gone >= changes[0][0]:
                    await _scale(session, url, changes.pop(0)[1])
                await asyncio.sleep(LOOK_S)
                samples.append(await _look(session, url, home))
    return samples, tally


async def _look(session: aiohttp.ClientSession, url: str, home: Home) -> Sample:
    claimed = await asyncio.to_thread(_claimed, home)
    async with session.get(f"{url}/sim/stats") as answer:
        return sample(await answer.json(), claimed)


def _claimed(home: Home) -> dict[str, float]:
    """By dimension, the most that any pool says. A gateway that is too busy to answer says nothing."""
    try:
        shape = status_client.ask(home, status_client.NOW)
    except NightcrewError:
        return {}
    claims: dict[str, float] = {}
    for pool in shape["pools"]:
        for dimension in pool["dimensions"]:
            claims[dimension["name"]] = max(dimension["outside_per_minute"], claims.get(dimension["name"], 0.0))
    return claims


def sample(stats: Mapping[str, Any], claimed: Mapping[str, float]) -> Sample:
    """What `/sim/stats` says, where one key asks for one class of models."""
    (tally,) = stats["tallies"] or [{"asked": 0, "answered": 0, "cancelled": 0, "cut": 0, "refused": {}}]
    refused = tally["refused"]
    ended = tally["answered"] + tally["cancelled"] + tally["cut"] + sum(refused.values())
    buckets = {name: Bucket(**told) for account in stats["accounts"] for name, told in account["buckets"].items()}
    limited = sum(count for why, count in refused.items() if why.startswith("limit:"))
    return Sample(stats["at"], tally["asked"], tally["asked"] - ended, limited, buckets, claimed)


# The report -----------------------------------------------------------------------------------------------------------------------


def aims_of(scenario: Scenario) -> tuple[Aim, ...]:
    """What we want of each figure."""
    return of_learning(scenario.most_429, phantom="phantom_outside_part")


def table(report: Mapping[str, Any]) -> str:
    """The report for people."""
    lines = [f"{'':14}{'429':>10}{'use':>10}{'phantom':>10}{'stall s':>10}{'answers':>10}  aims: 429 none (1 where the limit changes),"]
    lines[0] += " use >= 0.95, phantom <= 2 % of the limit, no stall > 5 s"
    for name, found in report["learned"].items():
        shown = (
            found["upstream_429"],
            f"{found['utilisation_after_1min']:.3f}",
            f"{found['phantom_outside_part']:.1%}",
            f"{found['stalls_s']:.1f}",
            found["answered"],
        )
        wrong = f"  MISSED: {', '.join(found['missed'])}" if found["missed"] else "  met"
        lines.append(f"{name:14}" + "".join(f"{value:>10}" for value in shown) + wrong)
    lines.append(f"{report['seconds']:g} s each, use judged after {report['settle_s']:g} s, seed {report['seed']}")
    return "\n".join(lines)


def _rounded(found: Figures) -> dict[str, Any]:
    shape = asdict(found)
    digits = {"utilisation_after_1min": 4, "phantom_outside_part": 4}
    for name, value in shape.items():
        if isinstance(value, float):
            shape[name] = round(value, digits.get(name, 2))
    shape["refused_at_s"] = [round(at, 1) for at in found.refused_at_s]
    return shape
