"""Control groups: one for each agent; pausing an agent with its whole tree."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor.host import processes, procfs
from supervisor.host.procfs import Seen
from supervisor.kernel.errors import ToolFailed
from supervisor.kernel.limits import Means
from supervisor.kernel.names import Identity

# Cgroups
# -------
# Control groups: one for each agent, which counts and holds all its processes together, whatever they fork.
#
# Both kinds of hierarchy serve, also mixed (controllers in version 1, freezing and killing in version 2): a group is a directory of
# one name in each hierarchy that can do something for us, and every operation uses the first of its files that is there. Nothing is
# known by version: `probe` makes a group, puts a process into it, holds and kills it.
#
# A group is below the one that we run in, or beside it where that one may not have children with limits (version 2 has no processes
# in inner nodes). So an ordinary user has groups where one was delegated: below `user@UID.service` of systemd, or started by
# `systemd-run --user --scope -p Delegate=yes`.
#
# A process that may write to the hierarchy leaves its group as easily as it came: hold untrusted agents in a sandbox that hides it.


_PREFIX = "nightcrew-"
_V1 = ("memory", "pids", "freezer", "cpuacct", "cpu")
"""Controllers of version 1 that are of use; of version 2 there is one hierarchy for all."""
_WAIT_S = 5.0
"""For the kernel to freeze, or to let go of what was killed: milliseconds on an idle machine."""
_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Support:
    """What groups can do here, found by doing it."""

    parents: tuple[Path, ...] = ()
    """Directories in which groups are made, one in each hierarchy."""
    memory: bool = False
    processes: bool = False
    cpu: bool = False
    """Processor time is counted."""
    freeze: bool = False
    shares: tuple[Path, ...] = ()
    """Those of `parents` in which groups share the processor by weight."""
    missing: tuple[str, ...] = ()
    """Why something of the above is not there, a sentence each."""


@dataclass(frozen=True, slots=True)
class Group:
    """The group of one attempt. Only paths: it may be kept as text, and used by a later process, after a crash too."""

    places: tuple[Path, ...]

    @property
    def join_files(self) -> tuple[str, ...]:
        """Files into each of which a process writes `0` to be in the group, before it execs. It inherits to all that it forks. A write
        that fails must keep the agent from starting: it would run without its limits."""
        return tuple(str(place / "cgroup.procs") for place in self.places)

    @classmethod
    def of(cls, join_files: Iterable[str]) -> Group:
        """The group whose `join_files` these are."""
        return cls(tuple(Path(file).parent for file in join_files))

    def limit(self, memory_max: int = 0, processes_max: int = 0) -> None:
        """Hold it to these from now on: bytes, and processes and threads; 0 leaves the limit as it is.

        Raises ToolFailed when there is no such controller, or the kernel refuses: never held less than asked.
        """
        if memory_max:
            self._set(("memory.max", "memory.limit_in_bytes"), str(memory_max))
            for name, text in (("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", str(memory_max))):
                if self._file(name) is not None:  # without it swap, where there is any, is not counted
                    self._set((name,), text)
        if processes_max:
            self._set(("pids.max",), str(processes_max))

    def weigh(self, weight: int) -> None:
        """Its weight beside other groups, 1 to 10000; 100 is what a new one has. Raises ToolFailed where groups have none."""
        file = self._file("cpu.weight")
        self._set(("cpu.weight", "cpu.shares"), str(weight if file is not None else max(2, weight * 1024 // 100)))

    def pids(self) -> set[int]:
        """Every process in it now, also in groups that an agent made below it."""
        return {int(pid) for directory in self._tree() for pid in _read(directory / "cgroup.procs").split()}

    def oom_kills(self) -> int:
        """How many of its processes the kernel killed because it had used its memory up. 0 where that is not counted."""
        return self._count(("memory.events", "memory.oom_control"), "oom_kill")

    def refused_forks(self) -> int:
        """How often one of its processes could not fork because it had as many as it may. 0 where that is not counted."""
        return self._count(("pids.events",), "max")

    def cpu_s(self) -> float:
        """Processor time of all that ever ran in it, seconds. 0.0 where that is not counted."""
        if used := self._count(("cpu.stat",), "usage_usec"):
            return used / 1e6
        usage = self._file("cpuacct.usage")
        return int(_read(usage) or 0) / 1e9 if usage is not None else 0.0

    def freeze(self) -> bool:
        """Stop everything in it where it stands, at once and for what it forks too. False, and thawed again, when that did not happen in
        5 s: a process stuck in the kernel. Raises ToolFailed where groups cannot be frozen."""
        done = self._freezing(True)
        if not _until(done):
            self.thaw()
            return False
        return True

    def thaw(self) -> None:
        """Let it go on; harmless when it is not frozen, or cannot be, or is gone."""
        if self._file("cgroup.freeze") is not None or self._file("freezer.state") is not None:
            _until(self._freezing(False))

    def frozen(self) -> bool:
        """Whether all of it stands still."""
        return "frozen 1" in self._text("cgroup.events") or self._text("freezer.state").strip() == "FROZEN"

    def kill(self) -> bool:
        """KILL everything in it, frozen or not; False when something still lives after 5 s."""
        if self._file("cgroup.kill") is None and self._file("freezer.state") is not None:
            self.freeze()  # or it forks faster than we kill
        return _until(self._killed)

    def remove(self) -> bool:
        """Take the directories away; False while a process is left in it. Idempotent."""
        return _until(lambda: all(map(_removed, self.places)))

    def _killed(self) -> bool:
        at_once = self._file("cgroup.kill")
        if at_once is not None:
            with contextlib.suppress(OSError):
                at_once.write_text("1")
        found = [seen for seen in map(procfs.look, self.pids()) if seen is not None]
        members = self.pids()  # asked again: who is still there is the process that we looked at, and no later one of its number
        for seen in found:
            if seen.pid in members:
                procfs.send(seen, signal.SIGKILL)
        if self._file("freezer.state") is not None:  # version 1 keeps even KILL from what is frozen
            self._freezing(False)()
        return not self.pids()

    def _freezing(self, hold: bool) -> Callable[[], bool]:
        """Ask for it; the result says whether it has happened, and asks again where the kernel wants to be asked again."""
        if self._file("cgroup.freeze") is not None:
            self._set(("cgroup.freeze",), "1" if hold else "0")
            return lambda: ("frozen 1" in self._text("cgroup.events")) is hold
        word = "FROZEN" if hold else "THAWED"

        def asked_again() -> bool:
            self._set(("freezer.state",), word)
            return self._text("freezer.state").strip() == word

        return asked_again

    def _tree(self) -> Iterator[Path]:
        for place in self.places:
            yield from (Path(directory) for directory, _, _ in os.walk(place))

    def _file(self, name: str) -> Path | None:
        return next((place / name for place in self.places if (place / name).exists()), None)

    def _text(self, name: str) -> str:
        file = self._file(name)
        return _read(file) if file is not None else ""

    def _count(self, names: tuple[str, ...], word: str) -> int:
        for line in "\n".join(map(self._text, names)).splitlines():
            key, _, number = line.partition(" ")
            if key == word and number.isdigit():
                return int(number)
        return 0

    def _set(self, names: tuple[str, ...], text: str) -> None:
        file = next(filter(None, map(self._file, names)), None)
        on = str(self.places[0]) if self.places else ""
        if file is None:
            raise ToolFailed("cannot hold a group to its limits", on=on, why=f"no {' or '.join(names)} here", hint="nightcrew doctor")
        try:
            file.write_text(text)
        except OSError as error:
            raise ToolFailed("cannot hold a group to its limits", on=str(file), why=f"{text}: {error.strerror}") from None


def create(support: Support, tag: str) -> Group:
    """The group of the attempt with this tag, made where it is not there yet; no process is in a new one. Raises ToolFailed."""
    group = Group(tuple(parent / name(tag) for parent in support.parents))
    try:
        for place in group.places:
            place.mkdir(exist_ok=True)
    except OSError as error:
        group.remove()
        raise ToolFailed("cannot make a control group", on=str(error.filename), why=error.strerror or "") from None
    return group


def of_class(support: Support, word: str, weight: int) -> Group | None:
    """The group of all agents of a class that have no group of their own: for their share of the processor alone. Made where it is not
    there yet, and never taken away: another supervisor's agents may be about to join it. None where groups have no weight here."""
    group = Group(tuple(parent / f"{_PREFIX}class-{word}" for parent in support.shares))
    try:
        for place in group.places:
            place.mkdir(exist_ok=True)
        group.weigh(weight)
    except (OSError, ToolFailed):
        return None
    return group


