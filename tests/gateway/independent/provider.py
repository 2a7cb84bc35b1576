"""A provider with rate limits, written from its documents and not from our code: a second opinion beside the simulator.

It imports nothing of `supervisor`, and it must stay so. The simulator and the gateway have the same authors and can share a mistake; what
this provider says of its own account (`Provider.refused`, `Provider.account`) judges the gateway without one. It is an aiohttp application
in the test's own loop, on 127.0.0.1 and a port that the system chooses.

A limit is a token bucket: it is full at the start, holds `burst_s` seconds of the limit, refills evenly, and is charged the input when a
request arrives and the output as `Conditions.output` says. A request that does not fit is a 429. The text of a request names its own
tokenizer, as `BPT=` and the bytes of a token, so that no gateway can know the count in advance.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from aiohttp import web

ANTHROPIC_NAMES = {"rpm": "requests", "itpm": "input-tokens", "otpm": "output-tokens"}
OPENAI_NAMES = {"rpm": "requests", "tpm": "tokens"}
LONGEST_OUTPUT = 4096
"""Tokens, of a request that does not say `max_tokens`."""
TICK_S = 0.1
"""How often changes of the limits and outside use are looked at."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """How this provider counts and what it says."""

    limits: Mapping[str, float]
    """Per minute: rpm, itpm and otpm, or rpm and tpm for OpenAI."""
    api: Literal["anthropic", "openai"] = "anthropic"
    burst_s: float = 60.0
    """How many seconds of its limit a full bucket holds (never less than 1 unit)."""
    burst_rpm_s: float | None = None
    """The same for requests alone; None: as the others."""
    head_s: float = 0.0
    """Mean time from a request's arrival to the head of its answer; 0: 10 to 80 ms."""
    jitter: float = 0.5
    """The head comes after `head_s` times 1 - jitter to 1 + jitter, evenly spread."""
    remaining_at: Literal["arrival", "sent"] = "arrival"
    """Of which moment the rate limit headers speak: when the request was charged, or when the head is sent."""
    rounding: Literal["near", "down", "exact"] = "near"
    """How Anthropic's remaining tokens are rounded: to the nearest 1,000, down to it, or not at all."""
    reset: Literal["ceil", "floor", "exact", "missing"] = "ceil"
    """How Anthropic's reset is rounded to a whole second; for both APIs, whether it is said at all."""
    estimates: bool = False
    """Charge the bytes of the request / 4 at its arrival, and correct that when the head is sent."""
    output: Literal["produced", "end"] = "produced"
    """When output is charged: each half second, or all of it when the answer ends."""
    output_mean: float = 300.0
    """Tokens of an answer; log-normal with a sigma of 0.6."""
    tokens_per_s: float = 80.0
    outside: float = 0.0
    """The part of every limit that somebody else uses, in irregular bites."""
    outside_from_s: float = 0.0
    """Seconds after the first request."""
    changes: tuple[tuple[float, float], ...] = ()
    """(seconds after the first request, factor of the limits as they were at the start)."""


class Bucket:
    """One limit. Its level may be negative: output is charged after the fact."""

    def __init__(self, limit: float, burst_s: float) -> None:
        self.limit, self._burst_s = limit, burst_s
        self.level = self.capacity
        self.used = 0.0
        self.offered = 0.0
        """What has refilled since the start, whether there was room for it or not, less what somebody else took."""
        self._at = time.monotonic()

    @property
    def capacity(self) -> float:
        """When it is full."""
        return max(self.limit * self._burst_s / 60, 1.0)

    def tick(self) -> None:
        """Refill it up to now."""
        now = time.monotonic()
        refill = self.limit / 60 * (now - self._at)
        self.offered += refill
        self.level = min(self.capacity, self.level + refill)
        self._at = now

    def take(self, amount: float) -> None:
        """Charge our client, or give back (negative)."""
        self.tick()
        self.level -= amount
        self.used += amount

    def bite(self, amount: float) -> None:
        """Somebody else uses so much, at most what is left."""
        self.tick()
        taken = min(max(0.0, self.level), amount)
        self.level -= taken
        self.offered -= taken

    def fits(self, amount: float) -> bool:
        """What is larger than the bucket fits into a full one."""
        self.tick()
        return self.level + 1e-6 >= min(amount, self.capacity)

    def wait_s(self, amount: float) -> float:
        """Until it fits."""
        return max(0.0, (min(amount, self.capacity) - self.level) / (self.limit / 60))

    def change(self, limit: float) -> None:
        """Another limit from now on; what is above its capacity is lost."""
        self.tick()
        self.limit = limit
        self.level = min(self.level, self.capacity)


