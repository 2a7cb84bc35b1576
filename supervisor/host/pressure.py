"""How busy the machine is, and what memory there is: looked at by the supervisor every few seconds (0.3 ms a look).

Inside a control group with a memory limit or a process limit, that counts where it is nearer than the machine's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

from supervisor.core.admission import Pressure

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
