"""Waits of agents that park at the supervisor, and notes that tasks wait for."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from memory.rescan import is_file
from supervisor.kernel import leases
from supervisor.kernel.crew import importance, note
from supervisor.kernel.errors import Chosen, Deadlock, DiskFull, LedgerError, NightcrewError, Refused, TimedOut, one_line
from supervisor.kernel.events import NoteAppeared
from supervisor.kernel.leases import STATIC, Cycle, Wait, WaitGraph, WaitKind
from supervisor.kernel.path_globs import size_max
from supervisor.kernel.schedule import PlanWaits

if TYPE_CHECKING:
    from memory.lease_rows import Waits
    from memory.service.desk import MemoryDesk
    from memory.versions import Change
    from supervisor.host.clock import Clock
    from supervisor.kernel.audit import Said
    from supervisor.kernel.crew import Crew
    from supervisor.server.loop import Loop


# Waits
# -----
# Every wait of an agent that parks at the supervisor: registered before it parks, refused when it could never end, ended in time.
#
#     async with desk.waiting(project, task, epoch, WaitKind.LEASE, "src/**", holders, timeout_s) as number:
#         ...  # until it came true
#
# What a row means after a restart: the request that waited died with its socket, and its agent asks again. Until it does its row
# stands in the graph as before, for GRACE_S at most, so that two agents which come back in turn cannot build the cycle that was
# refused before; the repeated request takes it up, with its age, or ends it (`answered`) when it need not wait any more.


GRACE_S = 60.0
"""How long a wait of before a restart stays without its request: an agent's command asks again within a few seconds."""
LONGEST_S = 86_400.0
"""Of one wait, whatever it asks for."""
LOOK_S = 1.0
"""How often open waits are looked at, while there are any."""
WAITS_MAX = 64
"""That one task may have open."""
WHAT_MAX = 120
"""Characters: other agents are shown them."""
TOLD_S = 10.0
"""Between two lines of history about refusals to one task: each is a commit."""


@dataclass(slots=True)
class _Parked:
    project: str
    deadline: float
    """Monotonic seconds."""
    scope: asyncio.Timeout | None
    """Of the request that waits; None for one that died with an earlier supervisor."""
    error: NightcrewError | None = None
    """Why it was given up."""


