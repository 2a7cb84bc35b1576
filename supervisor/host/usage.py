"""What the processes of living agents take: memory, processor time, graphics processors.

One pass over the process table serves all agents, and only their own processes are looked into (by psutil). Who belongs to an agent is said
by descent from its runner: the runner is the subreaper of its tree, so what a dead parent leaves stays below it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

import psutil

from supervisor.core.account import Gpu, Tree
from supervisor.core.identity import Identity
from supervisor.host import processes, procfs
from supervisor.host.gpu_usage import GpuUsage
from supervisor.host.procfs import Seen

Key = tuple[str, int]
_OURS = str(Path(__file__).resolve().parents[2])
_WORDS = 5
"""Of a command line, in which a program of ours is named."""
BUDGET_S = 0.1
"""Processor time of one look for what the kernel says slowly: how much of its memory a process shares."""
_FRESH_LOOKS = 20


@dataclass(frozen=True, slots=True)
class Agent:
    """Whose tree is looked at."""

    runner: Identity
    program: str = ""
    """Name of the agent's own program; empty: it has none, and all below our own processes are tools."""


@dataclass(slots=True)
class _Own:
    """How much of its memory is a process's own part."""

    rss: int
    part: int
    look: int


class Reader:
    """Looks at living agents. Not thread safe."""

    def __init__(
        self,
        budget_s: float = BUDGET_S,
        gpus: GpuUsage | None = None,
        clock: Callable[[], float] = time.thread_time,
        table: Callable[[], dict[int, Seen]] = procfs.table,
    ) -> None:
        """`budget_s`: processor time, by `clock`, after which one look asks no more for shared memory. `table`: every process there is."""
        self._budget_s = budget_s
        self._gpus = gpus or GpuUsage()
        self._clock = clock
        self._table = table
        self._parts: dict[tuple[int, int], _Own] = {}
        self._looks = 0

    def read(self, agents: Mapping[Key, Agent]) -> dict[Key, Tree]:
        """What the tree of each agent takes now; one whose runner is gone is left out. Raises nothing."""
        everyone = self._table()
        children = procfs.children(everyone)
        self._looks += 1
        asking_until = self._clock() + self._budget_s
        gpus = self._gpus.read()
        found: dict[Key, Tree] = {}
        for key, agent in agents.items():
            runner = everyone.get(agent.runner.pid)
            if runner is not None and runner.ticks == agent.runner.ticks and agent.runner.boot_id == processes.boot_id():
                found[key] = self._tree(list(_below(runner, children, agent.program)), gpus, asking_until)
        self._forget(everyone)
        return found

    def _tree(self, members: list[tuple[Seen, bool]], gpus: Mapping[int, Gpu] | None, asking_until: float) -> Tree:
        memory, cpu_s, agent_cpu_s, number = 0, 0.0, 0.0, 0
        for seen, own in members:
            try:
                process = psutil.Process(seen.pid)
                with process.oneshot():
                    times, held = process.cpu_times(), process.memory_info()
            except psutil.Error:  # it ended a moment ago
                continue
            number += 1
            cpu_s += times.user + times.system + times.children_user + times.children_system
            agent_cpu_s += times.user + times.system if own else 0.0
            memory += self._part(seen, process, held.rss, held.rss - held.shared, asking_until)
        return Tree(number, memory, cpu_s, agent_cpu_s, _together(gpus, members))

    def _part(self, seen: Seen, process: psutil.Process, rss: int, unshared: int, asking_until: float) -> int:
        """Its part of the memory that it has. What the kernel said once goes on to hold, with what came since, while that is little."""
        known = self._parts.get(seen.key)
        if known is None or self._looks - known.look > _FRESH_LOOKS or abs(rss - known.rss) * 16 > known.rss:
            known = self._asked(process, rss) if self._clock() < asking_until else None
            if known is None:
                return unshared
            self._parts[seen.key] = known
        return max(0, known.part + rss - known.rss)

    def _asked(self, process: psutil.Process, rss: int) -> _Own | None:
        try:
            return _Own(rss, process.memory_full_info().pss, self._looks)
        except psutil.Error:  # it ended, or it is not ours to look into
            return None

    def _forget(self, everyone: Mapping[int, Seen]) -> None:
        self._parts = {key: part for key, part in self._parts.items() if key[0] in everyone and everyone[key[0]].ticks == key[1]}


@functools.cache
def machine_memory() -> int:
    """Bytes that the machine has, read once."""
    return int(psutil.virtual_memory().total)


def _below(runner: Seen, children: Mapping[int, list[Seen]], program: str) -> Iterator[tuple[Seen, bool]]:
    """A runner and all below it, and whether each is ours or the agent's own. Whatever these start that is something else is a tool, and so
    is everything below that."""
    todo, met = [(runner, True)], {runner.pid}
    while todo:
        seen, own = todo.pop()
        if not seen.dead:
            yield seen, own
        for child in children.get(seen.pid, ()):
            if child.pid not in met:
                met.add(child.pid)
                todo.append((child, own and _is_own(child.pid, program)))


def _is_own(pid: int, program: str) -> bool:
    words = procfs.slurp(f"/proc/{pid}/cmdline").split(b"\0")[:_WORDS]
    names = [word.decode("utf-8", "replace") for word in words]
    if names and PurePath(names[0]).name == "bwrap":
        return True
    if any(name.startswith((f"{_OURS}/", "agents.", "supervisor.")) for name in names[1:]):
        return True
    return bool(program) and any(PurePath(name).name == program for name in names[:2])


def _together(gpus: Mapping[int, Gpu] | None, members: list[tuple[Seen, bool]]) -> Gpu | None:
    """None where no tool tells of processes, or none of these has anything on a graphics processor."""
    if gpus is None:
        return None
    used = [gpus[seen.pid] for seen, _ in members if seen.pid in gpus]
    memory = [one.memory for one in used if one.memory is not None]
    shares = [one.utilisation for one in used if one.utilisation is not None]
    return Gpu(sum(memory) if memory else None, sum(shares) if shares else None) if used else None