def name(tag: str) -> str:
    """The directory of an attempt's group: what the tag begins with tells whose it is, see `core.records.tag`."""
    home = "".join(char for char in tag.partition(":")[0][:16] if char.isascii() and char.isalnum())
    return f"{_PREFIX}{home}-{hashlib.sha256(tag.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"


def left(support: Support, home: str) -> tuple[Group, ...]:
    """Every group of attempts whose tags begin with `home`: those of no living attempt are what a crash left."""
    found = {file.name for parent in support.parents for file in parent.glob(f"{_PREFIX}{home}-*")}
    return tuple(Group(tuple(parent / found_name for parent in support.parents)) for found_name in sorted(found))


# Finding out ------------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    controllers: frozenset[str]
    """Empty: version 2."""
    parents: list[Path]
    """Where a group could be made, best first."""


def probe() -> Support:
    """Make a group here, hold a process in it, freeze it and kill it. Takes milliseconds and leaves nothing. Never raises."""
    if not Path("/proc/self/cgroup").exists():
        return Support(missing=("this system has no control groups",))
    parents = tuple(filter(None, map(_usable, _hierarchies())))
    if not parents:
        return Support(missing=(_NONE,))
    group = create(Support(parents), f"probe:{os.urandom(6).hex()}")
    try:
        return _tried(parents, group)
    except (OSError, ToolFailed) as error:
        return Support(missing=(f"control groups do not work here: {error}",))
    finally:
        group.kill()
        group.remove()


