"""`nightcrew bench local`: what an inference engine of one's own gives, what the gateway before it costs, and whether
`nightcrew capacity --what-if` predicts it. The engine speaks the Messages API, as llama.cpp, vLLM and SGLang do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import psutil

from nightcrew.plugins.bench import gateway
from nightcrew.plugins.bench.crews import Say, cpu_s
from nightcrew.plugins.bench.figures import median_ms, milli
from supervisor.features.capacity.rules import measured
from supervisor.gateway import engines
from supervisor.host import files
from supervisor.host.paths import Home, home
from supervisor.kernel import codec
from supervisor.kernel.engines import EngineRecord, EngineState
from supervisor.kernel.errors import ToolFailed, UsageError

_UNSEEN = "the engine's process or its /slots is not seen from here"
_PATIENCE = aiohttp.ClientTimeout(total=600)
_SETTINGS = """
[engine.bench]
kind = "{kind}"
url = "{url}"
model = "none"
models = ["{model}"]
slots = {slots}
context = 1000000
[cache]
"""


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    url: str = ""
    """Where the engine answers."""
    engine: str = ""
    """Or its name in the settings; it must run."""
    streams: tuple[int, ...] = (1, 4, 8, 16)
    planned: tuple[int, ...] = (5, 10, 20)
    """Numbers of agents for which the prediction is compared."""
    seconds: float = 8.0
    """For each number of streams, in each round: a slow minute of the machine hits all of them."""
    rounds: int = 3
    pairs: int = 20
    """Requests of one client each way, in turns."""
    burst: int = 50
    prefix: int = 1500
    """Words of the long prompt."""


QUICK = Options(seconds=2.0, rounds=2, pairs=5, prefix=150)


@dataclass(frozen=True, slots=True)
class Way:
    """How an engine is reached: straight, or as so many agents of a gateway."""

    session: aiohttp.ClientSession
    url: str
    model: str
    headers: Sequence[dict[str, str]] = ({},)


@dataclass(slots=True)
class Asked:
    """Hold the figures of one request."""

    first_s: float = 0.0
    """Until its first token."""
    usage: dict[str, int] = field(default_factory=dict)


def measure(options: Options, root: Path, say: Say) -> dict[str, Any]:
    """Return the figures; docs/bench.md describes every key. Raises ToolFailed when a request failed, and UsageError without an engine."""
    record = engines.read(home(), options.engine)
    url = options.url or (record.url if record is not None else "")
    if not url:
        raise UsageError("no engine to measure", on=options.engine, hint="--url URL, or --engine NAME of one that runs")
    own, url = Home(root / "home"), url.rstrip("/")
    headers = [{"authorization": f"Bearer {secret}"} for secret in gateway.agents(own, options.burst)]
    try:
        model, slots = asyncio.run(_look(url))
        kind = "llamacpp" if slots else "adopted"
        served = slots or options.burst
        settings = _SETTINGS.format(kind=kind, url="" if slots else url, model=model, slots=served)
        files.private_dir(files.private_dir(own.engines) / "bench.slots")
        found = EngineRecord("bench", EngineState.READY, url=url, slots=served)
        files.atomic_write(own.engines / "bench.json", codec.dumps(found).encode())
        with gateway.gateway(own, url, settings) as server:
            return asyncio.run(_measure(options, url, slots, model, server, headers, say))
    except* (ToolFailed, aiohttp.ClientError) as group:
        raise ToolFailed("the engine did not answer", on=url, why=str(group.exceptions[0])) from None


async def _look(url: str) -> tuple[str, int]:
    """Return the engine's model and how many slots it shows; 0: it shows none."""
    async with aiohttp.ClientSession(timeout=_PATIENCE) as session, session.get(f"{url}/v1/models") as answer:
        model = str((await answer.json())["data"][0]["id"])
        return model, len(await _slots(session, url))


