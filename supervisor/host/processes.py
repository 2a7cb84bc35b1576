"""Processes as the kernel shows them: who they are, what they wait for, and stopping a tree of them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.host import procfs
from supervisor.kernel.names import TAG_VARIABLE, Identity, mark

if TYPE_CHECKING:
    import subprocess  # functions that start processes import it themselves: short commands start none

# Processes
# ---------
# The daemon's door to processes: who they are, whether they live, and stopping what belongs to an attempt.
#
# A process is named by `Identity` (pid, kernel start ticks, boot), never by a pid alone and never by its name. Nothing is ever
# signalled that is not the given runner, one of its descendants, or a carrier of the attempt's tag or mark.


_RUNNER_EXTRA_S = 3.0  # beyond its grace, for the runner to KILL, drain and write its record
_POLL_S = 0.02
_CHASES = 5
"""A process that is stopped while nobody chases may have left a child, which the next look finds."""


@cache
def boot_id() -> str:
    """This boot of this machine; empty where the kernel does not say."""
    return procfs.boot_id()


def identity(pid: int) -> Identity | None:
    """Who has `pid` now; None when nobody runs under it (a zombie runs nothing)."""
    seen = procfs.look(pid)
    return None if seen is None or seen.dead else _identity(seen)


def alive(who: Identity) -> bool:
    """Whether this very process still runs. A zombie, a newer owner of the pid and an earlier boot are all False."""
    return who.boot_id == boot_id() and procfs.lives(_seen(who))


def send(who: Identity, number: signal.Signals) -> bool:
    """Signal this very process; False when it is gone or not ours to signal."""
    return who.boot_id == boot_id() and procfs.send(_seen(who), number)


def command(pid: int) -> str:
    """The command line of a process as text for people, at most 100 characters; empty when it is gone."""
    return procfs.slurp(f"/proc/{pid}/cmdline").rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")[:100]


def runs_with(pid: int, argument: str) -> bool:
    """Whether the last argument of a process's command line is `argument`. A fork that shows a shorter one than it was given has NULs after
    it."""
    return procfs.slurp(f"/proc/{pid}/cmdline").rstrip(b"\0").endswith(b"\0" + os.fsencode(argument))


def runs(pid: int, *words: str) -> bool:
    """Whether `words` stand one after the other in a process's command line."""
    return _has(pid, _line(words))


def _line(words: Iterable[str]) -> bytes:
    return b"\0".join(map(os.fsencode, ("", *words, "")))


def _has(pid: int, line: bytes) -> bool:
    return line in b"\0" + procfs.slurp(f"/proc/{pid}/cmdline")


def all_running(*words: str) -> list[Identity]:
    """Every living process, without this one, whose command line has `words` in it, one after the other."""
    line, us = _line(words), os.getpid()
    found = (procfs.look(pid) for pid in procfs.pids() if pid != us and _has(pid, line))
    return _identities(seen for seen in found if seen is not None and not seen.dead)


def tagged(tag: str) -> list[Identity]:
    """Every living process that inherited `tag` in its environment or its mark in RLIMIT_LOCKS, without this one."""
    return _identities(_looks.fresh().carriers(tag))


def tree(root: Identity) -> list[Identity]:
    """The living descendants of `root`, without itself; empty when it is dead (its orphans are found by `tagged`)."""
    return _identities(procfs.descendants(root.pid)) if alive(root) else []


def pin(root: Identity, cpus: Sequence[int]) -> None:
    """Run every thread of a process and of all below it on these CPUs from now on. What has ended meanwhile is passed over."""
    import psutil  # here, not above: no verb of a person needs it from this module

    for who in (root, *tree(root)):
        with contextlib.suppress(psutil.Error):
            if not alive(who):
                continue
            for thread in psutil.Process(who.pid).threads():
                psutil.Process(thread.id).cpu_affinity(list(cpus))


@dataclass(frozen=True, slots=True)
class StopReport:
    killed: int
    """Those that this call had to KILL, the runner included; what the runner killed is in its own record."""
    survivors: tuple[Identity, ...]
    """Who still lives after everything: normally nobody. Processes of another user (sudo) and ones stuck in the kernel."""


