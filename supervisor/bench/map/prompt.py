"""One-shot prompts of a map against a limit of tokens: as many calls as workers make, through the real gateway, to the simulated provider.

The calls are those of a map's workers (`agents.mapper.prompting`), with the tokens of as many attempts; what they took, and what of the
limit was used, is the provider's own account.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from agents.mapper.prompting import Answered, Prompter, api
from supervisor.bench.gateway import workspace
from supervisor.bench.gateway.learned_limits import sample
from supervisor.bench.gateway.scoring import Sample
from supervisor.bench.workspace import private_place
from supervisor.core.gateway.settings import Limits
from supervisor.core.map_prompt import PromptTerms
from supervisor.gateway.sim.child import Simulator
from supervisor.host.paths import Home

LIMITS = Limits(rpm=4000, itpm=450_000, otpm=90_000)
"""Those of the figures for the gateway, but for more requests: prompts of one shot are short."""
OUTPUT_MEAN, TOKENS_PER_S = 40.0, 80.0
LOOK_S = 0.25
ANSWER_TOKENS = 400


@dataclass(frozen=True, slots=True)
class Options:
    """How much is asked. `size`: bytes of an item's content; 2,400 are some 700 tokens."""

    calls: int = 2000
    workers: int = 8
    at_once: int = 8
    """Calls of each worker."""
    size: int = 2400
    seed: int = 1


def measure(options: Options, under: Path | None = None) -> dict[str, Any]:
    """The report's `prompt`. Raises ToolFailed when a process did not start."""
    with private_place(under) as root:
        home = Home(root / "home")
        tokens = workspace.agents(home, options.workers)
        told = f"rpm = {LIMITS.rpm}\nitpm = {LIMITS.itpm}\notpm = {LIMITS.otpm}"
        with (
            Simulator(limits=LIMITS, tokens_per_s=TOKENS_PER_S, output_mean=OUTPUT_MEAN, seed=options.seed, keep_last=0) as provider,
            workspace.gateway(home, provider.url, {}, limits=told) as server,
        ):
            began = time.perf_counter()
            answers, samples = asyncio.run(_run(options, provider.url, f"http://127.0.0.1:{server.port}", tokens))
            wall_s = time.perf_counter() - began
            tally = provider.tally()
    return _report(options, answers, samples, wall_s, sum(tally.refused.values()))


def _report(options: Options, answers: Sequence[Answered], samples: Sequence[Sample], wall_s: float, refused: int) -> dict[str, Any]:
    used = [answer.usage for answer in answers]
    one_call = sum(one.limited_input for one in used) / len(used)
    return {
        "calls": sum(answer.asks for answer in answers),
        "tokens": sum(one.total for one in used),
        "upstream_429": refused,
        "failed": sum(1 for answer in answers if answer.error),
        "utilisation": round(utilisation(samples, options.calls, one_call), 4),
        "wall_s": round(wall_s, 1),
        "itpm": LIMITS.itpm,
        "workers": options.workers,
        "at_once": options.at_once,
    }


def utilisation(samples: Sequence[Sample], calls: int, one_call: float) -> float:
    """Input tokens that were taken over those that the provider had for us while calls waited: its full bucket at the beginning and all
    refill until the last call was sent. What is left then was free too, but for less than `one_call` takes."""
    known = [one for one in samples if "input" in one.buckets and one.arrived < calls]
    if not known:
        return 0.0
    end = known[-1].buckets["input"]
    free = end.capacity + end.offered - min(max(0.0, end.level), one_call)
    return end.drawn / free if free > 0 else 0.0


async def _run(options: Options, provider: str, gateway: str, tokens: Sequence[str]) -> tuple[list[Answered], list[Sample]]:
    waiting = iter(range(options.calls))
    samples: list[Sample] = []
    async with aiohttp.ClientSession() as session:
        looks = asyncio.create_task(_look_on(session, provider, samples))
        try:
            found = await asyncio.gather(*(_worker(options, gateway, token, waiting) for token in tokens))
        finally:
            looks.cancel()
            with suppress(asyncio.CancelledError):
                await looks
    return [answer for answers in found for answer in answers], samples


async def _worker(options: Options, gateway: str, token: str, waiting: Any) -> list[Answered]:
    caller = api({"ANTHROPIC_BASE_URL": gateway, "ANTHROPIC_AUTH_TOKEN": token})
    prompter = Prompter(PromptTerms("Say in one word what this is about: {content}", max_tokens=ANSWER_TOKENS, asks=1), caller)
    found: list[Answered] = []

    async def go() -> None:
        for number in waiting:
            content = f"Item {number}: " + "def area(width, height): return width * height\n" * (options.size // 47)
            found.append(await prompter.ask({"content": content}))

    try:
        await asyncio.gather(*(go() for _ in range(options.at_once)))
    finally:
        await caller.close()
    return found


async def _look_on(session: aiohttp.ClientSession, url: str, samples: list[Sample]) -> None:
    while True:
        async with session.get(f"{url}/sim/stats") as answer:
            samples.append(sample(await answer.json(), {}))
        await asyncio.sleep(LOOK_S)


def line(found: dict[str, Any]) -> str:
    """For people."""
    asked = f"{found['calls']} one-shot prompts of {found['workers']} workers in {found['wall_s']} s: {found['failed']} failed"
    return f"{asked}, {found['upstream_429']} refused by the provider (aim: 0), {found['utilisation']:.1%} of its limit used (aim: 97 %)"