async def _measure(
    options: Options, url: str, slots: int, model: str, server: gateway.Server, headers: Sequence[dict[str, str]], say: Say
) -> dict[str, Any]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True), timeout=_PATIENCE) as session:
        straight, through = Way(session, url, model), Way(session, server.url, model, headers)
        say(f"{model} at {url}: {options.streams} streams, then {options.planned}, {options.rounds} x {options.seconds:g} s each")
        rounds = [
            {n: await _speed(straight, n, options.seconds) for n in (*options.streams, *options.planned)} for _ in range(options.rounds)
        ]
        speed = {n: fmean(one[n] for one in rounds) for n in rounds[0]}
        engine = _listener(url)
        say("prompts, and the gateway before it")
        prefix, prompt_per_s = await _prefix(straight, options.prefix)
        prefix["across_slots_cpu_ratio"] = await _across_slots(straight, through, engine, options.prefix) if slots else None
        added = [await _first_s(through) - await _first_s(straight) for _ in range(options.pairs)]
        share = await _cpu_percent(through, server, engine, options)
        burst = [await _burst_s(way, options.burst) for way in (straight, through)]
        freed = await _freed_ms(through, url, options.pairs) if slots else None
        hits = await _hits_s(through, options.pairs)
    points = {n: speed[n] for n in options.streams}
    figures = {
        "gateway_cpu_percent_of_engine": share,
        "first_byte_ms_added": median_ms(added),
        "burst_50_ratio": round(burst[1] / burst[0], 2),
        "slot_freed_ms_p50": freed,
        "cache_hit_ms_p50": median_ms(hits),
    }
    return {
        "model": model,
        "tokens_per_s": {str(n): round(tokens, 1) for n, tokens in points.items()},
        "prompt_tokens_per_s": prompt_per_s,
        "gain": round(speed[options.streams[-1]] / speed[options.streams[0]], 2),
        **figures,
        "prefix": prefix,
        "planner": {str(n): _compared(points, min(n, slots or n), speed[n]) for n in options.planned},
        "not_measured": {name: _UNSEEN for name, value in (figures | prefix).items() if value is None},
    }


async def _ask(way: Way, prompt: str, agent: int = 0, most: int = 64) -> AsyncGenerator[Asked, None]:
    """Yield what has come of a request, after each token and at its end. A delta is taken as a token."""
    asked = Asked()
    began = time.perf_counter()
    body = {"model": way.model, "max_tokens": most, "stream": True, "messages": [{"role": "user", "content": prompt}]}
    async with way.session.post(f"{way.url}/v1/messages", json=body, headers=way.headers[agent % len(way.headers)]) as answer:
        if answer.status != 200:
            raise ToolFailed("it refused a request", why=(await answer.text())[:300])
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            asked.usage |= event.get("message", event).get("usage") or {}
            if event["type"] == "content_block_delta":
                asked.first_s = asked.first_s or time.perf_counter() - began
                yield asked
    yield asked


async def _whole(way: Way, prompt: str, agent: int = 0, most: int = 64) -> Asked:
    return [asked async for asked in _ask(way, prompt, agent, most)][-1]


def _prompt(words: int = 30) -> str:
    """Return a prompt that begins as no other."""
    return f"{time.time_ns()} " * 3 + "word " * words


async def _speed(way: Way, streams: int, seconds: float) -> float:
    """Return the tokens a second of so many clients, each of which asks again at once; from the moment on when each has got a token."""
    counts = [0] * streams

    async def client(agent: int) -> None:
        while True:
            async for _ in _ask(way, _prompt(), agent):
                counts[agent] += 1

    async with asyncio.TaskGroup() as group:
        clients = [group.create_task(client(agent)) for agent in range(streams)]
        while not all(counts):
            await asyncio.sleep(0.01)
        before, began = sum(counts), time.perf_counter()
        await asyncio.sleep(seconds)
        tokens, took_s = sum(counts) - before, time.perf_counter() - began
        for one in clients:
            one.cancel()
    return tokens / took_s


def _compared(speed: dict[int, float], agents: int, found: float) -> dict[str, float]:
    """Return what the capacity planner predicts from the measured streams, beside what was measured."""
    predicted = agents / measured(speed).step_s(agents)
    return {"predicted": round(predicted, 1), "measured": round(found, 1), "error": round(predicted / found - 1, 3)}


async def _prefix(way: Way, words: int) -> tuple[dict[str, float | None], float]:
    """Ask the same long prompt twice. Return what became of its first token, and the tokens of prompts that the engine reads a second."""
    prompt = _prompt(words)
    cold, warm = await _whole(way, prompt, most=1), await _whole(way, prompt, most=1)
    hits, new = (warm.usage.get(name) or 0 for name in ("cache_read_input_tokens", "input_tokens"))
    figures: dict[str, float | None] = {
        "cold_ttft_ms": milli(cold.first_s),
        "warm_ttft_ms": milli(warm.first_s),
        "hit_ratio": round(hits / (hits + new), 3),
    }
    return figures, round(cold.usage["input_tokens"] / cold.first_s, 1)


