"""Clients that always have a next request: each sends it when the last one has been answered, and waits as long as it is told to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import aiohttp

PAUSE_S = 1.0
"""After a refusal that names no time, and after a connection that broke."""


@dataclass(slots=True)
class Tally:
    """What came of the requests of all of them."""

    answered: int = 0
    told_to_wait: int = 0
    """With 429 or 503."""
    failed: int = 0


@contextlib.asynccontextmanager
async def asking(url: str, secrets: Sequence[str], payload: bytes) -> AsyncIterator[Tally]:
    """One client for each of the tokens `secrets`, until the block ends; then what is open is broken off."""
    tally = Tally()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)) as session:
        clients = [asyncio.create_task(_ask_on(session, url, secret, payload, tally)) for secret in secrets]
        try:
            yield tally
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)


async def _ask_on(session: aiohttp.ClientSession, url: str, secret: str, payload: bytes, tally: Tally) -> None:
    while True:
        await asyncio.sleep(await ask(session, url, secret, payload, tally))


async def ask(session: aiohttp.ClientSession, url: str, secret: str, payload: bytes, tally: Tally) -> float:
    """One request to its end. Gives the seconds to wait before the next one."""
    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json", "anthropic-version": "2023-06-01"}
    try:
        async with session.post(f"{url}/v1/messages", data=payload, headers=headers) as answer:
            await answer.read()
            status, wait = answer.status, answer.headers.get("Retry-After", "")
    except aiohttp.ClientError:
        tally.failed += 1
        return PAUSE_S
    if status == 200:
        tally.answered += 1
        return 0.0
    if status in (429, 503):
        tally.told_to_wait += 1
    else:
        tally.failed += 1
    return float(wait) if wait.isdigit() else PAUSE_S
