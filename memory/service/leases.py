"""Leases: who has them and who waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from memory.lease_rows import TAKEN_BACK, TTL_S, Leases
from supervisor.kernel import leases
from supervisor.kernel.codec import Bound, Handler, Project, Word
from supervisor.kernel.errors import NotFound, Refused, UsageError, one_line
from supervisor.kernel.events import Event, LeasesChanged
from supervisor.kernel.format import rfc3339
from supervisor.kernel.leases import GLOBS_MAX, HOLDS_S, PROJECT_MAX, Lease, Mode, WaitKind, Wanted
from supervisor.kernel.names import attempt_name
from supervisor.kernel.path_globs import normalised, overlap
from supervisor.kernel.settings import LeaseRule
from supervisor.server.wakeups import beside, was_set

if TYPE_CHECKING:
    from memory.service.desk import MemoryDesk
    from memory.service.waits import WaitDesk
    from supervisor.host.clock import Clock
    from supervisor.host.paths import Home
    from supervisor.kernel.crew import Crew
    from supervisor.server.agent_requests import Asked
    from supervisor.server.loop import Loop


# Leases
# ------
# Leases on the files of a repository: who has them, who waits for them, and what they say of a write.
#
# A request is granted at once, refused, or waits its turn: it goes behind every request that came before it and that it collides
# with, so that a stream of shared ones cannot keep an exclusive one waiting for ever. The rows are the ledger's; what is here is
# lost with the process and made again from them. Within one life of the supervisor time is monotonic: a clock that is set anew ends
# no lease.


RENEW_S = 60.0
"""Between two renewals; also of the look for leases of attempts that do not live."""
LOOK_S = 1.0
"""How often who waits looks by itself: a lease may end by time alone."""
TTL_MAX_S = 86_400.0
SHOWN = 200
"""Characters of a path or a pattern in what an agent is told."""
TOLD_MAX = 100
"""Paths of an attempt of which the history and its agent are told."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Whose request it is."""

    project: str
    task: str
    epoch: int
    kin: tuple[str, ...] = ()
    """The tasks above its own: what they hold is no obstacle."""
    given: tuple[str, ...] = ()
    """The `paths` that its plan gives its task."""


@dataclass(eq=False, slots=True)
class _Waiter:
    asker: Asker
    wanted: Wanted
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    blocked_by: dict[int, bool] = field(default_factory=dict)
    """By fence of each held lease, whether it keeps this request waiting."""
    collides: dict[_Waiter, bool] = field(default_factory=dict)
    """By earlier waiter, whether both want overlapping paths."""


@dataclass(frozen=True, slots=True)
class Said:
    """What leases say of a write."""

    decision: str = ""
    """`deny`, `warn`, or nothing."""
    why: str = ""
    """One line for the agent."""
    is_new: bool = False
    """It was not told of this path before."""


@dataclass(frozen=True, slots=True)
class Doors:
    """What the desk acts upon."""

    leases: Leases
    crew: Crew
    waits: WaitDesk
    clock: Clock
    tell: Callable[[Event], None]
    """Takes an event for the next decision."""
    journal: Callable[[str, int, str, dict[str, object]], None]


