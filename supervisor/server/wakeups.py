"""Work beside the loop: wait for events, run something until its context ends, look after living attempts every few seconds."""

from __future__ import annotations

import asyncio
import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from supervisor.kernel.errors import NightcrewError

if TYPE_CHECKING:
    from supervisor.host.clock import Clock
    from supervisor.server.attempts.jobs import Doors, Jobs

T = TypeVar("T")
Key = tuple[str, int]


async def was_set(event: asyncio.Event, within_s: float | None) -> bool:
    """Wait until the event is set, or the time is over; without a time, for ever. Whether it is set.

    Not `asyncio.wait_for`: in Python 3.11 that swallows a cancellation which comes with the wake-up, so that who is cancelled goes on.
    """
    try:
        async with asyncio.timeout(within_s):
            return await event.wait()
    except TimeoutError:
        return event.is_set()


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` beside what is inside, and cancel it at the end."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


class Follower(ABC, Generic[T]):
    """Look after the living attempts: every `every_s` seconds, one look at a time. It belongs to the loop's thread."""

    every_s: float
    failed: str
    """What a person is told when a look failed. Nothing is lost: the next look makes up."""

    def __init__(self, doors: Doors, jobs: Jobs, clock: Clock) -> None:
        self._doors, self._jobs, self._clock = doors, jobs, clock
        self._known: dict[Key, T | None] = {}
        self._task: asyncio.Task[None] | None = None
        self._looked = -math.inf

    @abstractmethod
    def _follow(self, key: Key) -> T | None:
        """Return what is looked at of an attempt; None for one of which there is nothing to look at."""

    @abstractmethod
    async def _look(self, followed: Mapping[Key, T]) -> None:
        """Look at these attempts."""

    def _leave(self, followed: T) -> None:
        """Give back what was held for an attempt that has ended."""

    def step(self, live: Collection[Key]) -> None:
        """Look at these attempts, the ones that run now, unless the look before is under way or was a moment ago."""
        now = self._clock.monotonic()
        if now - self._looked < self.every_s or self._is_looking:
            return
        self._looked = now
        for key in self._known.keys() - set(live):
            if (gone := self._known.pop(key)) is not None:
                self._leave(gone)
        self._begin(live)

    async def fresh(self, keys: Iterable[Key]) -> None:
        """Look at these living attempts at once."""
        await self._idle()
        if (task := self._begin(keys)) is not None:
            await asyncio.wait([task])

    def _begin(self, keys: Iterable[Key]) -> asyncio.Task[None] | None:
        followed = {}
        for key in keys:
            if key not in self._known:
                self._known[key] = self._follow(key)
            if (one := self._known[key]) is not None:
                followed[key] = one
        if not followed:
            return None
        self._task = asyncio.get_running_loop().create_task(self._tried(followed))
        return self._task

    async def _tried(self, followed: Mapping[Key, T]) -> None:
        try:
            await self._look(followed)
        except NightcrewError as error:
            self._jobs.say(f"{self.failed}: {error.line()}")

    @property
    def _is_looking(self) -> bool:
        return self._task is not None and not self._task.done()

    async def _idle(self) -> None:
        """Wait until no look is under way."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])