class WaitDesk:
    """One supervisor's. It belongs to one event loop; `begin` it there, and `close` it."""

    def __init__(self, waits: Waits, crew: Crew, clock: Clock, say: Callable[[Said], None]) -> None:
        """`say` is told what a person should know."""
        self._waits, self._crew, self._clock, self._say = waits, crew, clock, say
        self.graph = WaitGraph(plan=PlanWaits(crew))
        self._parked: dict[int, _Parked] = {}
        self._of_task: Counter[str] = Counter()
        self._told: dict[str, float] = {}
        self._unsaid: dict[int, str] = {}
        """Waits that have ended, and whose row the disk did not take yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._rowless = itertools.count(-1, -1)
        """Numbers of waits that the disk did not take."""

    def begin(self) -> None:
        """Take over the waits of before. Raises DiskFull and LedgerError."""
        for wait, project in self._waits.open():
            self._enter(wait, _Parked(project, self._clock.monotonic() + GRACE_S, None))

    def close(self) -> None:
        """From now on rows stay as they are: the next supervisor takes them over."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    # For who waits -----------------------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def waiting(
        self,
        project: str,
        task: str,
        epoch: int,
        kind: WaitKind,
        what: str,
        holders: Iterable[str],
        timeout_s: float,
        *,
        any_of: bool = False,
    ) -> AsyncIterator[int]:
        """Wait inside. It is committed when this is entered; the number is for `change_holders`. `any_of`: one of the holders is enough.

        Raises Deadlock, and nothing waits, when it could never end; TimedOut when the time is over; Chosen when it was given up later,
        since a holder changed; Refused when the task waits WAITS_MAX times already. On a full disk it is known to this supervisor alone.
        """
        now, wall = self._clock.monotonic(), self._clock.wall()
        timeout_s = min(max(0.0, timeout_s), LONGEST_S)
        asked = Wait(STATIC, task, epoch, kind, _shown(what), _named(holders), wall, wall + timeout_s, any_of)
        async with asyncio.timeout(None) as scope:
            number = self._register(asked, _Parked(project, now + timeout_s, scope))
            parked, why = self._parked[number], "failed"
            try:
                yield number
                why = "over"
            except asyncio.CancelledError:
                why = "left" if parked.error is None else _ending(parked.error)
                if parked.error is not None:
                    raise parked.error from None
                raise
            finally:
                self._leave(number, why)

    def answered(self, task: str, epoch: int, kind: WaitKind, what: str) -> None:
        """A request need not wait: the wait of before a restart that it repeats is over, and nobody is refused for its sake."""
        if (left := self._left_behind(task, epoch, kind, _shown(what))) is not None:
            self._leave(left.number, "over")

    def change_holders(self, number: int, holders: Iterable[str]) -> None:
        """Others hold it now. When it could never end so, one wait of the cycle is given up. Nothing when it has ended."""
        wait, named = self.graph.waits.get(number), _named(holders)
        if wait is None or wait.holders == named:
            return
        changed = replace(wait, holders=named)
        self.graph.put(changed)
        if found := self.graph.cycle(changed):
            self._break(found)
        self._change_row(changed)

    def open_of(self, project: str) -> list[Wait]:
        """Those of a project, the oldest first."""
        found = [self.graph.waits[number] for number, parked in self._parked.items() if parked.project == project]
        return sorted(found, key=lambda wait: (wait.since, abs(wait.number)))

    # Kept ------------------------------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Give up waits whose time is over, whose attempt has ended, and one of each cycle that arose without a new wait."""
        now = self._clock.monotonic()
        for number, parked in list(self._parked.items()):
            wait = self.graph.waits[number]
            if parked.scope is None and not self._lives(wait):
                self._leave(number, "its attempt ended")
            elif now >= parked.deadline:
                self._give_up(number, TimedOut("nothing came in time for", on=wait.task, why=f"it waited for {wait.kind} {wait.what}"))
        for found in self.graph.deadlocks():
            self._break(found)
        self._say_ended()
        self._arm()

    # Inside ----------------------------------------------------------------------------------------------------------------------------

    def _register(self, asked: Wait, parked: _Parked) -> int:
        if self._of_task[asked.task] >= WAITS_MAX:
            raise Refused("too many wait already", on=asked.task, why=f"{WAITS_MAX} waits of one task")
        again = self._left_behind(asked.task, asked.epoch, asked.kind, asked.what)
        if again is not None:
            self.graph.drop(again.number)
            asked = replace(asked, since=again.since)
        if found := self.graph.cycle(asked):
            if again is not None:
                self._leave(again.number, "refused")
            self._refuse(found)
        if again is None:
            wait = replace(asked, number=self._begin_row(parked.project, asked))
        else:
            wait = replace(asked, number=again.number)
            self._forget(again.number)
            self._change_row(wait)
        self._enter(wait, parked)
        self._arm()
        return wait.number

    def _left_behind(self, *same: str | int) -> Wait | None:
        """The wait of before a restart that a request repeats: of the same task, epoch, kind and `what`."""
        left = (self.graph.waits[number] for number, parked in self._parked.items() if parked.scope is None)
        return next((wait for wait in left if (wait.task, wait.epoch, wait.kind, wait.what) == same), None)

    def _refuse(self, found: Cycle) -> None:
        first, why = found[0], leases.words(found)
        self._journal(first, "wait refused", why)
        hint = "finish or give back what they wait for, or ask for something else"
        raise Deadlock("could wait for ever", on=f"{first.kind} {first.what}", why=why, kept="all that it holds", hint=hint)

    def _break(self, found: Cycle) -> None:
        wait = leases.victim(found, self._importance)
        if wait is None:
            return
        why = leases.words(found)
        self._journal(wait, "wait given up", why)
        self._say(f"{wait.task} gave up a wait that could never end: {why}")
        hint = "finish or give back what they wait for, then wait again"
        self._give_up(wait.number, Chosen("gave up a wait that could never end", on=f"{wait.kind} {wait.what}", why=why, hint=hint))

    def _give_up(self, number: int, error: NightcrewError) -> None:
        """The graph forgets it at once; its request hears of it soon."""
        parked = self._parked.get(number)
        if parked is None:
            return
        if parked.scope is None:
            self._leave(number, "nobody asked again" if isinstance(error, TimedOut) else _ending(error))
            return
        parked.error = parked.error or error
        self._forget(number)
        self._unsaid[number] = _ending(error)
        parked.scope.reschedule(asyncio.get_running_loop().time())

    def _enter(self, wait: Wait, parked: _Parked) -> None:
        self.graph.put(wait)
        self._parked[wait.number] = parked
        self._of_task[wait.task] += 1

    def _forget(self, number: int) -> None:
        if self._parked.pop(number, None) is not None and (wait := self.graph.drop(number)) is not None:
            self._of_task[wait.task] -= 1
            if not self._of_task[wait.task]:
                del self._of_task[wait.task]

    def _leave(self, number: int, why: str) -> None:
        self._forget(number)
        if not self._closed:
            self._unsaid[number] = why
            self._say_ended()

    def _begin_row(self, project: str, wait: Wait) -> int:
        try:
            return self._waits.begin(project, wait)
        except (DiskFull, LedgerError) as error:
            self._say(error)
            return next(self._rowless)

    def _change_row(self, wait: Wait) -> None:
        try:
            self._waits.change(wait)
        except (DiskFull, LedgerError) as error:  # what others wait for is read from the graph; a row is for who looks, and the next start
            self._say(error)

    def _say_ended(self) -> None:
        if not self._unsaid:
            return
        try:
            self._waits.end(list(self._unsaid.items()))
        except (DiskFull, LedgerError) as error:  # the wait is over all the same, and the row is tried again
            self._say(error)
        else:
            self._unsaid.clear()

    def _journal(self, wait: Wait, event: str, why: str) -> None:
        now = self._clock.monotonic()
        if now - self._told.get(wait.task, -TOLD_S) < TOLD_S:
            return
        self._told = {task: at for task, at in self._told.items() if now - at < TOLD_S} | {wait.task: now}
        with contextlib.suppress(DiskFull):  # whoever asked is told all the same
            self._waits.journal(wait.task, wait.epoch, event, {"why": why})

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._closed or not (self._parked or self._unsaid):
            return
        left = min((parked.deadline for parked in self._parked.values()), default=math.inf) - self._clock.monotonic()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, min(left, LOOK_S)), self.step)

    # By the crew -----------------------------------------------------------------------------------------------------------------------

    def _lives(self, wait: Wait) -> bool:
        """False once it is known that the attempt has ended: right after a restart nothing is known."""
        task = self._crew.tasks.get(wait.task)
        return task is None or (task.attempt is not None and task.epoch == wait.epoch)

    def _importance(self, name: str) -> int:
        task = self._crew.tasks.get(name)
        return importance(task) if task is not None else 0


