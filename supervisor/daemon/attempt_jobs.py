"""The jobs that attempts have: one a time for each attempt, and each is tried as `job_retries` says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from supervisor.daemon.job_retries import Aside, Job, Key, until_done


class AttemptJobs:
    """Those under way. It belongs to one event loop."""

    def __init__(self, say: Callable[[str], None], leaving: Callable[[], bool], waiting: dict[Key, str], ended: Callable[[], None]) -> None:
        """`say`, `leaving` and `waiting` are for `until_done`; `ended` is called after each job."""
        self._say, self._leaving, self._waiting, self._ended = say, leaving, waiting, ended
        self._tasks: dict[Key, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: Key) -> bool:
        return key in self._tasks

    def start(self, key: Key, job: Job, aside: Aside | None) -> None:
        """Run a job for an attempt, after the one that it may still have. What `aside` is for: see `job_retries`."""
        before = self._tasks.get(key)
        self._tasks[key] = asyncio.get_running_loop().create_task(self._until_done(key, job, aside, before))

    async def settled(self, key: Key) -> None:
        """Until no job of an attempt is under way."""
        while (task := self._tasks.get(key)) is not None:
            await asyncio.wait([task])

    async def one_ended(self, within_s: float) -> None:
        """Until any of them ended, or the time is over. There must be one."""
        await asyncio.wait(self._tasks.values(), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)

    async def _until_done(self, key: Key, job: Job, aside: Aside | None, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            await until_done(key, job, aside, self._say, self._leaving, self._waiting)
        finally:
            if self._tasks.get(key) is asyncio.current_task():
                del self._tasks[key]
            self._ended()
