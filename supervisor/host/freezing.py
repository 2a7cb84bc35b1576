"""Suspending an agent: its whole process tree is stopped, keeps its memory, and goes on where it was.

A control group does that at once. Elsewhere every process gets SIGSTOP, until a look at the whole tree finds nobody new and nobody that
moves: a stopped process cannot fork, so then nobody can. The runner is never stopped: it keeps the pane, and its deadline goes on.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.errors import ToolFailed
from supervisor.core.records import Identity
from supervisor.host import processes, procfs
from supervisor.host.cgroups import Group
from supervisor.host.procfs import Seen

_WAIT_S = 5.0
_POLITE_S = 2.0
"""So long parents are seen to stand still before their children are stopped; a tree that forks faster than that is stopped anyhow."""
_POLL_S = 0.005
_STOPPED = frozenset("Tt")
_STILL = _STOPPED | frozenset("DZX")
"""States in which no code of a process runs. D is inside the kernel: a parent in `vfork`, a disk that does not answer. A stop that was sent
to it is served before it sees its own code again."""

_Found = dict[tuple[int, int], Seen]
"""By `Seen.key`."""


@dataclass(frozen=True, slots=True)
class Tree:
    """What is to be stopped: everything that carries `tag` or its mark, or is below such a process or below `runner`."""

    tag: str
    runner: Identity | None = None
    group: Group | None = None
    """The agent's control group, when it has one."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """What a suspend did."""

    held: int
    """Processes that stand still."""
    moving: tuple[Identity, ...] = ()
    """Those that could not be stopped: normally nobody. Processes of another user (sudo)."""
    before: tuple[Identity, ...] = ()
    """Those that already were stopped (Ctrl-Z), for `resume` to leave so. For a second suspend these are all that the first one stopped:
    keep the first one's."""


def suspend(tree: Tree) -> Suspended:
    """Stop the whole tree where it stands; again is harmless. Takes milliseconds, and at most 10 s when something cannot be stopped."""
    inside = tree.group.pids() if tree.group is not None and _freeze(tree.group) else set[int]()
    rest = _Stopping(tree, inside)  # all of it without a group; with one, whoever had the right to leave it, and did
    rest.run()
    return Suspended(len(inside) + len(rest.sent) + len(rest.before), _identities(rest.refused), _identities(rest.before))


def resume(tree: Tree, leave: Collection[Identity] = ()) -> int:
    """Let the tree go on, but for `leave` (`Suspended.before`); how many processes it has. Harmless when it is not suspended.

    Resume children first, so that no job-control shell sees a stopped child.
    """
    members = [seen for generation in reversed(_generations(tree)) for seen in generation]
    inside = tree.group.pids() if tree.group is not None and tree.group.frozen() else set[int]()
    left = {(who.pid, who.ticks) for who in leave}
    for seen in members:
        if seen.pid not in inside and seen.key not in left:
            procfs.send(seen, signal.SIGCONT)
    if tree.group is not None:
        tree.group.thaw()
    return len(members)


def _freeze(group: Group) -> bool:
    try:
        return group.freeze()
    except ToolFailed:  # no freezer here, or the group is gone: signals do it
        return False


def _generations(tree: Tree) -> list[list[Seen]]:
    """Who lives of the tree now: parents in an earlier list than their children."""
    left = processes.members(tree.tag, tree.runner)
    found = []
    while left:
        pids = {seen.pid for seen in left}
        found.append([seen for seen in left if seen.ppid not in pids] or left)  # no ring can be, but while pids are reused
        left = [seen for seen in left if seen not in found[-1]]
    return found


class _Stopping:
    """One attempt at stopping everything of a tree that no frozen group holds."""

    def __init__(self, tree: Tree, inside: Collection[int]) -> None:
        self._tree = tree
        self._inside = inside
        self.sent: _Found = {}
        self.before: _Found = {}
        self.refused: _Found = {}

    def run(self) -> None:
        """Rounds of looking and stopping, until one finds nothing to do."""
        began = time.monotonic()
        while restless := self._round(began + _POLITE_S):
            if time.monotonic() > began + _WAIT_S:
                self.refused |= {key: seen for key, seen in restless.items() if procfs.lives(seen)}
                break
            time.sleep(_POLL_S)
        self.sent = {key: seen for key, seen in self.sent.items() if key not in self.refused and procfs.lives(seen)}

    def _round(self, polite_until: float) -> _Found:
        """Stop whoever moves; who did, or might have while we looked."""
        restless: _Found = {}
        for generation in _generations(self._tree):
            moving = [
                seen for seen in generation if seen.pid not in self._inside and seen.key not in self.refused and not self._still(seen)
            ]
            sent = [seen for seen in moving if self._stop(seen)]
            restless |= {seen.key: seen for seen in sent}
            while not all(map(self._still, sent)) and time.monotonic() < polite_until:
                time.sleep(_POLL_S / 10)
        return restless

    def _stop(self, seen: Seen) -> bool:
        if procfs.send(seen, signal.SIGSTOP):
            self.sent[seen.key] = seen
            return True
        if procfs.lives(seen):
            self.refused[seen.key] = seen
        return False

    def _still(self, seen: Seen) -> bool:
        states = _states(seen.pid)
        if seen.key in self.sent:
            return states <= _STILL
        if states and states <= _STOPPED:
            self.before[seen.key] = seen
        return states <= _STOPPED


def _states(pid: int) -> set[str]:
    """Those of all threads; empty when the process is gone."""
    if not procfs.has_proc():
        seen = procfs.look(pid)
        return {seen.state} if seen is not None else set()
    stats = (procfs.slurp(str(thread / "stat")).rpartition(b")")[2].split() for thread in _threads(pid))
    return {fields[0].decode("ascii") for fields in stats if fields}


def _threads(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _identities(found: _Found) -> tuple[Identity, ...]:
    return tuple(Identity(seen.pid, seen.ticks, processes.boot_id()) for seen in found.values())