class LeaseDesk:
    """One supervisor's. It belongs to one event loop; `kept` runs it."""

    def __init__(self, doors: Doors, rule: LeaseRule = LeaseRule.WARN) -> None:
        self._doors = doors
        self.rule = rule
        self._queues: dict[str, list[_Waiter]] = {}
        self._ends: dict[int, float] = {}
        """When each lease ends that is not renewed until then: monotonic, by its fence."""
        self._told: dict[tuple[str, int], set[str]] = {}

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Renew and end leases until left."""
        loop = asyncio.get_running_loop()
        self._doors.leases.on_end = lambda: self._wake_soon(loop)
        async with beside(self._renew()):
            try:
                yield
            finally:
                self._doors.leases.on_end = lambda: None

    # For who asks ------------------------------------------------------------------------------------------------------------------------

    async def take(self, asker: Asker, globs: Collection[str], mode: Mode, wait_s: float = 0.0, ttl_s: float | None = None) -> list[Lease]:
        """Lease all of these normal forms to an attempt, once no other lease overlaps. Return its leases, earlier and new ones.

        Raises Refused when another attempt has an overlapping lease and `wait_s` is 0, when a person took one of them from the attempt, or
        when it would hold too many; what `WaitDesk.waiting` raises, and StaleEpoch when its attempt ended meanwhile.
        """
        wanted = Wanted(asker.task, tuple(dict.fromkeys(globs)), mode)
        waiter = _Waiter(asker, wanted)
        what = ", ".join(wanted.globs)
        self._refuse_taken_back(asker, wanted)
        if not (ahead := self._ahead(waiter)):
            self._doors.waits.answered(asker.task, asker.epoch, WaitKind.LEASE, what)
            return self._give(asker, wanted, ttl_s)
        if wait_s <= 0:
            why = "; ".join(dict.fromkeys(ahead.values()))
            hint = "ask again with a time to wait, work on something else, or write to its holder"
            raise Refused("another task has", on=what[:200], why=why, kept="what it holds already", hint=hint)
        queue = self._queues.setdefault(asker.project, [])
        queue.append(waiter)
        try:
            async with self._doors.waits.waiting(asker.project, asker.task, asker.epoch, WaitKind.LEASE, what, ahead, wait_s) as number:
                while ahead := self._ahead(waiter):
                    self._doors.waits.change_holders(number, ahead)
                    waiter.woken.clear()
                    await was_set(waiter.woken, LOOK_S)
                self._refuse_taken_back(asker, wanted)
                return self._give(asker, wanted, ttl_s)
        finally:
            queue.remove(waiter)
            if not queue:
                self._queues.pop(asker.project, None)
            self._wake()

    def release(self, asker: Asker, globs: Collection[str], fences: Collection[int]) -> list[Lease]:
        """End what an attempt holds of these; without any, all that it holds."""
        own = [lease for lease in self.held(asker.project) if (lease.task, lease.epoch) == (asker.task, asker.epoch)]
        every = not globs and not fences
        return self._end(asker.project, [lease for lease in own if every or lease.glob in globs or lease.fence in fences], "given back")

    def force(self, project: str, fences: Collection[int], word: str) -> list[Lease]:
        """End leases of anybody, since a person says so."""
        known = [lease for lease in self.held(project) if lease.fence in fences]
        return self._end(project, known, f"{TAKEN_BACK}: {word}", "lease ended by a person")

    def held(self, project: str) -> list[Lease]:
        """What is held in a project now, the oldest first."""
        found = self._doors.leases.held(project)
        over = [lease for lease in found if self._is_over(lease)]
        if over:
            self._end(project, over, "it was not renewed" if over[0].renews else "its time was over", "lease expired")
            found = self._doors.leases.held(project)
        return found

    def waiting(self, project: str) -> list[dict[str, Any]]:
        """Who waits, the first one first."""
        return [
            {"task": one.asker.task, "globs": list(one.wanted.globs), "mode": str(one.wanted.mode), "for": list(self._ahead(one))}
            for one in self._queues.get(project, ())
        ]

    def write(self, asker: Asker, path: str) -> Said:
        """What is to be said of a write to a path from the root; a write that is not harmless is in the history, once for each path."""
        if self.rule is LeaseRule.OFF:
            return Said()
        holder = next(iter(leases.holders_of(path, self.held(asker.project), asker.task, asker.kin)), None)
        if holder is None:
            return Said()
        denies = self.rule is LeaseRule.STRICT
        why = f"{one_line(path)[:SHOWN]} belongs to {holder.task}, {leases.SAID} {holder.glob[:SHOWN]}"
        why += f" since {rfc3339(holder.acquired)}"
        why += (
            "; work on something else, or ask for it: lease take" if denies else "; the write goes through, and may conflict with its work"
        )
        told = self._told.setdefault((asker.task, asker.epoch), set())
        is_new = path not in told and len(told) < TOLD_MAX
        if is_new:
            told.add(path)
            data: dict[str, object] = {"path": path, "holder": attempt_name(holder.task, holder.epoch), "glob": holder.glob}
            self._doors.journal(asker.task, asker.epoch, "write denied" if denies else "write beside a lease", data)
        return Said("deny" if denies else "warn", why, is_new)

    def _refuse_taken_back(self, asker: Asker, wanted: Wanted) -> None:
        """Refuse an attempt the paths that a person took from it."""
        gone = self._doors.leases.taken_back(asker.task, asker.epoch)
        if found := next((glob for glob in wanted.globs if any(overlap(glob, other) for other in gone)), ""):
            why = "a person took it from this task"
            raise Refused("not given", on=found[:SHOWN], why=why, kept="what it holds already", hint="work on something else")

    # Inside ------------------------------------------------------------------------------------------------------------------------------

    def _ahead(self, waiter: _Waiter) -> dict[str, str]:
        """Who must act first, and what that has or wants."""
        held = self.held(waiter.asker.project)
        found = {lease.task: f"{lease.task} has {lease.glob} ({lease.mode})" for lease in self._blockers(held, waiter)}
        for other in self._queues.get(waiter.asker.project, ()):
            if other is waiter:
                break
            if self._collide(other, waiter) and not self._is_blocked_by(held, other, waiter.asker.task):
                found.setdefault(other.asker.task, f"{other.asker.task} waits for {', '.join(other.wanted.globs)[:200]}")
        return found

    @staticmethod
    def _blockers(held: list[Lease], waiter: _Waiter) -> list[Lease]:
        """Compare a request with each lease once, and not at each look."""
        known = waiter.blocked_by
        waiter.blocked_by = {
            lease.fence: known[lease.fence] if lease.fence in known else leases.blocks(lease, waiter.wanted, waiter.asker.kin)
            for lease in held
        }
        return [lease for lease in held if waiter.blocked_by[lease.fence]]

    @staticmethod
    def _collide(other: _Waiter, waiter: _Waiter) -> bool:
        """`other` waits before `waiter`; each pair is compared once."""
        if other not in waiter.collides:
            waiter.collides[other] = leases.collide(other.wanted, waiter.wanted)
        return waiter.collides[other]

    def _is_blocked_by(self, held: list[Lease], other: _Waiter, task: str) -> bool:
        """Whoever waits for this very task gains nothing when it waits too."""
        return any(lease.task == task for lease in self._blockers(held, other))

    def _give(self, asker: Asker, wanted: Wanted, ttl_s: float | None) -> list[Lease]:
        held = self.held(asker.project)
        own = [lease for lease in held if (lease.task, lease.epoch) == (asker.task, asker.epoch)]
        kept = [lease for lease in own if lease.glob in wanted.globs and lease.mode is wanted.mode and lease.renews and ttl_s is None]
        new = tuple(glob for glob in wanted.globs if glob not in {lease.glob for lease in kept})
        if len(own) + len(new) > GLOBS_MAX:
            raise Refused("too many leases", on=asker.task, why=f"an attempt holds at most {GLOBS_MAX}", kept="what it holds already")
        if len(held) + len(new) > PROJECT_MAX:
            raise Refused(
                "too many leases", on=asker.task, why=f"{PROJECT_MAX} are held in a project at most", kept="what it holds already"
            )
        if not new:
            return kept
        made = self._doors.leases.take(asker.project, Wanted(wanted.task, new, wanted.mode), asker.epoch, ttl_s)
        for lease in made:
            self._ends[lease.fence] = self._doors.clock.monotonic() + (TTL_S if ttl_s is None else ttl_s)
        self._say(asker.task, asker.epoch)
        return kept + made

    def _end(self, project: str, ending: Collection[Lease], why: str, note: str = "") -> list[Lease]:
        ended = self._doors.leases.end([lease.fence for lease in ending], why, note)
        for lease in ended:
            self._ends.pop(lease.fence, None)
        for task, epoch in {(lease.task, lease.epoch) for lease in ended}:
            self._say(task, epoch)
        if ended:
            self._wake(project)
        return ended

    def _say(self, task: str, epoch: int) -> None:
        """So that no task starts beside what is held."""
        self._doors.tell(LeasesChanged(task, epoch, self._doors.leases.globs(task, epoch)))

    def _wake_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Once what is being written is committed."""
        loop.call_soon(self._wake)

    def _wake(self, project: str = "") -> None:
        for name in [project] if project else list(self._queues):
            for waiter in self._queues.get(name, ()):
                waiter.woken.set()

    # Time --------------------------------------------------------------------------------------------------------------------------------

    def _is_over(self, lease: Lease) -> bool:
        """By the monotonic clock; after a restart, by what was left of it by the wall clock, which may have been set anew."""
        now = self._doors.clock.monotonic()
        ends = self._ends.get(lease.fence)
        if ends is None:
            left = min(max(0.0, lease.expires - self._doors.clock.wall()), TTL_S if lease.renews else TTL_MAX_S)
            ends = self._ends[lease.fence] = now + left
        return now >= ends and not (lease.renews and self._lives(lease))

    def _lives(self, lease: Lease) -> bool:
        task = self._doors.crew.tasks.get(lease.task)
        return task is not None and task.attempt is not None and task.attempt.epoch == lease.epoch

    def renew(self) -> None:
        """Renew what living attempts hold, end what is over, and forget what was said to attempts that ended."""
        every = self._doors.leases.every()
        for project in {lease.project for lease in every}:
            self.held(project)
        living = [lease.fence for lease in every if lease.renews and self._lives(lease)]
        for key in {(lease.task, lease.epoch) for lease in every if self._holds_too_long(lease)}:
            self._say(*key)
        if living:
            self._doors.leases.renew(living)
            self._ends.update(dict.fromkeys(living, self._doors.clock.monotonic() + TTL_S))
        known = {lease.fence for lease in every}
        self._ends = {fence: ends for fence, ends in self._ends.items() if fence in known}
        tasks = self._doors.crew.living
        self._told = {key: told for key, told in self._told.items() if key[0] in tasks}

    def _holds_too_long(self, lease: Lease) -> bool:
        """Return whether the lease keeps tasks from starting longer than it may."""
        task = self._doors.crew.tasks.get(lease.task)
        attempt = task.attempt if task is not None else None
        return attempt is not None and lease.glob in attempt.leases and self._doors.clock.wall() - lease.acquired >= HOLDS_S

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            self.renew()


