"""Hold attempts to their limits, and measure what they take."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from agents.kinds import of_task
from supervisor.host import cgroups, cores, processes, untrusted_fs
from supervisor.host import cgroups as host_limits
from supervisor.host.cgroups import Group
from supervisor.host.cores import Core
from supervisor.host.paths import Home
from supervisor.host.usage import Agent, Reader, Watch, machine_memory
from supervisor.kernel import codec, limits, names
from supervisor.kernel.account import Measured, Tree
from supervisor.kernel.errors import NightcrewError, Refused, ToolFailed
from supervisor.kernel.events import LimitPassed
from supervisor.kernel.limits import Bounds, By, Held, Limits, Means, ProcessorShare, Step, Used, Watched
from supervisor.kernel.names import Identity, attempt_name
from supervisor.kernel.records import Exit
from supervisor.kernel.settings import Settings
from supervisor.kernel.snapshots import SnapshotSpec
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import TaskClass
from supervisor.sandbox.policy import Tier
from supervisor.server.attempts.agent_environment import SPEC_MAX
from supervisor.server.attempts.isolation import Confined
from supervisor.server.wakeups import Follower
from supervisor.snapshots.rows import Snapshots
from supervisor.store import journal
from supervisor.store.ledger import Ledger
from supervisor.store.rows import AttemptRow
from worktrees import private_repository
from worktrees.private_repository import Layers

if TYPE_CHECKING:
    from supervisor.host.clock import Clock
    from supervisor.kernel.settings import Settings
    from supervisor.server.attempts.jobs import Doors, Jobs
    from supervisor.store.rows import AttemptRow


# Lanes
# -----
# Which lane of the cores each living agent runs in: the one with the fewest agents.


Key = tuple[str, int]


def sets(settings: Settings, found: tuple[Core, ...]) -> tuple[tuple[int, ...], ...]:
    """The lanes of these settings on these cores, as CPU numbers; none where agents share all of their cores. Who says how many agents a
    lane is for, and not how many lanes there are, gets none on a machine that is too small to keep a core from agents."""
    count = settings.lanes
    if not count and settings.per_lane and len(found) >= cores.PINNING_FROM:
        count = math.ceil(settings.slots / settings.per_lane)
    made = cores.lanes(found, settings.cores_reserve, count)
    return made if len(made) > 1 else ()


class Lanes:
    """The lanes of one supervisor. Methods may be called from several threads."""

    def __init__(self, lanes: tuple[tuple[int, ...], ...], per_lane: int) -> None:
        """`per_lane` agents fill a lane; 0: no number does."""
        self._lanes = lanes
        self._per_lane = per_lane
        self._taken: dict[Key, tuple[int, ...]] = {}
        self._guard = threading.Lock()

    def take(self, key: Key) -> tuple[int, ...]:
        """The CPU numbers of its lane, the same each time. Empty: it runs on all of the agents' cores, since there are no lanes or all of
        them are full."""
        if not self._lanes:
            return ()
        with self._guard:
            if key not in self._taken:
                living = Counter(self._taken.values())
                least = min(self._lanes, key=lambda lane: living[lane])
                self._taken[key] = () if 0 < self._per_lane <= living[least] else least
            return self._taken[key]

    def free(self, key: Key) -> None:
        """It has ended; idempotent."""
        with self._guard:
            self._taken.pop(key, None)

    def adopt(self, living: Mapping[Key, tuple[int, ...]]) -> None:
        """Know the agents that another supervisor started, by the cores that they were given."""
        with self._guard:
            self._taken.update({key: given for key, given in living.items() if given in self._lanes})


# Limits
# ------
# What holds each attempt to its limits: found out once, put in place before its agent starts, read at its end, and taken away after
# it.
#
# An attempt has a control group of its own only when one of its limits needs it; the others share that of their class. What this
# host cannot hold at all is refused, since an agent never runs with less than its task asks for; what it holds only for each
# process alone is said, once for each limit.


OF_TASKS = ("memory_max", "processes_max", "cpu_max")
"""Limits that a task asks for, so that it is refused where nothing holds them. Settings are for whatever can hold them: when the supervisor
starts it says what cannot. (`disk_max` is always held, by our looking.)"""
_NPROC = 'ulimit -u "$0" 2>/dev/null || ulimit -p "$0" || exit 126; exec "$@"'
"""Two shells, two names of one limit."""


@dataclass(frozen=True, slots=True)
class LimitsBounds:
    """What puts the limits of one attempt in place."""

    rlimits: tuple[tuple[str, int], ...]
    """`LaunchSpec.rlimits`."""
    join: tuple[str, ...] = ()
    """`LaunchSpec.join`."""
    wrap: tuple[str, ...] = ()
    """Words for the end of `LaunchSpec.wrap`: they act inside the sandbox that the words before them make."""
    words: str = ""
    """What holds each limit that the task itself asks for."""
    share: tuple[str, ...] = ()
    """`LaunchSpec.share`."""


def lent(ledger: Ledger, row: AttemptRow) -> SnapshotSpec | None:
    """The snapshot that an attempt started from, if it did and somebody still knows it."""
    known = ledger.of(Snapshots).all() if row.snapshot else ()
    return next((one.spec for one in known if one.id == row.snapshot), None)


class LimitDesk:
    """The limits of one supervisor's attempts. Methods may be called from several threads."""

    def __init__(self, home: Home, settings: Settings, say: Callable[[str], None] = lambda _: None) -> None:
        """`say` is told what a person should see."""
        self._home = home
        self._settings = settings
        self.lanes = Lanes(sets(settings, cores.topology()), settings.per_lane)
        self._support = cgroups.probe()
        self._namespace = host_limits.means(self._support, namespace=os.geteuid() != 0)
        self._plain = host_limits.means(self._support, namespace=False)
        self._said: set[str] = set()
        self._say = say

    # Begin -----------------------------------------------------------------------------------------------------------------------

    def asked(self, task: TaskSpec, snapshot: SnapshotSpec | None) -> Limits:
        """What an attempt of `task` may use."""
        return limits.limits_of(self._settings, task, snapshot)

    def bind(self, key: Key, asked: Limits, confined: Confined, task_class: TaskClass, *, agent: bool) -> LimitsBounds:
        """Make ready what holds an attempt to `asked`, and to its class's share of the processor; may be repeated. `agent`: of a kind that
        takes a prompt. Raises Refused when nothing here can hold one of its limits, and ToolFailed."""
        found = limits.held(asked, replace(self.means(confined.tier), looks=agent))
        for one in found:
            if one.by is By.NOBODY and one.name in OF_TASKS:
                raise Refused(
                    "this host cannot hold a task to its limits", on=f"{one.name} = {one.value:.0f}", why=one.words,
                    kept="the task, it was not started without", hint="nightcrew doctor",
                )  # fmt: skip
        self._say_weak(key, found)
        rlimits = limits.rlimits(self._settings, found)
        number = next((int(one.value) for one in found if one.by is By.NAMESPACE), 0)
        if number and confined.policy:  # the runner's own child enters the sandbox before it takes its limits
            rlimits = (*rlimits, ("NPROC", number))
        wrap = ("/bin/sh", "-c", _NPROC, str(number)) if number and confined.wrap else ()
        words = "; ".join(one.words for one in found if one.by is By.WATCHED or one.name in OF_TASKS)
        share = limits.processor_share_of(task_class, self._settings.nice)
        own = self._grouped(key, {one.name: one for one in found if one.by is By.GROUP}, share)
        return LimitsBounds(rlimits, own, wrap, words, () if own else self._of_class(task_class, share))

    def cores(self, key: Key, wanted: tuple[int, ...] | int, turn: int) -> tuple[int, ...]:
        """`LaunchSpec.cores` of an attempt that wants these, or so many, or (0) none in particular: then it gets a lane where there are
        some. Different `turn`s give attempts that want a few different ones."""
        return (() if wanted else self.lanes.take(key)) or cores.choose(wanted, self._settings.cores_reserve, cores.topology(), turn)

    def moved(self, keys: Iterable[Key]) -> dict[Key, tuple[int, ...]]:
        """The cores of living attempts that ask for none in particular and whose lane is gone, since `[cores]` was changed."""
        now = {key: self.cores(key, 0, 0) for key in keys}
        return {key: cpus or cores.usable() for key, cpus in now.items() if cpus != self._given(key)}

    def _given(self, key: Key) -> tuple[int, ...]:
        return tuple(int(text) for text in self._orders(key, "core") if text.isdecimal())

    def means(self, tier: Tier) -> Means:
        """What holds limits here. Every sandbox of an ordinary user is a user namespace."""
        return self._plain if tier is Tier.NONE else self._namespace

    def _grouped(self, key: Key, held: dict[str, Held], share: ProcessorShare) -> tuple[str, ...]:
        if not held:
            return ()
        group = cgroups.create(self._support, self._tag(key))
        group.limit(**{name: int(one.value) for name, one in held.items() if name != "cpu_max"})
        with contextlib.suppress(ToolFailed):  # a share is no limit
            group.weigh(share.of_one(self._settings.slots))
        return group.join_files

    def _of_class(self, task_class: TaskClass, share: ProcessorShare) -> tuple[str, ...]:
        group = cgroups.of_class(self._support, task_class, share.weight) if share.weight < limits.FULL else None
        return group.join_files if group is not None else ()

    def _say_weak(self, key: Key, found: Collection[Held]) -> None:
        for one in found:
            if one.by is By.EACH and one.name in OF_TASKS and one.words not in self._said:
                self._said.add(one.words)
                self._say(f"{attempt_name(*key)}: {one.words} (no control group may be made here: nightcrew doctor)")

    # While it runs ---------------------------------------------------------------------------------------------------------------

    def group(self, key: Key) -> Group | None:
        """The attempt's control group, if it has one: where we make them, or where the supervisor before us did, which its orders say."""
        name = cgroups.name(self._tag(key))
        ours = Group(tuple(parent / name for parent in self._support.parents))
        places = ours.places if any(place.exists() for place in ours.places) else self._ordered(key, name)
        return Group(places) if places else None

    def _ordered(self, key: Key, name: str) -> tuple[Path, ...]:
        """Without a sandbox an agent can write its orders, so only a group of the attempt's own name counts."""
        joined = self._orders(key, "join")
        return tuple(place for place in Group.of(joined).places if place.name == name and place.exists())

    def _orders(self, key: Key, name: str) -> list[str]:
        """Every entry of this name in its orders."""
        orders = untrusted_fs.read_plain(self._home.attempt(*key) / "launch.spec", SPEC_MAX) or b""
        start = f"{name}=".encode()
        return [os.fsdecode(entry.removeprefix(start)) for entry in orders.split(b"\0") if entry.startswith(start)]

    def used(self, key: Key) -> Used:
        """What the kernel counted of it up to now; zeros where it counts nothing."""
        group = self.group(key)
        return Used(group.oom_kills(), group.refused_forks(), group.cpu_s()) if group is not None else Used()

    # End -------------------------------------------------------------------------------------------------------------------------

    def stop(self, key: Key, runner: Identity | None, grace_s: float) -> processes.StopReport:
        """As `processes.stop`, also of an agent that is paused, or that left its tree and not its group."""
        group = self.group(key)
        if group is not None:
            group.thaw()  # what is frozen hears no signal
        report = processes.stop(self._tag(key), runner, grace_s)
        if group is not None and group.pids():
            group.kill()
            return processes.StopReport(report.killed, tuple(who for who in report.survivors if processes.alive(who)))
        return report

    def met(self, key: Key, asked: Limits, record: Exit) -> str:
        """The limit that ended it, in plain words; empty when none did."""
        used = self.used(key)
        counted = Used(used.oom_kills, used.refused_forks, max(used.cpu_s, record.cpu_s))
        return limits.passed(asked, counted, record.signal, record.code)

    def free(self, key: Key) -> None:
        """Take its group away and leave its lane; idempotent. A group that the kernel does not let go of is left to the next
        supervisor's start."""
        self.lanes.free(key)
        group = self.group(key)
        if group is not None:
            _take_away(group)

    def sweep(self, live: Collection[Key]) -> None:
        """Know the lanes of the attempts `live`, and take away the groups of this home that none of them has: what a crash left."""
        self.lanes.adopt({key: self._given(key) for key in live})
        wanted = {cgroups.name(self._tag(key)) for key in live}
        for group in cgroups.left(self._support, self._tag(("", 0)).partition(":")[0]):
            if group.places[0].name not in wanted:
                _take_away(group)

    def _tag(self, key: Key) -> str:
        return names.tag(str(self._home.root), *key)


