"""The two jobs that pause an agent and let it go on. Each may be repeated, also by the next supervisor.

The ledger knows that it shall stand still before anything is stopped, and what the stop found until all of it goes on again. The runner is
told in a file how long the agent stood still, since its deadline is the runner's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from agents.kinds import of_task
from supervisor.gateway import pages
from supervisor.host import cgroups, files, untrusted_fs
from supervisor.host.cgroups import Frozen
from supervisor.host.clock import Clock
from supervisor.host.failpoint import failpoint
from supervisor.host.paths import Home
from supervisor.kernel.crew import Crew, PauseState, Task
from supervisor.kernel.errors import NightcrewError
from supervisor.kernel.events import Event, ParkAsked, StoodStill
from supervisor.kernel.names import Identity, attempt_name
from supervisor.kernel.records import PAUSED, parse_stood_still
from supervisor.kernel.settings import Settings
from supervisor.kernel.states import AttemptState, Until
from supervisor.server.attempts import continuing
from supervisor.server.attempts.jobs import Doors, Job, Jobs
from supervisor.server.machine import Emergency
from supervisor.store.rows import AttemptRow

_RECORD_MAX = 100
_LOOK_S = 0.1
"""Between two questions to the gateway for a moment without a request. Between two turns of an agent a tool runs for longer, mostly."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings, and what the jobs say to the loop and ask it."""

    settings: Settings
    event: Callable[[Event], None]
    leaving: Callable[[], bool]
    """Whether the supervisor is about to leave: the next one goes on with what waits."""


class Pausing:
    """The jobs of one supervisor."""

    def __init__(self, doors: Doors, jobs: Jobs, clock: Clock, emergency: Emergency, terms: Terms) -> None:
        self._doors = doors
        self._jobs = jobs
        self._clock = clock
        self._emergency = emergency
        self._terms = terms

    def step(self, crew: Crew) -> None:
        """Park what has made room for too long."""
        for task in crew.living.values():
            paused = task.attempt.paused if task.attempt is not None and task.attempt.state is AttemptState.RUNNING else None
            if paused is not None and paused.still and paused.until is Until.SLOT and self._is_long(paused) and self._can_go_on(task):
                self._terms.event(ParkAsked(task.id, task.epoch))

    def _is_long(self, paused: PauseState) -> bool:
        return 0 < self._terms.settings.park_after_s <= self._clock.monotonic() - paused.since

    def _can_go_on(self, task: Task) -> bool:
        """Whether the next attempt would go on where this one stands."""
        spec, held = self._doors.ledger.launch_row(task.id).spec, self._doors.ledger.conversations.of(task.id, task.epoch)
        known = held is not None and bool(held.session)
        return known and spec.on_loss != "restart" and continuing.can_go_on(spec, of_task(spec.kind))

    def job_of(self, row: AttemptRow) -> Job | None:
        """What is to be done again for an attempt that the supervisor before this one left."""
        if row.state is not AttemptState.RUNNING or not row.paused:
            return None
        return self.resume if "resuming" in json.loads(row.paused) else self.pause

    async def pause(self, task: str, epoch: int) -> None:
        """Stop the whole tree where it stands, if the ledger says so; one that makes room for another, between two of its requests."""
        await self._moment(task, epoch)
        while True:
            await self._lifted(task, epoch)
            if self._terms.leaving() or not self._shall_stand_still(task, epoch):
                return
            found: Frozen = await self._jobs.within(self._jobs.stoppers, self._stop_clock_and_tree, task, epoch)
            if not self._emergency.touches(task, epoch):
                break  # else its runner stopped a part of the tree, and will let that go: again, once it has
        failpoint("pause.stopped")
        noted = self._noted(task, epoch)
        if not noted:
            return  # it ended meanwhile
        noted.setdefault("before", [[who.pid, who.ticks, who.boot_id] for who in found.before])
        noted |= {"held": found.held, "moving": [who.pid for who in found.moving]}
        self._doors.ledger.note(task, epoch, paused=json.dumps(noted))
        if found.moving:
            self._jobs.say(f"{attempt_name(task, epoch)}: {len(found.moving)} processes could not be paused: {noted['moving']}")
        self._terms.event(StoodStill(task, epoch))

    async def resume(self, task: str, epoch: int) -> None:
        """Let it go on, and forget that it stood still."""
        await self._lifted(task, epoch)
        noted = self._noted(task, epoch)
        if not noted or self._terms.leaving():
            return
        before = tuple(Identity(*who) for who in noted.get("before", ()))
        await self._jobs.within(self._jobs.stoppers, self._start_tree_and_clock, task, epoch, before)
        failpoint("resume.started")
        if "resuming" not in self._noted(task, epoch):
            return  # it shall stand still again: the job that comes next
        self._doors.ledger.note(task, epoch, paused=None)

    async def _lifted(self, task: str, epoch: int) -> None:
        await self._emergency.lifted(task, epoch, lambda: not self._terms.leaving() and bool(self._noted(task, epoch)))

    async def _moment(self, task: str, epoch: int) -> None:
        """Until none of its requests is under way or waits; at once when a person paused it, and when nobody can tell."""
        deadline = self._clock.monotonic() + self._terms.settings.preempt_within_s
        while self._clock.monotonic() < deadline and not self._terms.leaving():
            noted = self._noted(task, epoch)
            if not noted.get("for") or "resuming" in noted or "held" in noted:
                return
            if not await self._jobs.within(self._jobs.stoppers, _requests_of, self._doors.home, task):
                return
            await asyncio.sleep(_LOOK_S)

    def _shall_stand_still(self, task: str, epoch: int) -> bool:
        noted = self._noted(task, epoch)
        return bool(noted) and "resuming" not in noted

    def _noted(self, task: str, epoch: int) -> dict[str, Any]:
        row = self._doors.ledger.attempt(task, epoch)
        held = row is not None and row.state is AttemptState.RUNNING and row.paused
        return dict(json.loads(row.paused)) if row is not None and row.paused and held else {}

    def _stop_clock_and_tree(self, task: str, epoch: int) -> Frozen:
        seconds, since = self._read(task, epoch)
        self._write(task, epoch, seconds, since or self._clock.monotonic())
        found = cgroups.freeze(self._doors.ending.tree(task, epoch))
        # One that was interrupted left its record: what is found stopped now, it had stopped.
        return replace(found, before=()) if since else found

    def _start_tree_and_clock(self, task: str, epoch: int, before: tuple[Identity, ...]) -> None:
        cgroups.thaw(self._doors.ending.tree(task, epoch), before)
        seconds, since = self._read(task, epoch)
        self._write(task, epoch, seconds + (self._clock.monotonic() - since if since else 0.0), 0.0)

    def _read(self, task: str, epoch: int) -> tuple[float, float]:
        """How long it stood still until now, and since when it does; 0.0 when it does not."""
        return parse_stood_still(untrusted_fs.read_plain(self._doors.home.attempt(task, epoch) / PAUSED, _RECORD_MAX) or b"")

    def _write(self, task: str, epoch: int, seconds: float, since: float) -> None:
        files.atomic_write(self._doors.home.attempt(task, epoch) / PAUSED, f"{seconds!r} {since!r}".encode())


def _requests_of(home: Home, task: str) -> int:
    """How many requests of a task the gateway serves or holds; 0 when no gateway answers."""
    try:
        agents = pages.ask(home, pages.NOW, timeout_s=1.0)["agents"]
    except NightcrewError:
        return 0
    return sum(int(one["in_flight"]) + int(one["queued"]) for one in agents if one["name"] == task)