# Lease wiring
# ------------
# The desk of the leases, with the doors of one supervisor.


def desk(loop: Loop, waits: WaitDesk) -> LeaseDesk:
    """It keeps what the ledger has, and tells the loop what agents hold."""

    def tell(event: Event) -> None:
        if loop.crew.lines.behind:  # a task may be able to start
            loop.events([event])
        else:
            loop.later(event)

    def journal(task: str, epoch: int, event: str, data: Mapping[str, object]) -> None:
        loop.ledger.journal(task, epoch, event, data)

    return LeaseDesk(Doors(loop.ledger.of(Leases), loop.crew, waits, loop.clock, tell, journal), loop.settings.memory.leases)


# Lease verbs
# -----------
# The verb `lease`, for agents at `agents.sock` and for people at `daemon.sock`.


WAIT_MAX_S = 3600.0
PATH_MAX = 4096
_FAMILY_MAX = 32


def _glob(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError("it must be text")  # noqa: TRY004 - as every rule of a request
    return normalised(given)


Globs = Annotated[tuple[Annotated[Any, _glob], ...], Bound(0, GLOBS_MAX)]
Fences = Annotated[tuple[Annotated[int, Bound(1)], ...], Bound(0, 1000)]
"""The numbers that `ls` shows."""


def asker(loop: Loop, task: str, epoch: int) -> Asker:
    """Whose request it is, with the tasks above it."""
    row = loop.ledger.launch_row(task)
    kin: list[str] = []
    parent = row.spec.parent
    while parent and len(kin) < _FAMILY_MAX:
        kin.append(parent)
        try:
            parent = loop.ledger.launch_row(parent).spec.parent
        except KeyError:
            break
    return Asker(row.project, task, epoch, tuple(kin), row.spec.paths)


def said_of(loop: Loop, home: Home, desk: LeaseDesk, who: Asker, path: str, cwd: str = "") -> tuple[Said, str | None]:
    """What is to be said of a write of an attempt, and its path from the root; None: it is not in its worktree, and nobody's."""
    row = loop.ledger.attempt(who.task, who.epoch)
    found = leases.below_root(path, [row.worktree or "" if row is not None else "", str(home.same_path(who.project))], cwd)
    return (desk.write(who, found), found) if found is not None else (Said(), None)


def _asker(asked: Asked) -> Asker:
    return asker(asked.loop, asked.task, asked.epoch)


async def take(
    asked: Asked,
    *,
    globs: Globs,
    mode: Mode = Mode.EXCLUSIVE,
    wait_s: Annotated[float, Bound(0, WAIT_MAX_S)] = 0.0,
    ttl: Annotated[float, Bound(1, TTL_MAX_S)] | None = None,
) -> dict[str, Any]:
    """Lease all of the patterns or none. Returns `leases`. Raises UsageError, Refused, Deadlock, TimedOut, Chosen, StaleEpoch, DiskFull,
    LedgerError."""
    who = _asker(asked)
    if not globs:
        raise UsageError("not a request", on="globs", why="at least one pattern")
    if why := leases.why_not(globs, who.given):
        raise Refused("not given", on=who.task, why=why, kept="what it holds already")
    return {"leases": [shape(lease) for lease in await asked.memory.leases.take(who, globs, mode, wait_s, ttl)]}


async def release(asked: Asked, *, globs: Globs = (), fences: Fences = ()) -> dict[str, Any]:
    """Release leases of the attempt, without both all that it holds. Returns `released`."""
    return {"released": [shape(lease) for lease in asked.memory.leases.release(_asker(asked), globs, fences)]}


async def list_held(asked: Asked) -> dict[str, Any]:
    """Return `leases` and `waiting` of the agent's project."""
    return _held(asked.memory.leases, _asker(asked).project)


async def check(asked: Asked, *, path: Annotated[str, Bound(1, PATH_MAX)], cwd: Annotated[str, Bound(0, PATH_MAX)] = "") -> dict[str, Any]:
    """Say whether a write is welcome: `path` from the root, `decision` (deny, warn or nothing) and `why`. `cwd`: where `path` begins when
    it is relative."""
    said, found = said_of(asked.loop, asked.home, asked.memory.leases, _asker(asked), path, cwd)
    return {"path": found, "decision": said.decision, "why": said.why}


async def list_of_project(memory: MemoryDesk, *, project: Project) -> dict[str, Any]:
    """Return `leases` and `waiting` of a project, for a person."""
    return _held(memory.leases, project)


async def end(memory: MemoryDesk, *, project: Project, fences: Fences, why: Word) -> dict[str, Any]:
    """Release leases of anybody, for a person. Returns `released`. Raises NotFound, DiskFull, LedgerError."""
    ended = memory.leases.force(project, fences, why)
    if not ended:
        raise NotFound("no such lease", on=", ".join(map(str, fences))[:100], why="nobody holds it", hint="nightcrew mem leases")
    return {"released": [shape(lease) for lease in ended]}


def _held(desk: LeaseDesk, project: str) -> dict[str, Any]:
    return {"leases": [shape(lease) for lease in desk.held(project)], "waiting": desk.waiting(project)}


OF_AGENT: Mapping[str, Handler] = {"take": take, "release": release, "ls": list_held, "check": check}
OF_PERSON: Mapping[str, Handler] = {"ls": list_of_project, "release": end}


def shape(lease: Lease) -> dict[str, Any]:
    """As agents and `--json` have it."""
    times = {name: rfc3339(getattr(lease, name)) for name in ("acquired", "expires")}
    same = {name: getattr(lease, name) for name in ("fence", "glob", "task", "epoch", "renews")}
    return {**same, "mode": str(lease.mode), **times}


# Lease hooks
# -----------
# What an agent's command line is told before it writes a file, by the hook that it calls then.
#
# Claude Code and Codex read the same words on the hook's stdout (`hookSpecificOutput`): a decision `deny` with its reason, which
# the model is shown, or `additionalContext`, which it is shown beside the tool's result. Codex writes files by `apply_patch`, whose
# patch names them.


EVENT = "PreToolUse"
PATHS_MAX = 200
"""Files of one patch that are looked at."""
_FILE = {"Edit": "file_path", "Write": "file_path", "MultiEdit": "file_path", "NotebookEdit": "notebook_path"}
_PATCHES = frozenset({"apply_patch"})
_PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+?)\s*$", re.MULTILINE)