def stop(tag: str, runner: Identity | None, grace_s: float) -> StopReport:
    """End an attempt: everything with `tag`, the runner and all below them. Blocks for about 2 x `grace_s` + 15 seconds at
    most, and for up to three minutes where processes go on starting others.

    A living runner is asked by TERM and left to stop its tree and write `exit.json` first. Only when it is dead, or has not ended
    within `grace_s` + 3, this freezes, TERMs and KILLs itself, the runner last. Either way a new look verifies that nobody is left.

    A living runner finds every process below it. When it is dead, a process that lives for less than about half a millisecond and always
    leaves a child may escape; a control group holds that one too.
    """
    if not tag:
        raise ValueError("an empty tag would match nothing or everything")
    orphaned = True
    if runner is not None and send(runner, signal.SIGTERM):
        send(runner, signal.SIGCONT)
        _await_end(runner, grace_s + _RUNNER_EXTRA_S)
        orphaned = alive(runner)
    rest = procfs.halt(lambda: members(tag, runner), time.sleep, time.monotonic, grace_s)
    killed = rest.killed
    if runner is not None and send(runner, signal.SIGKILL):
        killed += 1
        _await_end(runner, _RUNNER_EXTRA_S)
    for _ in range(_CHASES if orphaned else 0):
        everyone, stuck = _looks.fresh(), {seen.key for seen in rest.survivors}
        if all(seen.key in stuck for seen in everyone.carriers(tag)) and not (everyone.restless and _chase(tag)):
            break
        rest = procfs.halt(lambda: members(tag, None), time.sleep, time.monotonic, 0.0)
        killed += rest.killed
    survivors = _identities(filter(procfs.lives, rest.survivors))
    if runner is not None and alive(runner):
        survivors.append(runner)
    return StopReport(killed, tuple(survivors))


def _chase(tag: str) -> bool:
    """Stop processes of the attempt that end before a look at all processes reaches them; return whether there was one.

    It is done in another process: here, threads that look at the same time would take turns that are longer than such a process lives.
    """
    import subprocess

    found = subprocess.run([sys.executable, "-I", "-S", procfs.__file__, _ENTRY + os.fsencode(tag), str(mark(tag))], check=False)
    return found.returncode != 0


def members(tag: str, runner: Identity | None) -> list[procfs.Seen]:
    """Everything of an attempt that lives, without its runner and without us."""
    everyone = _looks.fresh()
    found = everyone.carriers(tag)
    runners = {runner.pid} if runner is not None and alive(runner) else set()
    roots = {seen.pid for seen in found} | runners
    every = {seen.key: seen for seen in [*found, *procfs.below(roots, everyone.table).values()] if not seen.dead}
    return [seen for seen in every.values() if seen.pid not in {os.getpid(), *runners}]


class _Everyone:
    """Every process at one moment, and which tags and marks each carries. `restless`: a process began meanwhile."""

    def __init__(self) -> None:
        last = procfs.newest_pid()
        self.table = procfs.table()
        self._by_tag: dict[bytes, list[procfs.Seen]] = {}
        self._by_mark: dict[bytes, list[procfs.Seen]] = {}
        for seen in self.table.values():
            if not seen.dead and seen.pid != os.getpid():
                tags, locks = procfs.carried(seen.pid, _ENTRY)
                for tag in tags:
                    self._by_tag.setdefault(tag, []).append(seen)
                self._by_mark.setdefault(locks, []).append(seen)
        self.restless = procfs.newest_pid() != last

    def carriers(self, tag: str) -> list[procfs.Seen]:
        """Return the living processes, without this one, that inherited `tag` or its mark."""
        found = [*self._by_tag.get(tag.encode("utf-8", "surrogateescape"), ()), *self._by_mark.get(b"%d" % mark(tag), ())]
        return list({seen.key: seen for seen in found}.values())


