"""The two jobs that suspend an agent and resume it. Each may be repeated, also by the next supervisor.

The ledger knows that it shall stand still before anything is stopped, and what the stop found until all of it goes on again. The runner is
told in a file how long the agent stood still, since its deadline is the runner's.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from supervisor.core.records import Identity, attempt_name
from supervisor.core.states import AttemptState
from supervisor.daemon.jobs import Doors, Jobs
from supervisor.host import files, foreign, freezing
from supervisor.host.clock import Clock
from supervisor.host.failpoint import failpoint
from supervisor.host.freezing import Suspended

RECORD = "suspended"
_RECORD_MAX = 100


class Suspending:
    """The jobs of one supervisor."""

    def __init__(self, doors: Doors, jobs: Jobs, clock: Clock) -> None:
        self._doors = doors
        self._jobs = jobs
        self._clock = clock

    async def suspend(self, task: str, epoch: int) -> None:
        """Suspend the whole tree, if the ledger says so."""
        if not self._noted(task, epoch):
            return
        found: Suspended = await self._jobs.within(self._jobs.stoppers, self._stop_clock_and_tree, task, epoch)
        failpoint("suspend.stopped")
        noted = self._noted(task, epoch)
        if not noted:
            return  # it ended meanwhile
        noted.setdefault("before", [[who.pid, who.ticks, who.boot_id] for who in found.before])
        noted |= {"held": found.held, "moving": [who.pid for who in found.moving]}
        self._doors.ledger.note(task, epoch, suspended=json.dumps(noted))
        if found.moving:
            self._jobs.say(f"{attempt_name(task, epoch)}: {len(found.moving)} processes could not be suspended: {noted['moving']}")

    async def resume(self, task: str, epoch: int) -> None:
        """Let it go on, and forget that it stood still."""
        noted = self._noted(task, epoch)
        if not noted:
            return
        before = tuple(Identity(*who) for who in noted.get("before", ()))
        await self._jobs.within(self._jobs.stoppers, self._start_tree_and_clock, task, epoch, before)
        failpoint("resume.started")
        if "resuming" not in self._noted(task, epoch):
            return  # it shall stand still again: the job that comes next
        self._doors.ledger.note(task, epoch, suspended=None)

    def _noted(self, task: str, epoch: int) -> dict[str, Any]:
        row = self._doors.ledger.attempt(task, epoch)
        held = row is not None and row.state is AttemptState.RUNNING and row.suspended
        return dict(json.loads(row.suspended)) if row is not None and row.suspended and held else {}

    def _stop_clock_and_tree(self, task: str, epoch: int) -> Suspended:
        seconds, since = self._read(task, epoch)
        self._write(task, epoch, seconds, since or self._clock.monotonic())
        found = freezing.suspend(self._doors.ending.tree(task, epoch))
        # One that was interrupted left its record: what is found stopped now, it had stopped.
        return replace(found, before=()) if since else found

    def _start_tree_and_clock(self, task: str, epoch: int, before: tuple[Identity, ...]) -> None:
        freezing.resume(self._doors.ending.tree(task, epoch), before)
        seconds, since = self._read(task, epoch)
        self._write(task, epoch, seconds + (self._clock.monotonic() - since if since else 0.0), 0.0)

    def _read(self, task: str, epoch: int) -> tuple[float, float]:
        """How long it stood still until now, and since when it does; 0.0 when it does not."""
        words = (foreign.read_plain(self._doors.home.attempt(task, epoch) / RECORD, _RECORD_MAX) or b"").split()
        try:
            seconds, since = map(float, words)
        except ValueError:
            return 0.0, 0.0
        return seconds, since

    def _write(self, task: str, epoch: int, seconds: float, since: float) -> None:
        files.atomic_write(self._doors.home.attempt(task, epoch) / RECORD, f"{seconds!r} {since!r}".encode())