def answer(loop: Loop, home: Home, desk: LeaseDesk, key: tuple[str, int], name: str, event: dict[str, Any] | None) -> dict[str, Any]:
    """What the hook of a living attempt gets: `print`, the object to print, or nothing."""
    if name != EVENT or not event or not (paths := written(event)):
        return {}
    who, cwd = asker(loop, *key), event.get("cwd")
    said = [said_of(loop, home, desk, who, path, cwd if isinstance(cwd, str) else "")[0] for path in paths]
    if denied := next((one for one in said if one.decision == "deny"), None):
        return _printed({"permissionDecision": "deny", "permissionDecisionReason": denied.why})
    warned = next((one for one in said if one.decision == "warn" and one.is_new), Said())
    return shown_beside(warned.why) if warned.why else {}


def shown_beside(text: str) -> dict[str, Any]:
    """Return the answer that shows the model a text beside the tool's result."""
    return _printed({"additionalContext": text})


def written(event: dict[str, Any]) -> list[str]:
    """The files that a tool is about to write, as it names them."""
    tool, given = event.get("tool_name"), event.get("tool_input")
    if not isinstance(given, dict) or not isinstance(tool, str):
        return []
    if tool in _PATCHES:
        patch = next((text for text in (given.get("command"), given.get("input"), given.get("patch")) if isinstance(text, str)), "")
        found: list[Any] = [match[1] for match in _PATCHED.finditer(patch)][:PATHS_MAX]
    else:
        found = [given.get(_FILE.get(tool, ""))]
    return [path for path in found if isinstance(path, str) and 0 < len(path) <= PATH_MAX]


def _printed(more: dict[str, str]) -> dict[str, Any]:
    return {"print": {"hookSpecificOutput": {"hookEventName": EVENT, **more}}}