def _take_away(group: Group) -> None:
    """End whatever is left in it, and remove it. Where the kernel refuses nobody is held up: there is a next start."""
    with contextlib.suppress(NightcrewError, OSError):
        group.kill()
        group.remove()


# Measuring
# ---------
# Measures what living agents take, a few times a minute, and watches their memory.
#
# One look in a thread serves all of them. A look may take at most a hundredth of a core: after a dear one the next comes later.


MEASURING_EVERY_S = 15.0
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
        self._looked = -MEASURING_EVERY_S
        self._cost_s = 0.0

    def cpu_s(self, key: Key) -> float:
        """Processor time that an attempt was seen to have taken; 0.0 while nobody looked."""
        known = self._known.get(key)
        return (known.measured.cpu_s or 0.0) if known is not None else 0.0

    def step(self, live: Sequence[Key]) -> None:
        """Look at these attempts, the ones that run now, unless the look before is still under way or was a moment ago."""
        wait = max(SOON_S if any(map(self._is_watched_closely, live)) else MEASURING_EVERY_S, self._cost_s / SHARE)
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
        return _Known(PurePath(kind.binary).name, bounds, Measured.of(row.account if row is not None else None))

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
            watched, step, why = limits.look(known.watched, now, tree.memory, known.bounds)
            measured = replace(known.measured.after(tree), warning=why or known.measured.warning)
            self._known[key] = replace(known, measured=measured, watched=watched)
            if step is not None:
                self._act(key, step, why)
        self._doors.ledger.measured({key: codec.dumps(self._known[key].measured) for key in found if key in self._known})

    def _act(self, key: Key, step: Step, why: str) -> None:
        self._jobs.say(f"{attempt_name(*key)}: {why}")
        self._doors.ledger.journal(*key, "memory", {"why": why})
        if step is not Step.RESTART:
            return
        before = journal.begun_again(self._doors.ledger.db, key[0])
        if self._settings.memory_restart and before < RESTARTS_MAX:
            self._tell(LimitPassed(*key, why, again=True))
        else:
            self._tell(LimitPassed(*key, why + (f"; it was begun again {before} times for that" if before else "")))


