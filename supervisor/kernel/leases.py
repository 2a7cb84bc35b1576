"""Leases on the files of a repository: who may have one. Their patterns are those of `path_globs`. Pure."""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import chain
from typing import Any, Final, Protocol, TypeVar

from supervisor.kernel.errors import one_line
from supervisor.kernel.format import many
from supervisor.kernel.path_globs import covers, names_top, overlap, wildcards

# Leases
# ------


SAID = "which has an exclusive lease on"
"""In every word about a write that is another's: who reads what an agent prints knows it by that."""
GLOBS_MAX = 64
"""Patterns that a task has, or that an attempt holds, at once."""
WILDCARDS_MAX = 8
"""Wildcards of a pattern that an agent gives."""
PROJECT_MAX = 2048
"""Leases that are held in a project at once."""
HOLDS_S = 1800.0
"""Seconds for which a lease that an agent took keeps other tasks from starting."""


def why_not(globs: Iterable[str], given: Collection[str]) -> str:
    """Return why an agent may not have these normal forms to itself; empty if it may. `given`: the `paths` that its plan gives its task."""
    for glob in globs:
        if glob in given:
            continue
        if wildcards(glob) > WILDCARDS_MAX:
            return f"{one_line(glob)[:100]} has more than {WILDCARDS_MAX} wildcards"
        if not names_top(glob):
            return f"{one_line(glob)[:100]} may cover the whole project: begin with the name of a file or directory, as src/**"
    return ""


class Mode(StrEnum):
    """Who else may hold what overlaps."""

    SHARED = "shared"
    """Others that are shared."""
    EXCLUSIVE = "exclusive"


@dataclass(frozen=True, slots=True)
class Lease:
    """One lease. Moments are seconds since 1970."""

    fence: int
    """Greater than that of every lease that was given before it and is held."""
    project: str
    glob: str
    mode: Mode
    task: str
    epoch: int
    acquired: float
    expires: float
    renews: bool = True
    """The supervisor renews it while its attempt lives."""
    ended: float | None = None
    why: str = ""
    """Why it ended."""


def below_root(path: str, roots: Iterable[str], cwd: str = "") -> str | None:
    """A path, as an agent wrote it, from the root of its worktree, which it sees at one of `roots`; None when it is elsewhere. By the words
    alone: no link is followed."""
    if "\0" in path or not path:
        return None
    for root in filter(None, roots):
        place = posixpath.normpath(posixpath.join(cwd or root, path))
        if place.startswith(f"{root.rstrip('/')}/"):
            return place[len(root.rstrip("/")) + 1 :]
    return None


# Who may have one -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody asks for: all of these patterns, or none."""

    task: str
    globs: tuple[str, ...]
    mode: Mode


def blocks(lease: Lease, wanted: Wanted, kin: Collection[str] = ()) -> bool:
    """Return whether this lease of another task stands in the way of `wanted`. Leases of `kin` never do: an agent shares its leases with
    the tasks that it added."""
    if lease.task in kin or lease.task == wanted.task or Mode.EXCLUSIVE not in (lease.mode, wanted.mode):
        return False
    return any(overlap(lease.glob, glob) for glob in wanted.globs)


def collide(one: Wanted, other: Wanted) -> bool:
    """Whether two that wait cannot both have what they want. The one that came first goes first, so that a stream of shared ones cannot
    keep an exclusive one waiting for ever."""
    if one.task == other.task or Mode.EXCLUSIVE not in (one.mode, other.mode):
        return False
    return any(overlap(mine, theirs) for mine in one.globs for theirs in other.globs)


# What was written without one -----------------------------------------------------------------------------------------------------------

UNLEASED_MAX = 100
"""Paths that a result lists."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What an attempt and the others of its project held while it lived."""

    own: tuple[str, ...] = ()
    others: tuple[Lease, ...] = ()
    """Exclusive ones."""
    strict: bool = False
    """Each path that is written needs a lease."""

    @property
    def matters(self) -> bool:
        """Whether a path could be unleased at all."""
        return bool(self.others) or self.strict


def holders_of(path: str, held: Iterable[Lease], task: str, kin: Collection[str] = ()) -> list[Lease]:
    """The exclusive leases of others that cover a path."""
    others = (lease for lease in held if lease.task != task and lease.task not in kin and lease.mode is Mode.EXCLUSIVE)
    return [lease for lease in others if covers(lease.glob, path)]


def unleased(paths: Iterable[str], held: Beside) -> dict[str, object] | None:
    """Of the paths that an attempt wrote, those that somebody else held, and, when it is strict, those that none of its own patterns
    covers: `total`, and `paths`, at most UNLEASED_MAX of {`path`, `holder`}, the last being null where nobody held it. None when there are
    none."""
    found: list[dict[str, str | None]] = []
    count = 0
    for path in paths:
        holder = next((lease.task for lease in held.others if covers(lease.glob, path)), None)
        if holder or (held.strict and not any(covers(glob, path) for glob in held.own)):
            count += 1
            if len(found) < UNLEASED_MAX:
                found.append({"path": path.encode("utf-8", "backslashreplace").decode(), "holder": holder})
    return {"total": count, "paths": found} if found else None