class _Looks:
    """Looks at every process once for all threads that ask at the same time: 200 agents that are stopped together took 26 s of looking."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._begun = self._done = 0
        self._newest: _Everyone | None = None

    def fresh(self) -> _Everyone:
        """Return a look that began after this call."""
        with self._turn:
            wanted = self._begun + 1
            self._turn.wait_for(lambda: self._done >= wanted or self._begun == self._done)
            if self._newest is not None and self._done >= wanted:
                return self._newest
            self._begun += 1
        found = None
        try:
            found = _Everyone()
        finally:
            with self._turn:
                self._newest, self._done = found, self._begun
                self._turn.notify_all()
        return found


_ENTRY = f"{TAG_VARIABLE}=".encode()
_looks = _Looks()


def _await_end(who: Identity, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while alive(who) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def occupied() -> Callable[[Path], list[Identity]]:
    """Look at every process once. The answer names, for a directory, the living processes, without this one, whose working directory or an
    open file lay in it then: reasons not to remove it.

    A child of ours that has not begun its own program yet still has our handles, and is left out as well. Processes of other users cannot
    be looked into and are left out, unless we are root.
    """
    holders: dict[str, set[int]] = {}
    for pid in (seen.pid for seen in procfs.table().values() if not _is_us(seen)):
        for used in _used_paths(pid):
            while used and pid not in holders.setdefault(used, set()):
                holders[used].add(pid)
                used = used.rpartition("/")[0]
    return lambda path: [who for who in map(identity, sorted(holders.get(os.path.realpath(path), ()))) if who is not None]


def _is_us(seen: procfs.Seen) -> bool:
    """To be asked before its handles are looked at: once it is another program, none of ours is among them."""
    if os.getpid() not in (seen.pid, seen.ppid):
        return False
    return seen.pid == os.getpid() or procfs.slurp(f"/proc/{seen.pid}/cmdline") == procfs.slurp("/proc/self/cmdline")


def _used_paths(pid: int) -> Iterator[str]:
    """The paths a process holds, as far as we may see; a removed file still shows where it was, with ` (deleted)` after it."""
    for link in (f"/proc/{pid}/cwd", *_open_files(pid)):
        try:
            path = os.readlink(link)  # noqa: PTH115 - thousands of them: pathlib takes three times as long
        except OSError:  # it ended, closed the file, or is not ours to look into
            continue
        if path.startswith("/"):
            yield path.removesuffix(" (deleted)")


def _open_files(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]  # noqa: PTH208 - as above
    except OSError:
        return []


def _identity(seen: procfs.Seen) -> Identity:
    return Identity(seen.pid, seen.ticks, boot_id())


def _identities(found: Iterable[procfs.Seen]) -> list[Identity]:
    return [_identity(seen) for seen in found]


def _seen(who: Identity) -> procfs.Seen:
    return procfs.Seen(who.pid, 0, "?", who.ticks, 0)


# Lock holders
# ------------
# Who keeps a flock: the kernel frees it when the last process that inherited its handle has ended, not when its taker has.


@dataclass(frozen=True, slots=True)
class Holder:
    """A living process with a handle by which a flock is held."""

    who: Identity
    taker: int
    """Pid of the process that took the lock; 0 when the kernel cannot say, as in a container after that process has ended."""

    @property
    def inherited(self) -> bool:
        """Whether it was handed the lock by the process that took it, which is not itself."""
        return self.who.pid != self.taker


def holders(path: Path) -> list[Holder]:
    """Every process, without this one, that holds the exclusive flock on `path`. A process that has `path` open by a handle of its own is
    not among them, and neither is one of another user unless we are root. Empty where there is no /proc."""
    try:
        place = path.stat()
    except OSError:
        return []
    return [holder for pid in procfs.table() if pid != os.getpid() for holder in _held(pid, place)]


def _held(pid: int, place: os.stat_result) -> Iterator[Holder]:
    who = identity(pid)
    try:
        names = os.listdir(f"/proc/{pid}/fdinfo") if who is not None else []  # noqa: PTH208 - once a process of the machine
    except OSError:  # it ended, or is not ours to look into
        names = []
    for name in names:
        taker = _taker(procfs.slurp(f"/proc/{pid}/fdinfo/{name}"))
        if who is not None and taker is not None and _is_same(f"/proc/{pid}/fd/{name}", place):
            yield Holder(who, taker)
            return


def _taker(fdinfo: bytes) -> int | None:
    """From `lock: 1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`: 4711. None when no flock is held by this handle."""
    for line in fdinfo.splitlines():
        words = line.split()
        if words[:1] == [b"lock:"] and words[2:5] == [b"FLOCK", b"ADVISORY", b"WRITE"]:
            return int(words[5])
    return None


def _is_same(link: str, place: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(link), place)  # noqa: PTH116 - follows the handle, which no path can
    except OSError:
        return False


# Terminals
# ---------
# What the kernel knows of a terminal that a program reads: who has it, and what nobody has read yet. Looking changes nothing.


@dataclass(frozen=True, slots=True)
class Terminal:
    """One look at a terminal."""

    unread: int
    """Bytes that were typed and that no program has read; of a terminal that hands on whole lines, those of whole lines."""
    by_lines: bool
    """It hands on whole lines (canonical mode): the kernel then drops what is beyond `LINE_MAX` bytes in one of them."""
    foreground: tuple[int, ...]
    """The processes that it belongs to now (its foreground process group), by pid."""


LINE_MAX = 4095
"""Bytes of the longest line, with its end, in canonical mode (N_TTY_BUF_SIZE less one, drivers/tty/n_tty.c)."""


Groups = Mapping[int, Sequence[int]]
"""The processes of each process group, by pid."""


def groups() -> Groups:
    """Read /proc once for any number of terminals that are looked at together."""
    found: dict[int, list[int]] = {}
    for seen in procfs.table().values():
        found.setdefault(seen.group, []).append(seen.pid)
    return found


def look(path: str, pid: int, together: Groups | None = None) -> Terminal | None:
    """The terminal at `path`, which process `pid` has as its own; None when it is gone or cannot be looked at.

    `together`: `groups` as of a moment ago. Without it only the processes below `pid` are looked at, as they are now.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        (unread,) = struct.unpack("i", fcntl.ioctl(handle, termios.FIONREAD, bytes(4)))
        by_lines = bool(termios.tcgetattr(handle)[3] & termios.ICANON)
    except (OSError, termios.error):
        return None
    finally:
        os.close(handle)
    return Terminal(unread, by_lines, _foreground(pid, together))


