"""What agents take of the machine, and how busy it is."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import psutil

from supervisor.host import processes, procfs
from supervisor.host.procfs import Seen
from supervisor.host.untrusted_fs import DIRECTORY, Descent
from supervisor.kernel.account import Gpu, Tree
from supervisor.kernel.errors import Refused
from supervisor.kernel.names import Identity
from supervisor.kernel.pressure import Pressure

# Gpus
# ----
# Graphics processors: which there are, and how an agent is kept to some of them.
#
# Found by what their drivers show in /dev and /proc, without their libraries or tools. Being kept to some is a matter of
# environment variables, which an agent can change: a sandbox that does not show it the other devices is what keeps it.


_VARIABLES = {
    "nvidia": ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    "amd": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
}
NONE_VISIBLE = {"CUDA_VISIBLE_DEVICES": "-1", "NVIDIA_VISIBLE_DEVICES": "void", "HIP_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "-1"}
"""What each vendor's documents say for "none": an index that no device has; `void` for NVIDIA's container runtime."""
_NVIDIA_SHARED = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


@dataclass(frozen=True, slots=True)
class GpusGpu:
    """One device."""

    vendor: str
    """`nvidia` or `amd`."""
    index: int
    """Among those of its vendor, as its variable counts them."""
    name: str
    devices: tuple[str, ...]
    """Files in /dev that using it takes, those included that all of its vendor share."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a probe found."""

    gpus: tuple[GpusGpu, ...]
    why: str
    """When there is none to use: why, in words for a person. Empty otherwise."""


def probe(root: Path = Path("/")) -> Found:
    """Look for devices. `root` is where /dev, /proc and /sys are. Opens no device and never raises."""
    gpus = (*_nvidia(root), *_amd(root))
    return Found(gpus, "" if gpus else _why_none(root))


def chosen(found: Found, wanted: bool | tuple[int, ...]) -> tuple[GpusGpu, ...]:
    """All that there are, none, or those of these indexes, of every vendor. Raises Refused for an index that no device has."""
    if isinstance(wanted, bool):
        return found.gpus if wanted else ()
    missing = sorted(set(wanted) - {gpu.index for gpu in found.gpus})
    if missing:
        why = found.why or f"there are {', '.join(f'{gpu.vendor} {gpu.index}' for gpu in found.gpus)}"
        raise Refused("no such GPU", on=f"gpus = {list(wanted)}", why=why, kept="the task, it was not started", hint="nightcrew doctor")
    return tuple(gpu for gpu in found.gpus if gpu.index in wanted)


def visibility(found: Collection[GpusGpu], chosen: Collection[GpusGpu]) -> dict[str, str]:
    """Environment variables that show `chosen` of `found` and no other. Empty where there is no device: nothing is to be hidden."""
    if not found:
        return {}
    shown = dict(NONE_VISIBLE)
    for vendor, names in _VARIABLES.items():
        indexes = [str(gpu.index) for gpu in sorted(chosen, key=lambda one: one.index) if gpu.vendor == vendor]
        shown |= dict.fromkeys(names, ",".join(indexes)) if indexes else {}
    return shown


def _nvidia(root: Path) -> Iterable[GpusGpu]:
    """One directory a device, named by its PCI address; the driver numbers its device files by `Device Minor`."""
    shared = tuple(path for path in _NVIDIA_SHARED if (root / path[1:]).exists())
    every = sorted(_listed(root / "proc/driver/nvidia/gpus"))
    facts = [_facts(entry / "information") for entry in every]
    seen = [(name.get("Model", "NVIDIA"), f"/dev/nvidia{name['Device Minor']}") for name in facts if name.get("Device Minor", "").isdigit()]
    there = [(model, device) for model, device in seen if (root / device[1:]).exists()]
    return [GpusGpu("nvidia", index, model, (device, *shared)) for index, (model, device) in enumerate(there)]


def _amd(root: Path) -> Iterable[GpusGpu]:
    """Nodes of the compute driver; those that no render device belongs to (minor 0) are processors."""
    if not (root / "dev/kfd").exists():
        return []
    nodes = sorted(_listed(root / "sys/class/kfd/kfd/topology/nodes"), key=lambda entry: (len(entry.name), entry.name))
    minors = [_pairs(_read(node / "properties")).get("drm_render_minor", "0") for node in nodes]
    there = [device for minor in minors if minor != "0" and (root / (device := f"/dev/dri/renderD{minor}")[1:]).exists()]
    return [GpusGpu("amd", index, "AMD", (device, "/dev/kfd")) for index, device in enumerate(there)]


def _why_none(root: Path) -> str:
    if _listed(root / "proc/driver/nvidia/gpus"):
        return "unavailable: NVIDIA's driver knows devices, but /dev shows none of them"
    if (root / "dev/kfd").exists():
        return "unavailable: AMD's compute driver is there, but no device of its is"
    return "unavailable: no NVIDIA or AMD device here"


