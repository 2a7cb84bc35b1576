"""Pausing an agent: its whole process tree is stopped, keeps its memory, and goes on where it was.

A control group does that at once. Elsewhere every process gets SIGSTOP, until a look at the whole tree finds nobody new and nobody that
moves: a stopped process cannot fork, so then nobody can. The runner is never stopped: it keeps the pane, and its deadline goes on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.errors import ToolFailed
from supervisor.core.identity import Identity
from supervisor.host import processes, procfs
from supervisor.host.cgroups import Group
from supervisor.host.procfs import Seen

_WAIT_S = 5.0
_POLITE_S = 2.0
"""So long parents are seen to stand still before their children are stopped; a tree that forks faster than that is stopped anyhow."""
_POLL_S = 0.005
_EMPTY_S = 0.5
"""So long a tree is looked for of which nobody is found."""
_SWEEP_FROM = 3
"""Rounds after which whole groups are stopped: by then a tree that only has short-lived children stands still."""
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
class Frozen:
    """What a pause did."""

    held: int
    """Processes that stand still."""
    moving: tuple[Identity, ...] = ()
    """Those that could not be stopped: normally nobody. Processes of another user (sudo)."""
    before: tuple[Identity, ...] = ()
    """Those that already were stopped (Ctrl-Z), for `thaw` to leave so. For a second pause these are all that the first one stopped:
    keep the first one's."""


def freeze(tree: Tree) -> Frozen:
    """Stop the whole tree where it stands; again is harmless. Takes milliseconds, and at most 10 s when something cannot be stopped."""
    inside = tree.group.pids() if tree.group is not None and _freeze_group(tree.group) else set[int]()
    rest = _Stopping(tree, inside)  # all of it without a group; with one, whoever had the right to leave it, and did
    rest.run()
    return Frozen(len(inside) + len(rest.sent) + len(rest.before), _identities(rest.refused), _identities(rest.before))


def thaw(tree: Tree, leave: Collection[Identity] = ()) -> int:
    """Let the tree go on, but for `leave` (`Frozen.before`); how many processes it has. Harmless when it is not paused.

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


def _freeze_group(group: Group) -> bool:
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
        self._swept = False
        """Whole process groups got the signal, so that also somebody whom no look has seen yet is stopped by us."""

    def run(self) -> None:
        """Rounds of looking and stopping, until one finds nothing to do. Whoever vanished during a round may have left a child, and a tree
        in which a look finds nobody may be one that no look is quick enough for."""
        began, rounds = time.monotonic(), 0
        while (restless := self._round(began + _POLITE_S)) or (not self._held() and time.monotonic() < began + _EMPTY_S):
            rounds += 1
            if time.monotonic() > began + _WAIT_S:
                self.refused |= {key: seen for key, seen in restless.items() if key not in self.sent or procfs.lives(seen)}
                break
            if rounds >= _SWEEP_FROM:
                self._sweep()
            time.sleep(_POLL_S)
        self.sent = {key: seen for key, seen in self.sent.items() if key not in self.refused and procfs.lives(seen)}

    def _held(self) -> bool:
        """Whether anybody stands still."""
        return bool(self._inside) or any(map(procfs.lives, [*self.sent.values(), *self.before.values()]))

    def _sweep(self) -> None:
        """Stop whole groups: who forks a successor and ends is faster than any look, and the kernel misses none of a group.

        A group belongs to one session, and that of a tree's member is its pane's or one that the tree made. Only the runner's own group
        is not the tree's.
        """
        runner = self._tree.runner.pid if self._tree.runner is not None else 0
        ours = {0, 1, os.getpgrp(), runner, *((seen.group,) if (seen := procfs.look(runner)) is not None else ())}
        for group in {seen.group for seen in self._near()} - ours:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGSTOP)
                self._swept = True

    def _round(self, polite_until: float) -> _Found:
        """Stop whoever moves; who did, or might have while we looked."""
        restless: _Found = {}
        for generation in _generations(self._tree):
            moving = [
                seen for seen in generation if seen.pid not in self._inside and seen.key not in self.refused and not self._still(seen)
            ]
            sent = [seen for seen in moving if self._stop(seen)]
            restless |= {seen.key: seen for seen in moving if seen.key not in self.refused}
            while not all(map(self._still, sent)) and time.monotonic() < polite_until:
                time.sleep(_POLL_S / 10)
        return restless | self._below_runner()

    def _below_runner(self) -> _Found:
        """Who moves below the runner: asked of the tree alone, which takes a hundredth of a look at all processes."""
        return {seen.key: seen for seen in self._near() if seen.key not in self.refused and not self._still(seen)}

    def _near(self) -> list[Seen]:
        """Who is below the runner now, and not in the frozen group."""
        if self._tree.runner is None or not processes.alive(self._tree.runner):
            return []
        return [seen for seen in procfs.descendants(self._tree.runner.pid) if seen.pid not in self._inside]

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
        if not states or not states <= _STOPPED:
            return False
        (self.sent if self._swept and seen.key not in self.before else self.before)[seen.key] = seen
        return True


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
