"""`nightcrew bench gateway --learned`: how the gateway learns limits that nobody told it. The real one, on real sockets, before a simulated
provider that keeps them; judged from the provider's own account alone. Of the gateway only what it says of outside use is heard.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from nightcrew.plugins.bench.crews import Say, private_place
from nightcrew.plugins.bench.figures import Aim, grid, missed, of_learning
from nightcrew.plugins.bench.gateway import load
from nightcrew.plugins.bench.gateway.measure import agents, gateway
from nightcrew.plugins.sim.account import tokens_of
from nightcrew.plugins.sim.child import Simulator
from supervisor.gateway import status_client
from supervisor.gateway.admission.types import Limits
from supervisor.host.paths import Home
from supervisor.kernel.errors import NightcrewError, ToolFailed, UsageError

# Scoring
# -------


REAL_S = (15.0, 60.0)
"""Outside use is what others took in one of these times before, whichever is more: nobody can see it at once, and it comes in bites."""
SPARE = 0.05
"""Part of a bucket that must be left beside the next request before it is called a stall that this one was not sent."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One of the provider's buckets. `offered`, `drawn` and `outside` are sums since it was made; `/sim/stats` describes them."""

    per_minute: float
    capacity: float
    level: float
    offered: float
    drawn: float
    outside: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the provider and at the gateway."""

    at: float
    """Monotonic seconds."""
    arrived: int
    """Requests that came to the provider so far."""
    running: int
    """Those that it is serving."""
    refused: int
    """Those that it refused because of a limit, so far."""
    buckets: Mapping[str, Bucket]
    """By dimension; empty before the first request."""
    claimed: Mapping[str, float]
    """Outside use a minute, by dimension, as the gateway says; empty when it said nothing."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Who asks. There is always a next request, so whoever is not being served is waiting."""

    clients: int
    request: Mapping[str, float]
    """What one request takes on average, by dimension."""
    binding: str
    """The dimension whose limit is short."""


def figures(samples: Sequence[Sample], demand: Demand, settle_s: float) -> dict[str, Any]:
    """Return the figures of one run; docs/bench.md says how each is reckoned. The first sample is of the moment at which the clients began.
    `settle_s`: how long learning may take before use is judged."""
    began = samples[0].at
    settled = next((sample for sample in samples if sample.at >= began + settle_s), samples[-1])
    part, name, per_minute = max(phantoms(samples), default=(0.0, "", 0.0))
    stall_s, stall_at = max(stalls(samples, demand), default=(0.0, began))
    return {
        "upstream_429": samples[-1].refused - samples[0].refused,
        "utilisation_after_1min": round(utilisation(settled, samples[-1], demand), 4),
        "phantom_outside_per_min": round(per_minute, 2),
        "phantom_outside_part": round(part, 4),
        "phantom_outside_of": name,
        "stalls_s": round(stall_s, 2),
        "stall_at_s": round(stall_at - began, 2),
        "refused_at_s": [round(after.at - began, 1) for before, after in pairwise(samples) if after.refused > before.refused],
    }


def utilisation(first: Sample, last: Sample, demand: Demand) -> float:
    """What the crew was charged over what was free for it between two moments.

    Free is all refill, whether the bucket had room for it or not, less what others took, and what the bucket held at the beginning. What it
    holds at the end was free too, but for as much as it held at the beginning, or one request: less than that nobody can use.
    """
    name = demand.binding
    if name not in first.buckets or name not in last.buckets:
        return 0.0
    begin, end = first.buckets[name], last.buckets[name]
    held = max(0.0, begin.level)
    left = min(max(0.0, end.level), max(held, demand.request[name]))
    free = (end.offered - begin.offered) - (end.outside - begin.outside) + held - left
    return (end.drawn - begin.drawn) / free if free > 0 else 0.0


def phantoms(samples: Sequence[Sample]) -> Iterator[tuple[float, str, float]]:
    """(part of the limit, dimension, per minute) by which the gateway claims more outside use than there was, where it does."""
    places = [0] * len(REAL_S)
    for sample in samples:
        for index, window_s in enumerate(REAL_S):
            while samples[places[index] + 1 : places[index] + 2] and samples[places[index] + 1].at <= sample.at - window_s:
                places[index] += 1
        for name, claimed in sample.claimed.items():
            if name in sample.buckets:
                more = claimed - max(_outside_per_minute(samples[place], sample, name) for place in places)
                if more > 0:
                    yield more / sample.buckets[name].per_minute, name, more


def _outside_per_minute(first: Sample, last: Sample, name: str) -> float:
    before = first.buckets[name].outside if name in first.buckets else 0.0
    elapsed = last.at - first.at
    return (last.buckets[name].outside - before) * 60 / elapsed if elapsed > 0 else 0.0


def stalls(samples: Sequence[Sample], demand: Demand) -> Iterator[tuple[float, float]]:
    """(seconds, since when) of each time in which a request waited, the provider could have served it, and nothing came."""
    since: float | None = None
    for before, after in pairwise(samples):
        if after.arrived > before.arrived or not _could_serve(before, demand) or not _could_serve(after, demand):
            since = None
            continue
        since = before.at if since is None else since
        yield after.at - since, since


