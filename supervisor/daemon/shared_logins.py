"""Logins that an agent's command line renews: taken from a running agent's copy of the home, and given to the person and to every other
agent, within seconds.

A failure loses nothing: the copy stays, and the end of the attempt tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from supervisor.core.errors import NightcrewError
from supervisor.daemon.jobs import Doors, Jobs
from supervisor.host.clock import Clock
from supervisor.host.sandbox.agent_homes import SharedLogins

EVERY_S = 2.0


class LoginDesk:
    """The logins of one supervisor's agents. `step` belongs to the loop's thread."""

    def __init__(self, doors: Doors, jobs: Jobs, clock: Clock) -> None:
        self._home = doors.home
        self._jobs = jobs
        self._clock = clock
        self._shared = SharedLogins()
        self._round: asyncio.Task[None] | None = None
        self._began = -EVERY_S

    def step(self, live: Iterable[tuple[str, int]]) -> None:
        """Compare the logins of these attempts, the ones that run now, unless the round before is under way or was a moment ago."""
        now = self._clock.monotonic()
        if now - self._began < EVERY_S or (self._round is not None and not self._round.done()):
            return
        self._began = now
        self._round = asyncio.get_running_loop().create_task(self._compared([self._home.attempt(*key) for key in live]))

    async def _compared(self, attempts: list[Path]) -> None:
        try:
            await self._jobs.within(self._jobs.stoppers, self._shared.share, attempts, self._clock.wall() * 1000)
        except NightcrewError as error:
            self._jobs.say(f"a renewed login could not be kept yet: {error.line()}")
