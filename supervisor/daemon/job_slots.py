"""How many jobs run side by side when one of them may take minutes, and it is an agent that decides which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class JobSlots:
    """At most `at_once` jobs have a turn; the others wait in order. A job that takes longer than `slow_s` goes on without one, so whoever
    leaves much to do, or something that hangs, holds up nobody else for longer than that."""

    def __init__(self, at_once: int, slow_s: float) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._slow_s = slow_s

    async def run(self, job: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """What `job(*args)`, begun in its turn, returns or raises."""
        async with self._free:
            running = asyncio.ensure_future(job(*args))
            try:
                await asyncio.wait({running}, timeout=self._slow_s)
            except asyncio.CancelledError:
                running.cancel()
                raise
        return await running