def _could_serve(sample: Sample, demand: Demand) -> bool:
    """Whether the provider could serve one more request, with `SPARE` left, when all that it serves now has been paid."""
    if sample.running >= demand.clients:
        return False
    return all(_has_room(bucket, demand.request.get(name, 0.0), sample.running, name) for name, bucket in sample.buckets.items())


def _has_room(bucket: Bucket, request: float, running: int, name: str) -> bool:
    still_to_come = running * request if name == "output" else 0.0  # input is charged at arrival, output as it is produced
    return bucket.level - still_to_come >= min(bucket.capacity, request + SPARE * bucket.capacity)


# Scenarios
# ---------


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
    """How long each scenario runs, from when on its use is judged, and which scenarios run (none named: all)."""

    seconds: float = 150.0
    settle_s: float = 60.0
    seed: int = 1
    scenarios: tuple[str, ...] = ()


QUICK = Options(50.0, 20.0)


def measure(options: Options, under: Path | None, say: Say) -> dict[str, Any]:
    """Return the report; docs/bench.md describes every key.

    Raises UsageError for a name that no scenario has, ToolFailed when a process did not start or the provider was never asked.
    """
    if unknown := set(options.scenarios) - SCENARIOS.keys():
        raise UsageError("no such scenario", on=", ".join(sorted(unknown)), why=f"there are {', '.join(SCENARIOS)}")
    found = {}
    for name in [name for name in SCENARIOS if not options.scenarios or name in options.scenarios]:
        say(f"{name}: {SCENARIOS[name].about}; {options.seconds:g} s, seed {options.seed}")
        with private_place(under) as root:
            found[name] = run(SCENARIOS[name], options, root)
    how = {"seconds": options.seconds, "settle_s": options.settle_s, "seed": options.seed}
    return {"learned": found, **how, "load_average": psutil.getloadavg()[0]}


def run(scenario: Scenario, options: Options, root: Path) -> dict[str, Any]:
    """One scenario, with a provider, a gateway and an account of its own."""
    home = Home(root / "home")
    secrets = agents(home, scenario.agents)
    payload = load.body(BODY_BYTES)
    with Simulator(
        limits=scenario.limits,
        burst_s=scenario.burst_s,
        head_s=scenario.head_s,
        steal=scenario.steal,
        steal_from_s=scenario.steal_from * options.seconds,
        tokens_per_s=TOKENS_PER_S,
        output_mean=OUTPUT_MEAN,
        seed=options.seed,
        keep_last=0,
    ) as provider:
        url = provider.url
        if scenario.remembered != 1:
            _remember(home, url, secrets[0], payload, scenario.remembered)
        with gateway(home, url, {}, limits="") as server:
            samples, tally = asyncio.run(_watch(scenario, options, home, url, server.port, secrets, payload))
    if not samples[-1].buckets:
        raise ToolFailed("the provider was never asked", on=scenario.about)
    request = {"requests": 1.0, "input": float(tokens_of(len(payload))), "output": OUTPUT_MEAN}
    found = figures(samples, Demand(scenario.agents, request, scenario.binding), options.settle_s)
    return {**found, **asdict(tally), "missed": missed(aims_of(scenario), found)}


def _remember(home: Home, url: str, secret: str, payload: bytes, factor: float) -> None:
    """A gateway before this one, which learned another limit."""

    async def ask(port: int) -> None:
        async with aiohttp.ClientSession() as session:
            await _scale(session, url, factor)
            await load.ask(session, f"http://127.0.0.1:{port}", secret, payload, load.Tally())
            await _scale(session, url, 1 / factor)

    with gateway(home, url, {}, limits="") as server:
        asyncio.run(ask(server.port))


async def _scale(session: aiohttp.ClientSession, url: str, factor: float) -> None:
    async with session.post(f"{url}/sim/limits", json={"times": factor}) as answer:
        answer.raise_for_status()


async def _watch(
    scenario: Scenario, options: Options, home: Home, url: str, port: int, secrets: list[str], payload: bytes
) -> tuple[list[Sample], load.Tally]:
    changes = [(part * options.seconds, factor) for part, factor in scenario.changes]
    async with aiohttp.ClientSession() as session:
        samples = [await _look(session, url, home)]
        async with load.asking(f"http://127.0.0.1:{port}", secrets, payload) as tally:
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


def aims_of(scenario: Scenario) -> tuple[Aim, ...]:
    """What we want of each figure."""
    return of_learning(scenario.most_429, phantom="phantom_outside_part")


def table(report: Mapping[str, Any]) -> str:
    """Return the report for people."""
    told = {}
    for name, found in report["learned"].items():
        told[name] = {key: value for key, value in found.items() if isinstance(value, (int, float))}
    wrong = [f"{name}: missed {', '.join(found['missed'])}" for name, found in report["learned"].items() if found["missed"]]
    aims = "aims: 429 none (1 where the limit changes), use >= 0.95, phantom <= 2 % of the limit, no stall > 5 s"
    how = f"{report['seconds']:g} s each, use judged after {report['settle_s']:g} s, seed {report['seed']}"
    return "\n".join([*grid(told, 10), *wrong, aims, how])