# Watching
# --------
# Looking after the limits that no kernel holds: what an attempt takes of the disk, and the processor time of all its processes
# together.
#
# Looked at once a second in a thread, since counting files can take two: `host.disk.Watch` counts only when the answer can have
# changed enough. Whoever is past a limit is stopped, with the limit's name as the reason.


WATCHING_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class _Watched:
    """One attempt that has a limit to be looked at."""

    asked: Limits
    disk: Watch | None


class Watching(Follower[_Watched]):
    """The watch of one supervisor. `step` belongs to the loop's thread."""

    every_s = WATCHING_EVERY_S
    failed = "limits could not be looked at"

    def __init__(self, doors: Doors, jobs: Jobs, clock: Clock, tell: Callable[[LimitPassed], None], cpu_s: Callable[[Key], float]) -> None:
        """`cpu_s`: the processor time that an attempt was seen to have taken, for one that no control group counts."""
        super().__init__(doors, jobs, clock)
        self._tell = tell
        self._cpu_s = cpu_s

    def _follow(self, key: Key) -> _Watched | None:
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

    async def _look(self, followed: Mapping[Key, _Watched]) -> None:
        found: dict[Key, str] = await self._jobs.within(self._jobs.stoppers, self._passed, followed)
        for key, why in found.items():
            self._tell(LimitPassed(*key, why))

    def _passed(self, watched: Mapping[Key, _Watched]) -> dict[Key, str]:
        seen = {key: limits.passed(one.asked, self._used(key, one)) for key, one in watched.items()}
        return {key: why for key, why in seen.items() if why}

    def _used(self, key: Key, one: _Watched) -> Used:
        cpu_s = max(self._doors.limits.used(key).cpu_s, self._cpu_s(key)) if one.asked.cpu_max else 0.0
        return Used(cpu_s=cpu_s, disk=one.disk.look(self._clock.monotonic()).bytes if one.disk is not None else 0)