def ring(path: str) -> bool:
    """Ring the bell of a terminal of ours; False when it is none, or does not take it now."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return os.isatty(handle) and os.write(handle, b"\a") == 1
    except OSError:
        return False
    finally:
        os.close(handle)


def _foreground(pid: int, together: Groups | None) -> tuple[int, ...]:
    """Field 8 of /proc/PID/stat is the group; its members are those that name it in field 5."""
    fields = _stat(pid)
    wanted = int(fields[5]) if len(fields) > 5 else -1
    if wanted < 0:
        return ()
    if together is None:
        own = (procfs.look(pid), *procfs.descendants(pid))
        together = {wanted: [seen.pid for seen in own if seen is not None and seen.group == wanted]}
    return tuple(sorted(together.get(wanted, ())))


def _stat(pid: int) -> list[bytes]:
    """Fields 3 and on: the name before them may hold anything."""
    return procfs.slurp(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def variable(pid: int, name: str) -> str:
    """An environment variable that a process was started with; empty when it has none, or cannot be looked at."""
    entries = procfs.slurp(f"/proc/{pid}/environ").split(b"\0")
    return next((os.fsdecode(entry.partition(b"=")[2]) for entry in entries if entry.startswith(name.encode() + b"=")), "")


def inner_pid(pid: int) -> int:
    """The number by which a process knows itself, in the innermost of its PID namespaces."""
    lines = procfs.slurp(f"/proc/{pid}/status").splitlines()
    found = next((line.split()[-1] for line in lines if line.startswith(b"NSpid:")), b"")
    return int(found) if found.isdigit() else pid


def start_ticks(pid: int) -> int:
    """Field 22 of /proc/PID/stat; 0 when the process is gone."""
    seen = procfs.look(pid)
    return seen.ticks if seen is not None else 0


def age_s(pids: tuple[int, ...]) -> float:
    """Seconds since the oldest of these processes began; 0 when there is none."""
    began = min((ticks for ticks in map(start_ticks, pids) if ticks), default=None)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK") if began is not None else 0.0


def name(pid: int) -> str:
    """The kernel's name for what a process runs, at most 15 bytes."""
    return os.fsdecode(procfs.slurp(f"/proc/{pid}/comm").strip())


def claude_folder(pid: int) -> Path | None:
    """Where a Claude Code of this process keeps its files, by the environment that it was started with."""
    chosen, home = variable(pid, "CLAUDE_CONFIG_DIR"), variable(pid, "HOME")
    place = Path(chosen) if chosen else Path(home) / ".claude" if home else None
    return place if place is not None and place.is_absolute() else None


# Commands
# --------
# Run a command in a process group of its own, so that nothing of it is left when whoever runs it is stopped.


_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(
    argv: Sequence[str], directory: Path, env: Mapping[str, str] | None = None, timeout_s: float | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run it to its end; for the main thread. When this is interrupted, or `timeout_s` are over, its whole group is killed first.

    Raises OSError when it cannot be started, and subprocess.TimeoutExpired.
    """
    import subprocess

    process = None
    try:
        with _signals_deferred():  # a stop inside Popen would leave a child that nobody knows
            process = subprocess.Popen(
                argv,
                cwd=directory,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        out, err = process.communicate(timeout=timeout_s)
    except BaseException:  # its own children would go on
        if process is not None:
            _end_group(process)
        raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


@contextlib.contextmanager
def _signals_deferred() -> Iterator[None]:
    """Handle signals that stop this process when the block is over."""
    came: list[int] = []
    try:
        with contextlib.ExitStack() as stack:
            for stop in _STOPS:
                before = signal.getsignal(stop)
                if callable(before):  # the others end us at once, or are ignored by the command as well
                    stack.callback(signal.signal, stop, before)
                    signal.signal(stop, lambda number, _: came.append(number))
            yield
    finally:
        for number in came[:1]:
            signal.raise_signal(number)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:  # not reaped, so the number is still its own
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.killpg(process.pid, 0)
            time.sleep(0.005)