def _shown(what: str) -> str:
    return one_line(what)[:WHAT_MAX]


def _named(holders: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(holders))


def _ending(error: NightcrewError) -> str:
    return "timed out" if isinstance(error, TimedOut) else "given up"


# Awaited notes
# -------------
# Notes that tasks wait for: looked at once when a task begins to wait, and at each change of theirs from then on.


AGAIN_S = 2.0


class AwaitedNotes:
    """Of all projects. It belongs to one event loop."""

    def __init__(self, loop: Loop, desk: MemoryDesk) -> None:
        self._loop, self._desk = loop, desk
        self._pending: set[str] = set()
        self._wake = asyncio.Event()

    def look_for(self, name: str) -> None:
        """Offer `NoteAppeared` when the note is there; when it is not, its next change decides."""
        self._pending.add(name)
        self._wake.set()

    def _again(self, names: Iterable[str]) -> None:
        self._pending.update(names)
        self._wake.set()

    def changed(self, project: str, change: Change) -> None:
        """Look at a note that somebody waits for."""
        if (name := note(project, change.path)) in self._loop.crew.readers:
            self.look_for(name)

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            by_project: dict[str, list[str]] = {}
            for name in sorted(self._pending):
                by_project.setdefault(name.partition(":")[0], []).append(name)
            self._pending.clear()
            for project, names in by_project.items():
                await self._look(project, names)

    async def _look(self, project: str, names: list[str]) -> None:
        try:
            self._desk.follow(project)
            top = self._desk.layout(project).root
            found = await self._desk.on_thread(lambda: [name for name in names if _is_there(top, name)])
        except (NightcrewError, OSError) as error:  # a full disk, or no handle left: it is looked at again
            self._loop.alert(f"memory of {project}: {error.line() if isinstance(error, NightcrewError) else error}")
            asyncio.get_running_loop().call_later(AGAIN_S, self._again, names)
            return
        if found:
            self._loop.events(map(NoteAppeared, found))


def _is_there(top: Path, name: str) -> bool:
    path = name.partition(":")[2]
    return is_file(top, f"memory/{path}", size_max(path))