def _facts(file: Path) -> dict[str, str]:
    """Lines such as `Model: \t NVIDIA A100`."""
    lines = (line.partition(":") for line in _read(file).splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def _pairs(text: str) -> dict[str, str]:
    """Lines such as `simd_count 320`."""
    return dict(found) if (found := re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE)) else {}


def _listed(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


# Gpu usage
# ---------
# What processes take of graphics processors, as NVIDIA's `nvidia-smi` tells it. Other vendors' tools are not asked.
#
# The format is that of `nvidia-smi pmon` (its manual, and the header that it prints): a table with a `#` line that names the
# columns. No machine of ours has such a device.


_ASKED = ("pmon", "-c", "1", "-s", "um")
"""One look at utilisation (`sm`, percent) and memory (`fb`, MiB) of each process."""
_TOOL_S = 5.0
"""The tool looks for a second before it answers."""


class GpuUsage:
    """Asks the tool where there is a device of its vendor; a tool that fails is not asked again."""

    def __init__(self, tool: str | None = None) -> None:
        """`tool`: path of the program; None: looked for, where there is a device."""
        self._tool = tool or (_found() if tool is None else None)

    def read(self) -> Mapping[int, Gpu] | None:
        """What each process takes, by pid; None where nothing tells. Blocks for up to 5 s where there is a device."""
        if self._tool is None:
            return None
        try:
            asked = subprocess.run([self._tool, *_ASKED], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TOOL_S, check=True)
        except (OSError, subprocess.SubprocessError):
            self._tool = None
            return None
        return parse(asked.stdout.decode("utf-8", "replace"))


def _found() -> str | None:
    return shutil.which("nvidia-smi") if any(one.vendor == "nvidia" for one in probe().gpus) else None


def parse(text: str) -> dict[int, Gpu]:
    """What the tool printed, by pid; a process on several devices has the sum. `-` is what it does not tell."""
    found: dict[int, Gpu] = {}
    for row in _rows(text):
        pid = row.get("pid", "")
        if not pid.isdigit():
            continue
        before = found.get(int(pid), Gpu())
        memory, share = _figure(row.get("fb")), _figure(row.get("sm"))
        found[int(pid)] = Gpu(
            before.memory if memory is None else (before.memory or 0) + memory * 2**20,
            before.utilisation if share is None else (before.utilisation or 0.0) + share / 100,
        )
    return found


def _rows(text: str) -> Iterator[dict[str, str]]:
    names: Sequence[str] = ()
    for line in text.splitlines():
        words = line.lstrip("# ").split()
        if line.startswith("#"):
            names = names or words  # the second such line has the units
        elif names:
            yield dict(zip(names, words, strict=False))


def _figure(word: str | None) -> int | None:
    return int(word) if word is not None and word.isdigit() else None


# Usage
# -----
# What the processes of living agents take: memory, processor time, graphics processors.
#
# One pass over the process table serves all agents, and only their own processes are looked into (by psutil). Who belongs to an
# agent is said by descent from its runner: the runner is the subreaper of its tree, so what a dead parent leaves stays below it.


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


# Disk
# ----
# How much of the disk an agent's files take: counted, because quotas need a file system and an administrator that have them.
#
# Counting is a walk, so `Watch` does it only when the answer can have changed enough: a directory can have grown by no more than
# its file system lost in free space, which one `statvfs` says.


_BLOCK = 512  # of st_blocks, whatever the file system's own is
MAX_ENTRIES = 1_000_000
"""Of one count. About two seconds of a quiet machine; an agent that makes more files than this has them counted up to here."""
MAX_S = 5.0


@dataclass(frozen=True, slots=True)
class DiskUsed:
    """One count."""

    bytes: int
    """Blocks on the disk: holes count nothing, a file of many names counts once."""
    entries: int
    complete: bool
    """False: there is more, and `bytes` is the least that it is."""


def used(
    paths: Sequence[Path], max_entries: int = MAX_ENTRIES, max_seconds: float = MAX_S, clock: Callable[[], float] = time.monotonic
) -> DiskUsed:
    """What lies at and below `paths`, on the file systems that they are on: what is mounted below is somebody else's. Symbolic links are
    not followed, also not when an agent puts one in place of a directory meanwhile, and what vanishes counts nothing. Never raises.

    It ends at `max_entries`, after `max_seconds`, and where a directory is closed to us: then it is not complete.
    """
    count = _Count(max_entries, clock, clock() + max_seconds)
    for path in paths:
        count.add_tree(path)
    return DiskUsed(count.bytes, count.entries, count.complete)


class _Count:
    def __init__(self, max_entries: int, clock: Callable[[], float], ends_at: float) -> None:
        self.bytes = self.entries = 0
        self.complete = True
        self._max_entries = max_entries
        self._clock, self._ends_at = clock, ends_at
        self._seen: set[tuple[int, int]] = set()

    def add_tree(self, top: Path) -> None:
        with _opened(top) as handle:
            if handle is None:
                with contextlib.suppress(OSError):
                    self._add(top.lstat())
                return
            self._add(os.fstat(handle))
            way = Descent(handle)
            try:
                self._add_below(way)
            finally:
                way.close()
        self.complete = self.complete and way.is_whole

    def _add_below(self, way: Descent) -> None:
        self._add_directory(way)
        while way.todo or way.depth:
            if not way.todo:
                way.leave()
            elif not self._may_go_on():
                return
            elif self._entered(way, way.todo.pop()):
                self._add_directory(way)

    def _entered(self, way: Descent, name: str) -> bool:
        try:
            way.enter(name)
        except PermissionError:
            self.complete = False
            return False
        except OSError:  # it is gone, or something else is there now
            return False
        return True

    def _add_directory(self, way: Descent) -> None:
        with contextlib.suppress(FileNotFoundError), os.scandir(way.here) as entries:
            for entry in entries:
                if not self._may_go_on():
                    return
                with contextlib.suppress(OSError):
                    seen = entry.stat(follow_symlinks=False)
                    if seen.st_dev == way.device:
                        self._add(seen)
                        if stat.S_ISDIR(seen.st_mode):
                            way.todo.append(entry.name)

    def _add(self, seen: os.stat_result) -> None:
        self.entries += 1
        if seen.st_nlink > 1 and not stat.S_ISDIR(seen.st_mode):
            if (seen.st_dev, seen.st_ino) in self._seen:
                return
            self._seen.add((seen.st_dev, seen.st_ino))
        self.bytes += seen.st_blocks * _BLOCK

    def _may_go_on(self) -> bool:
        if self.entries < self._max_entries and self._clock() <= self._ends_at:
            return True
        self.complete = False
        return False


@contextlib.contextmanager
def _opened(top: Path) -> Iterator[int | None]:
    """A handle of the directory; None when it is none, or closed to us."""
    try:
        handle = os.open(top, DIRECTORY)
    except OSError:
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


class Watch:
    """Whether some directories are past a limit, looked at again and again. Not thread safe."""

    def __init__(self, paths: Sequence[Path], limit: int, every_s: float = 60.0) -> None:
        """`limit` bytes. At least every `every_s` seconds it counts, in case others freed as much as the agent wrote."""
        self._paths = tuple(paths)
        self._limit = limit
        self._every_s = every_s
        self._free: dict[int, int] = {}
        self._last: DiskUsed | None = None
        self._counted = 0.0

    def look(self, now: float) -> DiskUsed:
        """The last count, or a new one when that could be past the limit by now. `now` is monotonic seconds."""
        free = self._free_bytes()
        last = self._last
        if last is None or now - self._counted >= self._every_s or last.bytes + self._lost(free) > self._limit:
            self._last = last = used(self._paths)
            self._counted, self._free = now, free
        return last

    def _lost(self, free: dict[int, int]) -> int:
        return sum(max(0, self._free.get(device, 0) - left) for device, left in free.items())

    def _free_bytes(self) -> dict[int, int]:
        """By device: two directories of one file system share its space."""
        found: dict[int, int] = {}
        for path in self._paths:
            with _opened(path) as handle:
                if handle is not None:  # else it is gone, and takes nothing
                    space = os.fstatvfs(handle)
                    found[os.fstat(handle).st_dev] = space.f_bfree * space.f_frsize
        return found


# Pressure
# --------
# How busy the machine is, and what memory there is: looked at by the supervisor every few seconds (0.3 ms a look).
#
# Inside a control group with a memory limit or a process limit, that counts where it is nearer than the machine's.


_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes."""

    total: int
    available: int
    """That can be had without swapping."""


class PressureReader:
    """Looks at one machine; `proc` is where it mounts its process file system, and `groups` its control groups."""

    def __init__(self, cores: int, proc: Path = _PROC, groups: Path = Path("/sys/fs/cgroup")) -> None:
        self._cores = max(1, cores)
        self._proc = proc
        self._memory_groups = _own_groups(proc, groups, "memory")
        self._pids_groups = _own_groups(proc, groups, "pids")

    def look(self) -> tuple[Pressure, Memory | None]:
        """How busy it is now, and its memory; None when that cannot be told, and then the pressure says why."""
        troubles: list[str] = []
        try:
            memory = self._memory()
        except (OSError, psutil.Error, ValueError) as error:
            memory = None
            troubles.append(f"its memory cannot be looked at: {error}")
        load, processes = None, None
        try:
            load, processes = self._load()
        except (OSError, ValueError, IndexError) as error:
            troubles.append(f"its load cannot be looked at: {error}")
        pressure = Pressure(
            load=load,
            memory=None if memory is None else 1 - memory.available / max(1, memory.total),
            memory_stall=self._stalled("memory", "full"),
            io_stall=self._stalled("io", "full"),
            processes=processes,
            trouble="; ".join(troubles),
        )
        return pressure, memory

    def cpu_stall(self) -> float | None:
        """Part of the last 10 s in which something that could run waited for a processor; by the load where PSI is absent, None where
        nothing tells."""
        found = self._stalled("cpu", "some")
        if found is not None:
            return found
        try:
            return min(1.0, max(0.0, self._load()[0] - 1.0))
        except (OSError, ValueError, IndexError):
            return None

    def _memory(self) -> Memory:
        found = psutil.virtual_memory()
        total, available = found.total, found.available
        for group in self._memory_groups:
            limit = _number(group, "memory.max", "memory.limit_in_bytes")
            used = _number(group, "memory.current", "memory.usage_in_bytes")
            if limit is None or used is None or limit >= total:
                continue
            # Pages of files can be taken back; the kernel counts them as used.
            used -= _stat(group, "inactive_file") + _stat(group, "active_file")
            total, available = min(total, limit), min(available, max(0, limit - max(0, used)))
        return Memory(total, available)

    def _load(self) -> tuple[float, float | None]:
        """The load of a minute for each core, and the part of the allowed processes and threads that is there."""
        fields = (self._proc / "loadavg").read_text(encoding="ascii").split()
        threads = int(fields[3].partition("/")[2])
        parts = [threads / most for name in ("threads-max", "pid_max") if (most := _number(self._proc / "sys/kernel", name))]
        for group in self._pids_groups:
            most, now = _number(group, "pids.max"), _number(group, "pids.current")
            if most and now is not None:
                parts.append(now / most)
        return float(fields[0]) / self._cores, max(parts, default=None)

    def _stalled(self, resource: str, line: str) -> float | None:
        try:
            text = (self._proc / "pressure" / resource).read_text(encoding="ascii")
            found = next(each for each in text.splitlines() if each.startswith(f"{line} "))
            return float(dict(pair.split("=") for pair in found.split()[1:])["avg10"]) / 100
        except (OSError, ValueError, KeyError, StopIteration):  # a kernel without PSI, or one that keeps it from us
            return None


def _own_groups(proc: Path, groups: Path, controller: str) -> list[Path]:
    """The directories of the group that we run in and of those around it, in the hierarchy that has the controller."""
    try:
        lines = (proc / "self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    found = []
    for line in lines:
        _, names, path = line.split(":", 2)
        root = groups / controller if controller in names.split(",") else groups
        if names and controller not in names.split(","):
            continue
        own = root / path.lstrip("/")
        found += [place for place in (own, *own.parents) if place.is_relative_to(root) and place.is_dir()]
    return found


def _number(place: Path, *names: str) -> int | None:
    """What the first of the files that is there says; None for `max` and where none is."""
    for name in names:
        try:
            return int((place / name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
    return None


def _stat(group: Path, key: str) -> int:
    try:
        lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    found = (line.split() for line in lines)
    return next((int(value) for name, value in found if name == key), 0)


# Power
# -----
# Whether the machine has mains power, and a lid: /sys/class/power_supply and /proc/acpi/button/lid of Linux.


@dataclass(frozen=True, slots=True)
class Power:
    """What the kernel says."""

    known: bool
    """False: it says nothing, as in most containers."""
    mains: bool | None
    """Whether a charger or a supply that can be unplugged gives power; None: there is none to look at."""
    batteries: tuple[int | None, ...] = ()
    """How full each battery of the machine is, in percent; None: not known."""
    lid: str = ""
    """`open` or `closed`; empty: there is none."""


def look(system: Path = Path("/sys"), proc: Path = Path("/proc")) -> Power:
    """As it is now."""
    supplies = system / "class" / "power_supply"
    if not supplies.is_dir():
        return Power(known=False, mains=None, lid=_lid(proc))
    mains: list[bool] = []
    batteries: list[int | None] = []
    for supply in sorted(supplies.iterdir()):
        match _text(supply / "type"):
            case "Battery" if _text(supply / "scope") != "Device":  # of a mouse or a headset
                full = _text(supply / "capacity")
                batteries.append(int(full) if full.isdigit() else None)
            case "Mains" | "USB" | "Wireless":
                mains.append(_text(supply / "online") not in ("0", ""))
    return Power(True, any(mains) if mains else None, tuple(batteries), _lid(proc))


def _lid(proc: Path) -> str:
    for file in sorted((proc / "acpi" / "button" / "lid").glob("*/state")):
        return "closed" if "closed" in _text(file) else "open"
    return ""


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
