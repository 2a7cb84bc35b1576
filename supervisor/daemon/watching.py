"""Looking after the limits that no kernel holds: what an attempt takes of the disk, and the processor time of all its processes together.

Looked at once a second in a thread, since counting files can take two: `host.disk.Watch` counts only when the answer can have changed
enough. Whoever is past a limit is stopped, with the limit's name as the reason.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from supervisor.core import limits
from supervisor.core.errors import NightcrewError
from supervisor.core.events import LimitPassed
from supervisor.core.limits import Limits, Used
from supervisor.daemon.jobs import Doors, Jobs
from supervisor.daemon.limits import lent
from supervisor.host.clock import Clock
from supervisor.host.disk import Watch
from supervisor.ledger.rows import AttemptRow
from worktrees import private_repository
from worktrees.layers import Layers

Key = tuple[str, int]
EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class _Watched:
    """One attempt that has a limit to be looked at."""

    asked: Limits
    disk: Watch | None


class Watching:
    """The watch of one supervisor. `step` belongs to the loop's thread."""

    def __init__(self, doors: Doors, jobs: Jobs, clock: Clock, tell: Callable[[LimitPassed], None], cpu_s: Callable[[Key], float]) -> None:
        """`cpu_s`: the processor time that an attempt was seen to have taken, for one that no control group counts."""
        self._doors = doors
        self._jobs = jobs
        self._clock = clock
        self._tell = tell
        self._cpu_s = cpu_s
        self._known: dict[Key, _Watched | None] = {}
        self._look: asyncio.Task[None] | None = None
        self._looked = -EVERY_S

    def step(self, live: Iterable[Key]) -> None:
        """Look at these attempts, the ones that run now, unless the look before is still under way or was a moment ago."""
        now = self._clock.monotonic()
        if now - self._looked < EVERY_S or (self._look is not None and not self._look.done()):
            return
        self._looked = now
        self._known = {key: self._known[key] if key in self._known else self._new(key) for key in live}
        watched = {key: one for key, one in self._known.items() if one is not None}
        if watched:
            self._look = asyncio.get_running_loop().create_task(self._tell_of(watched))

    def _new(self, key: Key) -> _Watched | None:
        row, launch = self._doors.ledger.attempt(*key), self._doors.ledger.launch_row(key[0])
        if row is None:
            return None
        asked = self._doors.limits.asked(launch.spec, lent(self._doors.ledger, row))
        if not asked.disk_max and not asked.cpu_max:
            return None
        return _Watched(asked, Watch(self._paths(key, row), asked.disk_max) if asked.disk_max else None)

    def _paths(self, key: Key, row: AttemptRow) -> list[Path]:
        """Its own files: of a layered worktree its own layer, its own repository, and its records with the logs and the temporary files."""
        own = (row.layers and Layers(**json.loads(row.layers)).upper) or row.worktree
        repository = [private_repository.place(Path(row.worktree))] if row.worktree and row.tier else []
        records = self._doors.home.attempt(*key)
        return [records, self._doors.home.short_tmp(records), *([Path(own)] if own else []), *repository]

    async def _tell_of(self, watched: dict[Key, _Watched]) -> None:
        try:
            found: dict[Key, str] = await self._jobs.within(self._jobs.stoppers, self._passed, watched)
        except NightcrewError as error:  # a look that failed is no evidence; the next one is in a second
            self._jobs.say(f"limits could not be looked at: {error.line()}")
            return
        for key, why in found.items():
            self._tell(LimitPassed(*key, why))

    def _passed(self, watched: dict[Key, _Watched]) -> dict[Key, str]:
        seen = {key: limits.passed(one.asked, self._used(key, one)) for key, one in watched.items()}
        return {key: why for key, why in seen.items() if why}

    def _used(self, key: Key, one: _Watched) -> Used:
        cpu_s = max(self._doors.limits.used(key).cpu_s, self._cpu_s(key)) if one.asked.cpu_max else 0.0
        return Used(cpu_s=cpu_s, disk=one.disk.look(self._clock.monotonic()).bytes if one.disk is not None else 0)