@dataclass(frozen=True, slots=True)
class Used:
    """The provider's account of one limit so far."""

    used: float
    offered: float

    def share(self, before: Used) -> float:
        """What was used since `before`, as a part of what was offered since then."""
        return (self.used - before.used) / (self.offered - before.offered)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A 429, and why."""

    second: float
    """After the first request."""
    full: tuple[str, ...]
    need: Mapping[str, float]
    levels: Mapping[str, float]


@dataclass(slots=True)
class Turn:
    """One request that was let in."""

    body: dict[str, Any]
    input: int
    charged: int
    """Of the input, at arrival."""
    output: int
    produced: int = 0

    @property
    def usage(self) -> dict[str, int]:
        """OpenAI's."""
        return {"prompt_tokens": self.input, "completion_tokens": self.output, "total_tokens": self.input + self.output}


@dataclass(slots=True)
class Provider:
    """Serve `app`; read the account at any time."""

    conditions: Conditions
    rng: random.Random
    buckets: dict[str, Bucket] = field(init=False)
    refused: list[Refusal] = field(init=False, default_factory=list)
    served: int = field(init=False, default=0)
    first: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    """Set by the first request: every time in the conditions counts from there."""
    _began: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        bursts = {"rpm": self.conditions.burst_rpm_s or self.conditions.burst_s}
        self.buckets = {name: Bucket(limit, bursts.get(name, self.conditions.burst_s)) for name, limit in self.conditions.limits.items()}

    @property
    def second(self) -> float:
        """Now, in seconds after the first request."""
        return time.monotonic() - self._began

    def account(self) -> dict[str, Used]:
        """Of every limit, up to now."""
        for bucket in self.buckets.values():
            bucket.tick()
        return {name: Used(bucket.used, bucket.offered) for name, bucket in self.buckets.items()}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request for an answer."""
        if not self.first.is_set():
            self._began = time.monotonic()
            self.first.set()
        raw = await request.read()
        turn = self._read(raw)
        need = {"rpm": 1, "itpm": turn.charged, "otpm": 1, "tpm": turn.charged}
        full = tuple(name for name, bucket in self.buckets.items() if not bucket.fits(need[name]))
        if full:
            return self._refuse(full, need)
        self._charge({"rpm": 1, "itpm": turn.charged, "tpm": turn.charged})
        at_arrival = self._headers()
        await asyncio.sleep(self._head_s())
        self._charge({"itpm": turn.input - turn.charged, "tpm": turn.input - turn.charged})
        headers = self._headers() if self.conditions.remaining_at == "sent" else at_arrival
        response = web.StreamResponse(headers=headers | {"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            await (self._anthropic if self.conditions.api == "anthropic" else self._openai)(response, turn)
        finally:  # also of an answer that was cut: what was produced is charged
            if self.conditions.output == "end":
                self._charge({"otpm": turn.produced, "tpm": turn.produced})
        await response.write_eof()
        self.served += 1
        return response

    async def change(self) -> None:
        """Other limits and outside use, from the first request on; runs until it is cancelled."""
        await self.first.wait()
        limits = {name: bucket.limit for name, bucket in self.buckets.items()}
        coming, last, bite_at = sorted(self.conditions.changes), self.second, self.second + 2
        while True:
            await asyncio.sleep(TICK_S)
            while coming and self.second >= coming[0][0]:
                factor = coming.pop(0)[1]
                for name, bucket in self.buckets.items():
                    bucket.change(limits[name] * factor)
            if self.second < self.conditions.outside_from_s:
                last = self.second
            elif self.second >= bite_at:
                for bucket in self.buckets.values():
                    bucket.bite(bucket.limit / 60 * self.conditions.outside * min(4.0, self.second - last))
                last, bite_at = self.second, self.second + self.rng.uniform(0.5, 3)

    # Counting ---------------------------------------------------------------------------------------------------------------------

    def _read(self, raw: bytes) -> Turn:
        text, body = raw.decode(), json.loads(raw)
        found = re.search(r"BPT=([\d.]+)", text)
        assert found is not None, "a request names the bytes of its tokens"
        count = int(sum(len(block.encode()) / float(found[1]) + 4 for block in _texts(body)))
        drawn = int(self.rng.lognormvariate(math.log(self.conditions.output_mean) - 0.18, 0.6))
        output = max(8, min(body.get("max_tokens") or LONGEST_OUTPUT, drawn))
        return Turn(body, count, int(len(raw) / 4) if self.conditions.estimates else count, output)

    def _charge(self, amounts: Mapping[str, float]) -> None:
        for name in amounts.keys() & self.buckets.keys():
            self.buckets[name].take(amounts[name])

    def _head_s(self) -> float:
        low, high = 1 - self.conditions.jitter, 1 + self.conditions.jitter
        return self.conditions.head_s * self.rng.uniform(low, high) if self.conditions.head_s else self.rng.uniform(0.01, 0.08)

    # What it says -----------------------------------------------------------------------------------------------------------------

    def _refuse(self, full: tuple[str, ...], need: Mapping[str, float]) -> web.Response:
        wait_s = max(self.buckets[name].wait_s(need[name]) for name in full)
        levels = {name: bucket.level for name, bucket in self.buckets.items()}
        self.refused.append(Refusal(self.second, full, {name: need[name] for name in full}, levels))
        error = {"type": "rate_limit_error", "message": f"This request would exceed the rate limit ({full[0]})."}
        shape: dict[str, object] = {"type": "error", "error": error}
        if self.conditions.api == "openai":
            message = f"Rate limit reached on {full[0]}. Please try again in {_duration(wait_s)}."
            shape = {"error": {"message": message, "type": "tokens", "code": "rate_limit_exceeded"}}
        return web.json_response(shape, status=429, headers=self._headers() | {"retry-after": str(max(1, math.ceil(wait_s)))})

    def _headers(self) -> dict[str, str]:
        said: dict[str, str] = {}
        for name, bucket in self.buckets.items():
            bucket.tick()
            if self.conditions.api == "anthropic":
                remaining = max(0, int(bucket.level)) if name == "rpm" else self._rounded(bucket.level)
                said |= self._anthropic_headers(ANTHROPIC_NAMES[name], bucket, remaining)
            else:
                said |= self._openai_headers(OPENAI_NAMES[name], bucket)
        if self.conditions.api == "anthropic" and {"itpm", "otpm"} <= self.buckets.keys():
            tightest = min((self.buckets["itpm"], self.buckets["otpm"]), key=lambda bucket: bucket.level / bucket.capacity)
            said |= self._anthropic_headers("tokens", tightest, self._rounded(tightest.level))
        return said

    def _anthropic_headers(self, name: str, bucket: Bucket, remaining: int) -> dict[str, str]:
        prefix = f"anthropic-ratelimit-{name}"
        said = {f"{prefix}-limit": str(int(bucket.limit)), f"{prefix}-remaining": str(remaining)}
        return said if self.conditions.reset == "missing" else said | {f"{prefix}-reset": self._moment(bucket.wait_s(bucket.capacity))}

    def _openai_headers(self, name: str, bucket: Bucket) -> dict[str, str]:
        said = {f"x-ratelimit-limit-{name}": str(int(bucket.limit)), f"x-ratelimit-remaining-{name}": str(max(0, int(bucket.level)))}
        reset = {f"x-ratelimit-reset-{name}": _duration(bucket.wait_s(bucket.capacity))}
        return said if self.conditions.reset == "missing" else said | reset

    def _rounded(self, tokens: float) -> int:
        left = max(0.0, tokens)
        match self.conditions.rounding:
            case "near":
                return math.floor(left / 1000 + 0.5) * 1000
            case "down":
                return int(left // 1000) * 1000
            case "exact":
                return int(left)

    def _moment(self, in_s: float) -> str:
        at = time.time() + in_s
        if self.conditions.reset == "exact":
            return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
        whole = math.ceil(at) if self.conditions.reset == "ceil" else math.floor(at)
        return datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    # Answers ----------------------------------------------------------------------------------------------------------------------

    async def _produce(self, turn: Turn) -> AsyncIterator[str]:
        """The answer's text, each half second, charged as it comes."""
        at_once = max(1, int(self.conditions.tokens_per_s * 0.5))
        while turn.produced < turn.output:
            number = min(turn.output - turn.produced, at_once)
            await asyncio.sleep(number / self.conditions.tokens_per_s)
            turn.produced += number
            if self.conditions.output == "produced":
                self._charge({"otpm": number, "tpm": number})
            yield "word " * number

    async def _anthropic(self, response: web.StreamResponse, turn: Turn) -> None:
        async def event(name: str, **shape: object) -> None:
            await response.write(f"event: {name}\ndata: {json.dumps({'type': name, **shape})}\n\n".encode())

        start = {"id": "msg_1", "type": "message", "role": "assistant", "model": turn.body["model"], "content": [], "stop_reason": None}
        usage = {"input_tokens": turn.input, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 1}
        await event("message_start", message={**start, "usage": usage})
        await event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        async for text in self._produce(turn):
            await event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})
        await event("content_block_stop", index=0)
        await event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": turn.output})
        await event("message_stop")

    async def _openai(self, response: web.StreamResponse, turn: Turn) -> None:
        async def chunk(choices: list[dict[str, object]], **more: object) -> None:
            shape = {"id": "c1", "object": "chat.completion.chunk", "model": turn.body["model"], "choices": choices, **more}
            await response.write(f"data: {json.dumps(shape)}\n\n".encode())

        async for text in self._produce(turn):
            await chunk([{"index": 0, "delta": {"content": text}, "finish_reason": None}])
        await chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}])
        if (turn.body.get("stream_options") or {}).get("include_usage"):
            await chunk([], usage=turn.usage)
        await response.write(b"data: [DONE]\n\n")


def _texts(body: Mapping[str, Any]) -> list[str]:
    contents = [body.get("system") or [], *(message["content"] for message in body["messages"])]
    return [block.get("text", "") for content in contents for block in ([{"text": content}] if isinstance(content, str) else content)]


def _duration(seconds: float) -> str:
    """As OpenAI's reset headers say it: 6m0.5s, 1.25s, 20ms."""
    if seconds < 1:
        return f"{int(seconds * 1000)}ms"
    minutes, rest = divmod(seconds, 60)
    return (f"{int(minutes)}m" if minutes else "") + f"{rest:.3f}".rstrip("0").rstrip(".") + "s"


@asynccontextmanager
async def serving(provider: Provider) -> AsyncIterator[str]:
    """Its URL, for as long as the block lasts."""
    app = web.Application(client_max_size=1 << 26)
    for path in ("/v1/messages", "/v1/chat/completions", "/chat/completions"):
        app.router.add_post(path, provider.handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    changing = asyncio.create_task(provider.change())
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        changing.cancel()
        await asyncio.wait([changing])
        await runner.cleanup()
