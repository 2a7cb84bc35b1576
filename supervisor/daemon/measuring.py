"""Measures what living agents take, a few times a minute, and watches their memory.

One look in a thread serves all of them. A look may take at most a hundredth of a core: after a dear one the next comes later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from agents.kinds import of_task
from supervisor.core import memory_watch
from supervisor.core.account import Measured, Tree
from supervisor.core.errors import NightcrewError
from supervisor.core.events import LimitPassed
from supervisor.core.memory_watch import Bounds, Step, Watched
from supervisor.core.records import attempt_name
from supervisor.core.spec import Settings
from supervisor.daemon.jobs import Doors, Jobs
from supervisor.daemon.limits import lent
from supervisor.host.clock import Clock
from supervisor.host.usage import Agent, Reader, machine_memory
from supervisor.ledger import attempt_history

Key = tuple[str, int]
EVERY_S = 15.0
SOON_S = 2.0
"""Between two looks while somebody lives who was seen less often than `FIRST_LOOKS`, or holds more than half of its `memory_max`."""
FIRST_LOOKS = 3
SHARE = 0.01
"""Of one core, for looking."""
MEMORY_MAX = "memory_max"
RESTARTS_MAX = 3
"""So often a task is begun again for its memory; then it is stopped for good."""


@dataclass(frozen=True, slots=True)
class _Known:
    """One living attempt."""

    program: str
    """As `usage.Agent.program`."""
    bounds: Bounds
    measured: Measured
    watched: Watched = field(default_factory=Watched)


class Measuring:
    """The measuring of one supervisor. `step` belongs to the loop's thread."""

    def __init__(
        self, doors: Doors, jobs: Jobs, clock: Clock, settings: Settings, tell: Callable[[LimitPassed], None], reader: Reader | None = None
    ) -> None:
        self._doors = doors
        self._jobs = jobs
        self._clock = clock
        self._settings = settings
        self._tell = tell
        self._reader = reader or Reader()
        self._known: dict[Key, _Known] = {}
        self._look: asyncio.Task[None] | None = None
        self._looked = -EVERY_S
        self._cost_s = 0.0

    def cpu_s(self, key: Key) -> float:
        """Processor time that an attempt was seen to have taken; 0.0 while nobody looked."""
        known = self._known.get(key)
        return (known.measured.cpu_s or 0.0) if known is not None else 0.0

    def step(self, live: Sequence[Key]) -> None:
        """Look at these attempts, the ones that run now, unless the look before is still under way or was a moment ago."""
        wait = max(SOON_S if any(map(self._is_watched_closely, live)) else EVERY_S, self._cost_s / SHARE)
        now = self._clock.monotonic()
        if not live or now - self._looked < wait or (self._look is not None and not self._look.done()):
            return
        self._looked = now
        agents = {key: agent for key in live if (agent := self._agent(key)) is not None}
        self._known = {key: self._known[key] for key in agents}
        self._look = asyncio.get_running_loop().create_task(self._measure(agents))

    def _is_watched_closely(self, key: Key) -> bool:
        known = self._known.get(key)
        if known is None or known.measured.samples < FIRST_LOOKS:
            return True
        return known.bounds.name == MEMORY_MAX and 2 * known.measured.memory > known.bounds.limit

    def _agent(self, key: Key) -> Agent | None:
        started = self._doors.observer.started(key)
        if started is None:
            return None
        if key not in self._known:
            self._known[key] = self._new(key)
        return Agent(started.identity, self._known[key].program)

    def _new(self, key: Key) -> _Known:
        row, spec = self._doors.ledger.attempt(*key), self._doors.ledger.launch_row(key[0]).spec
        kind = of_task(spec.kind)
        limit = self._doors.limits.asked(spec, lent(self._doors.ledger, row) if row is not None else None).memory_max
        bounds = Bounds(machine_memory(), "the machine's memory")
        if limit:
            restart = (self._settings.memory_restart or 1.0) if kind.is_agent else 0.0
            bounds = Bounds(limit, MEMORY_MAX, self._settings.memory_warn, restart)
        return _Known(PurePath(kind.binary).name, bounds, Measured.from_json(row.account if row is not None else None))

    async def _measure(self, agents: Mapping[Key, Agent]) -> None:
        try:
            found, self._cost_s = await self._jobs.within(self._jobs.stoppers, self._timed, agents)
            began = time.thread_time()
            self._keep(found)
            self._cost_s += time.thread_time() - began
        except NightcrewError as error:  # nothing is known that was not known before; the next look is soon
            self._jobs.say(f"agents could not be measured: {error.line()}")

    def _timed(self, agents: Mapping[Key, Agent]) -> tuple[dict[Key, Tree], float]:
        began = time.thread_time()
        return self._reader.read(agents), time.thread_time() - began

    def _keep(self, found: Mapping[Key, Tree]) -> None:
        now = self._clock.monotonic()
        for key, tree in found.items():
            if (known := self._known.get(key)) is None:
                continue
            watched, step, why = memory_watch.look(known.watched, now, tree.memory, known.bounds)
            measured = replace(known.measured.after(tree), warning=why or known.measured.warning)
            self._known[key] = replace(known, measured=measured, watched=watched)
            if step is not None:
                self._act(key, step, why)
        self._doors.ledger.measured({key: self._known[key].measured.to_json() for key in found if key in self._known})

    def _act(self, key: Key, step: Step, why: str) -> None:
        self._jobs.say(f"{attempt_name(*key)}: {why}")
        self._doors.ledger.journal(*key, "memory", {"why": why})
        if step is not Step.RESTART:
            return
        before = attempt_history.begun_again(self._doors.ledger.db, key[0])
        if self._settings.memory_restart and before < RESTARTS_MAX:
            self._tell(LimitPassed(*key, why, again=True))
        else:
            self._tell(LimitPassed(*key, why + (f"; it was begun again {before} times for that" if before else "")))
