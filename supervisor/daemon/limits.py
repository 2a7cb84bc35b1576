"""What holds each attempt to its limits: found out once, put in place before its agent starts, read at its end, and taken away after it.

An attempt has a control group of its own only when one of its limits needs it; the others share that of their class. What this host cannot
hold at all is refused, since an agent never runs with less than its task asks for; what it holds only for each process alone is said, once
for each limit.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.core import limits, processor_share, records
from supervisor.core.errors import NightcrewError, Refused, ToolFailed
from supervisor.core.identity import Identity
from supervisor.core.limits import By, Held, Limits, Means, Used
from supervisor.core.processor_share import ProcessorShare
from supervisor.core.records import Exit, attempt_name
from supervisor.core.sandbox import Tier
from supervisor.core.snapshots import SnapshotSpec
from supervisor.core.spec import Settings, TaskSpec
from supervisor.core.states import TaskClass
from supervisor.daemon import lanes
from supervisor.daemon.agent_access import SPEC_MAX
from supervisor.daemon.isolation import Confined
from supervisor.daemon.lanes import Lanes
from supervisor.host import cgroups, cores, foreign, processes
from supervisor.host import limits as host_limits
from supervisor.host.cgroups import Group
from supervisor.host.paths import Home
from supervisor.ledger.ledger import Ledger
from supervisor.ledger.rows import AttemptRow

Key = tuple[str, int]
OF_TASKS = ("memory_max", "processes_max", "cpu_max")
"""Limits that a task asks for, so that it is refused where nothing holds them. Settings are for whatever can hold them: when the supervisor
starts it says what cannot. (`disk_max` is always held, by our looking.)"""
_NPROC = 'ulimit -u "$0" 2>/dev/null || ulimit -p "$0" || exit 126; exec "$@"'
"""Two shells, two names of one limit."""


@dataclass(frozen=True, slots=True)
class Bounds:
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
    known = ledger.snapshots.all() if row.snapshot else ()
    return next((one.spec for one in known if one.id == row.snapshot), None)


class LimitDesk:
    """The limits of one supervisor's attempts. Methods may be called from several threads."""

    def __init__(self, home: Home, settings: Settings) -> None:
        self._home = home
        self._settings = settings
        self.lanes = Lanes(lanes.sets(settings, cores.topology()), settings.per_lane)
        self._support = cgroups.probe()
        self._namespace = host_limits.means(self._support, namespace=os.geteuid() != 0)
        self._plain = host_limits.means(self._support, namespace=False)
        self._said: set[str] = set()
        self.say: Callable[[str], None] = lambda _: None
        """Told what a person should see."""

    # Begin -----------------------------------------------------------------------------------------------------------------------

    def asked(self, task: TaskSpec, snapshot: SnapshotSpec | None) -> Limits:
        """What an attempt of `task` may use."""
        return limits.of(self._settings, task, snapshot)

    def bind(self, key: Key, asked: Limits, confined: Confined, task_class: TaskClass, *, agent: bool) -> Bounds:
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
        share = processor_share.of(task_class, self._settings.nice)
        own = self._grouped(key, {one.name: one for one in found if one.by is By.GROUP}, share)
        return Bounds(rlimits, own, wrap, words, () if own else self._of_class(task_class, share))

    def cores(self, key: Key, wanted: tuple[int, ...] | int, turn: int) -> tuple[int, ...]:
        """`LaunchSpec.cores` of an attempt that wants these, or so many, or (0) none in particular: then it gets a lane where there are
        some. Different `turn`s give attempts that want a few different ones."""
        return (() if wanted else self.lanes.take(key)) or cores.choose(wanted, self._settings.cores_reserve, cores.topology(), turn)

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
        group = cgroups.of_class(self._support, task_class, share.weight) if share.weight < processor_share.FULL else None
        return group.join_files if group is not None else ()

    def _say_weak(self, key: Key, found: Collection[Held]) -> None:
        for one in found:
            if one.by is By.EACH and one.name in OF_TASKS and one.words not in self._said:
                self._said.add(one.words)
                self.say(f"{attempt_name(*key)}: {one.words} (no control group may be made here: nightcrew doctor)")

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
        orders = foreign.read_plain(self._home.attempt(*key) / "launch.spec", SPEC_MAX) or b""
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
            return processes.StopReport(report.asked, report.killed, tuple(who for who in report.survivors if processes.alive(who)))
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
        self.lanes.adopt({key: tuple(int(text) for text in self._orders(key, "core") if text.isdecimal()) for key in live})
        wanted = {cgroups.name(self._tag(key)) for key in live}
        for group in cgroups.left(self._support, self._tag(("", 0)).partition(":")[0]):
            if group.places[0].name not in wanted:
                _take_away(group)

    def _tag(self, key: Key) -> str:
        return records.tag(str(self._home.root), *key)


def _take_away(group: Group) -> None:
    """End whatever is left in it, and remove it. Where the kernel refuses nobody is held up: there is a next start."""
    with contextlib.suppress(NightcrewError, OSError):
        group.kill()
        group.remove()