def unleased_note(found: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The same in a sentence, for people."""
    if found is None:
        return ()
    holders = sorted({one["holder"] for one in found["paths"] if one["holder"]})
    whose = f" that others held ({', '.join(holders[:3])}{' and more' if len(holders) > 3 else ''})" if holders else " without a lease"
    first = ", ".join(one_line(str(one["path"]))[:100] for one in found["paths"][:3])
    return (f"wrote {many(found['total'], 'file')}{whose}: {first}{', ...' if found['total'] > 3 else ''}",)


# Wait graph
# ----------
# Who waits for whom, and whether a wait could ever end. Pure.
#
# A node is a task, or `person`; an edge goes from who waits to who must act first. A wait whose end only time brings (a rate, a note that
# somebody may write) has no holder: it is kept, since people ask what an agent waits for, and stands in no cycle. A person waits
# for nobody
# here, so no cycle goes through one.
#
# A wait ends when all of its holders have acted, or with `any_of` when one has. So with waits of the first sort a cycle is a deadlock; a
# cycle through one of the second sort is a deadlock only when none of its other holders can go on either (`stuck`). A task with several
# waits is taken to need the end of each: whether it works on meanwhile only its agent knows, and that one can wait with a shorter
# time-out.


T = TypeVar("T")

PERSON: Final = "person"
STATIC: Final = 0
"""The number of a wait that nobody registered: it follows from the plan, such as `after`."""


class WaitKind(StrEnum):
    """What is waited for."""

    LEASE = "lease"
    TASK = "task"
    MAIL = "mail"
    HUMAN = "human"
    RATE = "rate"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait of one attempt."""

    number: int
    """Of its row in the ledger; STATIC for one that has none."""
    task: str
    epoch: int
    kind: WaitKind
    what: str
    """In words, of one line; part of it may be an agent's text."""
    holders: tuple[str, ...]
    """Tasks, or `person`."""
    since: float
    until: float
    """Seconds since 1970; 0 for one that has no end."""
    any_of: bool = False
    """One of its holders is enough."""

    def words(self) -> str:
        """`A waits for one of B, C (lease src/**)`."""
        who = ("one of " if self.any_of and len(self.holders) > 1 else "") + ", ".join(self.holders)
        return f"{self.task} waits for {who or 'time'} ({self.kind} {self.what})"

    def shape(self) -> dict[str, object]:
        """As it crosses the socket."""
        return {**asdict(self), "kind": str(self.kind), "holders": list(self.holders)}


Cycle = tuple[Wait, ...]
"""Each waits for the next one's task, and the last one for the first one's."""


class PlanEdges(Protocol):
    """The waits that follow from the plan. They are asked for anew each time, so they are as the plan is."""

    def of(self, task: str) -> Sequence[Wait]:
        """What a task waits for; nothing for one whose agent lives, since that registers its waits."""
        ...

    def ahead(self, task: str) -> Collection[str]:
        """The holders of these waits; some that a task does not wait for may be among them."""
        ...

    def behind(self, holder: str) -> Collection[str]:
        """Every task that waits for `holder`; some that do not may be among them."""
        ...


class _NoPlan:
    def of(self, task: str) -> Sequence[Wait]:  # noqa: ARG002 - as its protocol says
        return ()

    def ahead(self, task: str) -> Collection[str]:  # noqa: ARG002 - as above
        return ()

    behind = ahead


class WaitGraph:
    """All open waits, by who waits and by who holds."""

    def __init__(self, waits: Iterable[Wait] = (), plan: PlanEdges | None = None) -> None:
        self._plan = plan or _NoPlan()
        self._waits: dict[int, Wait] = {}
        self._of: dict[str, dict[int, Wait]] = {}
        self._behind: dict[str, dict[int, str]] = {}
        """Who waits for each holder, by the number of the wait."""
        for wait in waits:
            self.put(wait)

    @property
    def waits(self) -> Mapping[int, Wait]:
        """Those that were put, by number."""
        return self._waits

    def put(self, wait: Wait) -> None:
        """Add a wait, or replace the one of its number."""
        self.drop(wait.number)
        self._waits[wait.number] = wait
        self._of.setdefault(wait.task, {})[wait.number] = wait
        for holder in wait.holders:
            self._behind.setdefault(holder, {})[wait.number] = wait.task

    def drop(self, number: int) -> Wait | None:
        """Forget a wait; what it was."""
        wait = self._waits.pop(number, None)
        if wait is not None:
            _remove(self._of, wait.task, number)
            for holder in set(wait.holders):
                _remove(self._behind, holder, number)
        return wait

    def of(self, task: str) -> Collection[Wait]:
        """What a task waits for."""
        found = self._of.get(task)
        return found.values() if found else self._plan.of(task)

    def cycle(self, new: Wait) -> Cycle:
        """The shortest cycle in which `new` stands, or would stand, when it could never end; else (). It is the first of the cycle."""
        if not self._closes(new):
            return ()
        found, maybe = self._shortest(new)
        if maybe and new.task not in stuck(self._around(new)):
            return ()
        return found

    def _closes(self, new: Wait) -> bool:
        """Whether there may be a cycle. It is looked for from both ends in turn, so that it costs as much as the smaller side: behind an
        agent a whole plan may wait, and before it one more agent."""
        if new.task in new.holders:
            return True
        before, behind = set(new.holders), {new.task}
        ahead, back = _reached(list(new.holders), before, self._ahead), _reached([new.task], behind, self._back)
        while True:
            if (one := next(ahead, None)) is None:
                return False
            if one in behind:
                return True
            if (one := next(back, None)) is None:
                return False
            if one in before:
                return True

    def _ahead(self, name: str) -> Iterable[str]:
        waits = self._of.get(name)
        if waits is None:
            return self._plan.ahead(name)
        if len(waits) == 1:  # as nearly always
            for wait in waits.values():
                return wait.holders
        return chain.from_iterable(wait.holders for wait in waits.values())

    def _back(self, name: str) -> Iterable[str]:
        waits, planned = self._behind.get(name), self._plan.behind(name)
        if waits is None:
            return planned
        return chain(waits.values(), planned) if planned else waits.values()

    def _shortest(self, new: Wait) -> tuple[Cycle, bool]:
        """The shortest cycle through `new`; and whether it may be none, since one of several is enough for a wait on the way."""
        came, open_ones, maybe, goal = dict.fromkeys(new.holders, new), deque(new.holders), new.any_of, new.task
        if goal in came:
            return (new,), maybe and len(came) > 1
        while open_ones:
            for wait in self.of(open_ones.popleft()):
                maybe = maybe or wait.any_of
                for holder in wait.holders:
                    if holder == goal:
                        return _path(came, wait, new), maybe
                    if holder not in came:
                        came[holder] = wait
                        open_ones.append(holder)
        return (), False

    def _around(self, new: Wait) -> list[Wait]:
        """Every wait that can be reached from the task of `new`, with that."""
        found, seen = [new, *(wait for wait in self.of(new.task) if wait.number != new.number)], {new.task}
        for wait in found:  # grows while it is walked
            for holder in wait.holders:
                if holder not in seen:
                    seen.add(holder)
                    found += self.of(holder)
        return found

    def deadlocks(self) -> list[Cycle]:
        """One cycle of each group of waits that can never end: what a new wait is never let into, and what only arises when a holder or
        the plan changes."""
        found, told = [], set[str]()
        for wait in self._waits.values():
            if wait.task not in told and (cycle := self.cycle(wait)):
                found.append(cycle)
                told.update(one.task for one in cycle)
        return found


def _remove(keyed: dict[str, dict[int, T]], key: str, number: int) -> None:
    del keyed[key][number]
    if not keyed[key]:
        del keyed[key]


def _reached(open_ones: list[str], seen: set[str], edges: Callable[[str], Iterable[str]]) -> Iterator[str]:
    """What can be reached from `open_ones`, one after another; `seen` grows with it, and has those already."""
    add, append = seen.add, open_ones.append
    for name in open_ones:  # grows while it is walked
        for other in edges(name):
            if other not in seen:
                add(other)
                append(other)
                yield other


def _path(came: Mapping[str, Wait], last: Wait, first: Wait) -> Cycle:
    path = [last]
    while path[-1] is not first:
        path.append(came[path[-1].task])
    return tuple(reversed(path))


def stuck(waits: Iterable[Wait]) -> set[str]:
    """The tasks that can never go on: those that are left when again and again a task is taken away none of whose waits lacks a holder."""
    every = [wait for wait in waits if wait.holders]
    missing = [1 if wait.any_of else len(set(wait.holders)) for wait in every]
    blocked: dict[str, int] = {}
    behind: dict[str, list[int]] = {}
    for index, wait in enumerate(every):
        blocked[wait.task] = blocked.get(wait.task, 0) + 1
        for holder in set(wait.holders):
            behind.setdefault(holder, []).append(index)
    able = [holder for holder in behind if holder not in blocked]
    for name in able:  # grows while it is walked
        for index in behind.get(name, ()):
            missing[index] -= 1
            if missing[index] == 0:
                blocked[every[index].task] -= 1
                if not blocked[every[index].task]:
                    able.append(every[index].task)
    return {task for task, number in blocked.items() if number}


def victim(found: Collection[Wait], importance: Callable[[str], int]) -> Wait | None:
    """The wait of a cycle that is given up: of the least important task (`core.task.importance`: the greatest number), then the youngest.
    None when there is none to choose: a person's, and one that follows from the plan, never is."""
    known = [wait for wait in found if wait.number != STATIC and wait.task != PERSON and wait.kind is not WaitKind.HUMAN]
    return max(known, key=lambda wait: (importance(wait.task), wait.since, wait.number), default=None)


def words(found: Collection[Wait], most: int = 8) -> str:
    """A cycle as a sentence; of a long one the middle is left out."""
    said = [wait.words() for wait in found]
    if len(said) > most:
        said[most - 1 : -1] = [f"… {len(said) - most} more …"]
    return ", ".join(said)