async def _first_s(way: Way) -> float:
    return (await _whole(way, _prompt(), most=4)).first_s


async def _burst_s(way: Way, count: int) -> float:
    """Return how long so many requests take that come at once."""
    began = time.perf_counter()
    await asyncio.gather(*(_whole(way, _prompt(), agent, most=8) for agent in range(count)))
    return time.perf_counter() - began


def _listener(url: str) -> psutil.Process | None:
    """Return the engine's process; None for an engine elsewhere."""
    listening = {one.laddr[-1]: one.pid for one in psutil.net_connections("tcp") if one.laddr and one.status == psutil.CONN_LISTEN}
    pid = listening.get(urlsplit(url).port or 80)
    return None if pid is None else psutil.Process(pid)


async def _across_slots(straight: Way, through: Way, engine: psutil.Process | None, words: int) -> float | None:
    """Return the engine's processor time for four requests at once that share a long beginning, which one slot holds: through the gateway,
    which saves and restores it, in parts of what they take straight."""
    if engine is None:
        return None
    took = []
    for way in (straight, through):
        prompt = _prompt(words)
        for tail in ("one", "two"):  # the second tells the gateway what is shared
            await _chat(way, prompt, tail)
        before = cpu_s(engine)
        await asyncio.gather(*(_chat(way, prompt, f"number {number}", number) for number in range(4)))
        took.append(cpu_s(engine) - before)
    return round(took[1] / took[0], 3) if took[0] else None


async def _chat(way: Way, prompt: str, tail: str, agent: int = 0) -> None:
    said = [{"role": "system", "content": prompt}, {"role": "user", "content": tail}]
    body = {"model": way.model, "max_tokens": 1, "messages": said}
    await _answered(way, "/v1/chat/completions", body, agent)


async def _hits_s(way: Way, times: int) -> list[float]:
    """Return how long kept answers take."""
    body = {"model": way.model, "max_tokens": 64, "temperature": 0, "messages": [{"role": "user", "content": _prompt()}]}
    await _answered(way, "/v1/messages", body)
    return [await _answered(way, "/v1/messages", body, hit=True) for _ in range(times)]


async def _answered(way: Way, path: str, body: dict[str, Any], agent: int = 0, *, hit: bool = False) -> float:
    """Return how long a whole answer took. `hit`: it must be a kept one."""
    began = time.perf_counter()
    async with way.session.post(f"{way.url}{path}", json=body, headers=way.headers[agent % len(way.headers)]) as answer:
        text = await answer.text()
        if answer.status != 200 or hit != (answer.headers.get("x-gw-cache") == "hit"):
            raise ToolFailed("it refused a request, or did not keep its answer", why=text[:300])
    return time.perf_counter() - began


async def _cpu_percent(way: Way, server: gateway.Server, engine: psutil.Process | None, options: Options) -> float | None:
    """Return the processor time of the gateway in percent of the engine's, with the most streams; None for an engine elsewhere."""
    if engine is None:
        return None
    both = server.process, engine
    before = [cpu_s(one) for one in both]
    await _speed(way, options.streams[-1], options.seconds)
    ours, theirs = (cpu_s(one) - earlier for one, earlier in zip(both, before, strict=True))
    return round(100 * ours / theirs, 2)


async def _slots(session: aiohttp.ClientSession, url: str) -> list[dict[str, Any]]:
    """Return the engine's slots; none for an engine that does not show them."""
    async with session.get(f"{url}/slots") as answer:
        return list(await answer.json()) if answer.status == 200 else []


async def _freed_ms(way: Way, url: str, times: int) -> float:
    """Return how long after a client of the gateway left its slot is free."""
    took = []
    for _ in range(times):
        async with contextlib.aclosing(_ask(way, _prompt(), most=512)) as answer:
            await anext(answer)
        left = time.perf_counter()
        while any(slot["is_processing"] for slot in await _slots(way.session, url)):
            await asyncio.sleep(0.01)
        took.append(time.perf_counter() - left)
    return median_ms(took)


def table(report: dict[str, Any]) -> str:
    """The report for people: a line for each figure."""
    return "\n".join(f"{name:<32}{json.dumps(value)}" for name, value in report.items())
