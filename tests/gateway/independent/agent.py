"""An agent of the independent crews: turns one after the other through a gateway, each sent again as clients of the providers do."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp

TRIES = 10
FOR_GOOD = (400, 401, 402, 403, 404)
"""Statuses that no client answers with another try."""
LETTERS = "abcdefgh ijk\n'lmn"


@dataclass(frozen=True, slots=True)
class Load:
    """What every agent of a crew does."""

    agents: int
    interactive: int = 0
    """How many of them are interactive."""
    tokens: tuple[int, int] = (1000, 4000)
    """Of a turn's text, evenly spread."""
    system: int = 600
    """Tokens of the system prompt."""
    think_s: tuple[float, float] = (0.2, 2.0)
    bytes_per_token: tuple[float, float] = (2.5, 6.0)
    """Each agent has its own, drawn from here."""
    max_tokens: int = 64_000
    stagger_s: float = 2.0
    """Agents begin within so long."""


@dataclass(slots=True)
class Ends:
    """How the turns of a crew ended."""

    served: int = 0
    failed: list[str] = field(default_factory=list)
    tries: Counter[str] = field(default_factory=Counter)
    """Those that were no whole answer, by their status or error."""


class Agent:
    """`url` is asked for at each try: a gateway that is started again may have another."""

    def __init__(self, load: Load, url: Callable[[], str], token: str, rng: random.Random, ends: Ends) -> None:
        self._load, self._url, self._token, self._rng, self._ends = load, url, token, rng, ends
        self._bytes_per_token = rng.uniform(*load.bytes_per_token)
        self._system = f"BPT={self._bytes_per_token:.3f} {self._text(load.system)}"

    async def work(self) -> None:
        """Until it is cancelled."""
        await asyncio.sleep(self._rng.uniform(0, self._load.stagger_s))
        timeout = aiohttp.ClientTimeout(total=1800)
        async with aiohttp.ClientSession(timeout=timeout, headers={"Authorization": f"Bearer {self._token}"}) as session:
            while True:
                await self._turn(session)
                await asyncio.sleep(self._rng.uniform(*self._load.think_s))

    async def _turn(self, session: aiohttp.ClientSession) -> None:
        body, pause_s = self._body(), 0.5
        for _ in range(TRIES):
            end, retry_after = await self._try(session, body)
            if end == "served":
                self._ends.served += 1
                return
            self._ends.tries[end] += 1
            if end in map(str, FOR_GOOD):
                break
            await asyncio.sleep(min(60.0, float(retry_after)) if retry_after else pause_s)
            pause_s = pause_s if retry_after else min(8.0, pause_s * 2)
        self._ends.failed.append(end)

    async def _try(self, session: aiohttp.ClientSession, body: dict[str, object]) -> tuple[str, str]:
        """How it ended, and its Retry-After or nothing."""
        try:
            async with session.post(f"{self._url()}/v1/messages", json=body) as response:
                if response.status != 200:
                    return str(response.status), response.headers.get("Retry-After", "")
                return ("served" if b"message_stop" in await response.read() else "cut"), ""
        except (aiohttp.ClientError, OSError) as error:
            return type(error).__name__, ""

    def _body(self) -> dict[str, object]:
        return {
            "model": "claude-sonnet-4-5",
            "max_tokens": self._load.max_tokens,
            "stream": True,
            "system": [{"type": "text", "text": self._system}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": self._text(self._rng.uniform(*self._load.tokens))}]}],
        }

    def _text(self, tokens: float) -> str:
        length = int(tokens * self._bytes_per_token)
        piece = "".join(self._rng.choice(LETTERS) for _ in range(64))
        return (piece * (length // 64 + 1))[:length]