def _tried(parents: tuple[Path, ...], group: Group) -> Support:
    found = {"memory": _works(lambda: group.limit(memory_max=2**28)), "processes": _works(lambda: group.limit(processes_max=16))}
    weighed = [place for place in group.places if (place / "cpu.weight").exists() or (place / "cpu.shares").exists()]
    shares = tuple(place.parent for place in weighed) if _works(lambda: group.weigh(50)) else ()
    # The child does as a runner's does; should a write fail, it is in no group, which is looked at.
    join = ["/bin/sh", "-c", 'for file in "$@"; do echo 0 >"$file" || exit; done; exec sleep 60', "sh", *group.join_files]
    child = subprocess.Popen(join, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        inside = [Group((place,)) for place in group.places]
        if not _until(lambda: child.poll() is not None or all(child.pid in one.pids() for one in inside)) or child.poll() is not None:
            return Support(missing=("a process could not join a control group that was made for it",))
        found["freeze"] = _works(group.freeze) and group.frozen()
        found["cpu"] = group.cpu_s() > 0
        group.kill()
    finally:
        child.kill()
        child.wait()
    lacking = [name for name, works in {**found, "shares": bool(shares)}.items() if not works]
    return Support(parents, **found, shares=shares, missing=tuple(map(_WORDS.__getitem__, lacking)))


_NONE = (
    "no control group may be made here; where systemd runs a user's services, nightcrew has them when it is started by "
    "`systemd-run --user --scope -p Delegate=yes`"
)
_WORDS = {
    "memory": "memory is not counted for an agent as a whole: no memory controller",
    "processes": "processes are not counted for an agent: no pids controller",
    "freeze": "agents cannot be frozen at once: no freezer",
    "cpu": "processor time is not counted for an agent as a whole",
    "shares": "agents have no share of the processor as a whole: no cpu controller",
}


def _works(act: Callable[[], bool | None]) -> bool:
    try:
        return act() is not False
    except ToolFailed:
        return False


def _usable(hierarchy: _Hierarchy) -> Path | None:
    """The first parent in which a group with limits can be made, or else any in which one can."""
    able: list[tuple[bool, Path]] = []
    for parent in hierarchy.parents:
        trial = parent / f"{_PREFIX}trial-{os.urandom(6).hex()}"
        try:
            trial.mkdir()
        except OSError:
            continue
        able.append(((trial / "memory.max").exists() and (trial / "pids.max").exists(), parent))
        trial.rmdir()
    return max(able, key=lambda one: one[0])[1] if able else None  # of equals, the first


def _hierarchies() -> list[_Hierarchy]:
    """The mounted hierarchies that we are in and that are of use: version 2 first, and of version 1 only what that does not do."""
    own = dict(_own())
    found = {words: _Hierarchy(words, _parents(mount, root, own.get(words))) for words, mount, root in _mounts()}
    unified = found.pop(frozenset(), _Hierarchy(frozenset(), []))
    done = {word for parent in unified.parents for word in _read(parent / "cgroup.controllers").split()}
    if unified.parents:
        done |= {"freezer", "cpuacct"}  # which version 2 does without any controller
    return [unified, *(one for one in found.values() if one.controllers - done)]


def _own() -> Iterator[tuple[frozenset[str], str]]:
    """Of each hierarchy the controllers that are of use (none: version 2), and the group that we are in."""
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        number, controllers, path = line.split(":", 2)
        words = frozenset(controllers.split(",")) & frozenset(_V1)
        if words or number == "0":
            yield words, path


def _mounts() -> Iterator[tuple[frozenset[str], Path, str]]:
    """Controllers (none: version 2), mount point, and which group is mounted there."""
    for line in _read(Path("/proc/self/mountinfo")).split("\n"):  # a path may hold what else ends a line for `splitlines`
        if " - cgroup" not in line:
            continue
        ours, _, theirs = line.partition(" - ")
        kind, _, options = theirs.split(" ", 2)
        words = frozenset(options.split(",")) & frozenset(_V1)
        if kind == "cgroup2" or (kind == "cgroup" and words):
            yield words, Path(ours.split(" ")[4]), ours.split(" ")[3]


def _parents(mount: Path, root: str, own: str | None) -> list[Path]:
    if own is None or not (own + "/").startswith(root.rstrip("/") + "/"):
        return []  # we are outside of what is mounted here
    here = mount / own[len(root.rstrip("/")) :].lstrip("/")
    return [here, here.parent] if here != mount else [here]


def _read(file: Path) -> str:
    try:
        return os.fsdecode(file.read_bytes())
    except OSError:  # the group is gone, or the hierarchy has no such file
        return ""


def _removed(place: Path) -> bool:
    """Remove a directory and the groups below it; False when the kernel says that one is busy."""
    try:
        for directory, _, _ in os.walk(place, topdown=False):
            Path(directory).rmdir()
    except FileNotFoundError:
        return not place.exists()
    except OSError:
        return False
    return True


def _until(done: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _WAIT_S
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


# Freezing
# --------
# Pausing an agent: its whole process tree is stopped, keeps its memory, and goes on where it was.
#
# A control group does that at once. Elsewhere every process gets SIGSTOP, until a look at the whole tree finds nobody new and
# nobody that moves: a stopped process cannot fork, so then nobody can. The runner is never stopped: it keeps the pane, and its
# deadline goes on.


_POLITE_S = 2.0
"""So long parents are seen to stand still before their children are stopped; a tree that forks faster than that is stopped anyhow."""
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


# Limits
# ------
# What one agent may use, as the kernel's resource limits, and what this host can enforce.


_RLIMIT_LOCKS = 10  # see supervisor.kernel.records.mark


def shortfalls() -> list[str]:
    """Return what this host cannot do for us, one sentence each, for a person to see when the supervisor starts. It asks the kernel."""
    found = []
    if os.geteuid() != 0 and resource.getrlimit(_RLIMIT_LOCKS)[1] != resource.RLIM_INFINITY:
        found.append("daemons that shed their environment are not found after a kill -9 of their runner: no inherited mark here")
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        found.append("signals go by pid and not by pidfd here")
    return found


def means(groups: Support, namespace: bool) -> Means:
    """What holds the limits of an agent here. `namespace`: it will have a user namespace of its own; whether that holds the number of its
    processes is tried, which takes about 20 ms."""
    return Means(
        group_memory=groups.memory,
        group_processes=groups.processes,
        group_cpu=groups.cpu,
        namespace=namespace and not groups.processes and namespace_holds_processes(),
        rlimits=frozenset(("AS", "CPU", "FSIZE", "NOFILE", "NPROC")),
    )


def namespace_holds_processes() -> bool:
    """Whether RLIMIT_NPROC, set inside a new user namespace, counts the processes in there alone, and holds them.

    Linux counts so from 5.14 on; before, it counted all processes of the user, and who is root outside is never held.
    """
    tried = [sys.executable, "-I", "-S", "-c", _TRY_NAMESPACE]
    return (
        subprocess.run(tried, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout == b"held\n"
    )


_TRY_NAMESPACE = """
import ctypes, os, resource, signal

if ctypes.CDLL(None).unshare(0x10000000):  # CLONE_NEWUSER
    raise SystemExit("no user namespace")
resource.setrlimit(resource.RLIMIT_NPROC, (2, 2))
first = os.fork()  # fails where the user's other processes count too
if not first:
    signal.pause()
try:
    if not os.fork():
        os._exit(0)
    os.wait()
    print("not held")
except BlockingIOError:
    print("held")
finally:
    os.kill(first, signal.SIGKILL)
"""
