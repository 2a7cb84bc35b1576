"""Processes as the kernel shows them, and the one way in which a tree of them is stopped.

Both the runner in every pane and the daemon use this file, so that they agree on who belongs to an attempt. It is written for the
runner, whose whole start may take 20 ms: only C modules are imported (measured here: `signal` costs 5 ms for its enums, `dataclasses`
20, `typing` and `collections` several each), hence `_signal` at run time and a plain class for a process.

Who belongs to an attempt: its runner's descendants (the runner is their subreaper, so orphans stay below it), and every process
that inherited the attempt's environment tag or its rlimit mark (see `supervisor.kernel.records`), which still finds them all after the
runner was killed.

Systems without /proc (macOS) fall back in one place, `_table_by_ps`: no start ticks, no tags, no pidfd. That path has not been tried.
"""

# ruff: noqa: PTH110, PTH208
# (pathlib costs more than this whole file)

import os
import time

TYPE_CHECKING = False  # importing typing for this costs more than the rest of the file
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterable
else:
    import _signal as signal

_PF_KTHREAD = 0x00200000  # include/linux/sched.h
_FREEZE_ROUNDS = 100  # a fork bomb that outruns this many rounds is dealt with by the rounds of KILL
_LOOKS = 20  # a tree whose processes end faster than that is looked at again by the rounds of whoever stops it
# A process that lives longer after KILL sits in the kernel or is not ours to signal; the supervisor waits 3 s longer than the grace.
_KILL_S = 2.0
_KILL_AT_MOST_S = 20.0  # in all, where processes start others faster than we can look
_CHASE_S = 0.15  # a look at all of 500 processes takes 20 ms, so a process that lives longer is found by a look
_CHASE_POLLS = 150  # that many looks at least, for a machine that runs us rarely
_CHASE_POLL_S = 0.0002
_CHASE_AT_MOST_S = 10.0  # the stop that asked looks at all processes again, and chases again


class Seen:
    """One process at one moment. Two sightings with the same `key` are the same process, whatever happened to the pid."""

    __slots__ = ("flags", "group", "pid", "ppid", "state", "ticks")

    def __init__(self, pid: int, ppid: int, state: str, ticks: int, flags: int, group: int = 0) -> None:
        self.pid = pid
        self.ppid = ppid
        self.group = group
        """Id of its process group; 0 where nobody says."""
        self.state = state
        self.ticks = ticks
        """Field 22 of /proc/PID/stat: clock ticks after boot; 0 where there is no /proc."""
        self.flags = flags

    @property
    def key(self) -> tuple[int, int]:
        return self.pid, self.ticks

    @property
    def dead(self) -> bool:
        """A zombie holds a pid but runs nothing."""
        return self.state in "ZX"


def slurp(path: str) -> bytes:
    """The bytes of a /proc file; empty when the process is gone or not ours to read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(handle, 65536):
            parts.append(part)
        return b"".join(parts)
    except OSError:  # the process ended between open and read (ESRCH)
        return b""
    finally:
        os.close(handle)


def boot_id() -> str:
    """This boot of this machine; empty where the kernel does not say."""
    return slurp("/proc/sys/kernel/random/boot_id").decode("ascii").strip()


def look(pid: int) -> Seen | None:
    """The process that has `pid` now, zombie or not; None when there is none."""
    if not has_proc():
        return _table_by_ps().get(pid)
    return _look(pid)


def _look(pid: int) -> Seen | None:
    # The command's name stands in brackets and may hold anything, brackets too: fields are counted from the last one.
    fields = slurp(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    return Seen(pid, int(fields[1]), fields[0].decode("ascii"), int(fields[19]), int(fields[6]), int(fields[2]))


def table() -> dict[int, Seen]:
    """Every process of the machine, without kernel threads."""
    if not has_proc():
        return _table_by_ps()
    found = map(_look, pids())
    return {seen.pid: seen for seen in found if seen is not None and not seen.flags & _PF_KTHREAD}


def pids() -> list[int]:
    """Every process of the machine and every kernel thread; nobody where there is no /proc."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()] if has_proc() else []


def newest_pid() -> int:
    """Return the number that the kernel gave last to a process or a thread; 0 where there is no /proc."""
    fields = slurp("/proc/loadavg").split()
    return int(fields[4]) if len(fields) > 4 else 0


def has_proc() -> bool:
    return os.path.exists("/proc/self/stat")


def _table_by_ps() -> dict[int, Seen]:
    """The same without /proc; never tried on the systems it is for. Start ticks are 0, so a reused pid cannot be told apart."""
    import subprocess  # only here: it would double the runner's start

    lines = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,state="], capture_output=True, check=False).stdout.decode().splitlines()
    rows = (line.split() for line in lines)
    return {int(pid): Seen(int(pid), int(ppid), state[:1], 0, 0) for pid, ppid, state in rows}


def children(everyone: dict[int, Seen]) -> "dict[int, list[Seen]]":
    """Those of `everyone` by their parent's pid."""
    found: dict[int, list[Seen]] = {}
    for seen in everyone.values():
        found.setdefault(seen.ppid, []).append(seen)
    return found


def below(roots: "Iterable[int]", everyone: dict[int, Seen]) -> dict[int, Seen]:
    """The descendants of `roots` in `everyone`, without the roots themselves."""
    by_parent = children(everyone)
    found: dict[int, Seen] = {}
    todo = list(roots)
    while todo:
        for seen in by_parent.get(todo.pop(), ()):
            if seen.pid not in found:
                found[seen.pid] = seen
                todo.append(seen.pid)
    return found


def descendants(root: int) -> list[Seen]:
    """The living processes below `root`.

    It asks only the tree itself (`children` files), because 200 runners that stop at once must not read the whole of /proc each.
    A process that ends while we look may leave a child that no list has shown: we look again until nobody ended meanwhile, so that the
    answer holds everybody also of a tree in which a process always leaves a child and ends.
    """
    if not os.path.exists(f"/proc/{root}/task/{root}/children"):  # CONFIG_PROC_CHILDREN is off
        return [seen for seen in below([root], table()).values() if not seen.dead]
    ended: set[tuple[int, int]] = set()
    for _ in range(_LOOKS):
        found, gone = _descendants_once(root)
        dead = {seen.key for seen in found if seen.dead}
        if not gone and dead <= ended:
            break
        ended = dead
    return [seen for seen in found if not seen.dead]


def _descendants_once(root: int) -> "tuple[list[Seen], bool]":
    """The processes below `root`, zombies too, and whether one was gone before we could look at it."""
    found: dict[int, Seen] = {}
    gone, todo = False, [root]
    while todo:
        for pid in _children(todo.pop()):
            seen = look(pid)
            gone = gone or seen is None
            if seen is not None and pid not in found:
                found[pid] = seen
                todo.append(pid)
    return list(found.values()), gone


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [int(child) for thread in threads for child in slurp(f"/proc/{pid}/task/{thread}/children").split()]


def carries(pid: int, tag_entry: bytes, mark: int) -> bool:
    """Whether a process inherited `tag_entry` (`NAME=value`) in its environment or `mark` (0: none) as its RLIMIT_LOCKS."""
    if tag_entry and b"\0" + tag_entry + b"\0" in b"\0" + slurp(f"/proc/{pid}/environ"):
        return True
    return mark != 0 and b" %d " % mark in slurp(f"/proc/{pid}/limits")


def carried(pid: int, variable: bytes) -> "tuple[list[bytes], bytes]":
    """The values of `variable` (with its `=`) in the environment of a process, and its RLIMIT_LOCKS as digits or `unlimited`."""
    tags = [entry[len(variable) :] for entry in slurp(f"/proc/{pid}/environ").split(b"\0") if entry.startswith(variable)]
    locks = slurp(f"/proc/{pid}/limits").partition(b"Max file locks")[2].split(None, 1)[:1]
    return tags, locks[0] if locks else b""


def tagged(tag_entry: bytes, mark: int, everyone: "Iterable[Seen]") -> list[Seen]:
    """Those of `everyone` that live and carry the tag or the mark, without the caller itself. Unreadable processes are skipped."""
    me = os.getpid()
    return [seen for seen in everyone if seen.pid != me and not seen.dead and carries(seen.pid, tag_entry, mark)]


def lives(seen: Seen) -> bool:
    """Whether this very process still runs: a zombie and a newer owner of its pid do not count."""
    now = look(seen.pid)
    return now is not None and now.ticks == seen.ticks and not now.dead


def send(seen: Seen, number: int) -> bool:
    """Signal this very process and no later owner of its pid; False when it is gone or not ours to signal."""
    try:
        handle = os.pidfd_open(seen.pid) if hasattr(os, "pidfd_open") else -1
    except ProcessLookupError:
        return False
    except OSError:  # a kernel before 5.3, or a sandbox that forbids the call: the check below still narrows the race to microseconds
        handle = -1
    try:
        if not lives(seen):
            return False
        if handle < 0:
            os.kill(seen.pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    else:
        return True
    finally:
        if handle >= 0:
            os.close(handle)


class Halted:
    """What `halt` did: how many were asked by TERM, how many of them needed KILL, and who outlived even that."""

    __slots__ = ("asked", "killed", "survivors")

    def __init__(self, asked: int, killed: int, survivors: "list[Seen]") -> None:
        self.asked = asked
        self.killed = killed
        self.survivors = survivors


def halt(find: "Callable[[], list[Seen]]", pause: "Callable[[float], None]", now: "Callable[[], float]", grace_s: float) -> Halted:
    """Stop every process that `find` reports: freeze, TERM, let them work for `grace_s` seconds, KILL, look again. Without a grace nobody
    is asked, and none of them moves again.

    Freezing first means that nobody can fork away while the others are being asked, so the set is complete when TERM goes out.
    `find` reports living members only; `pause(seconds)` lets time pass (and reaps, when the caller is the parent); `now` is
    monotonic seconds.
    """
    asked = _freeze(find)
    if not asked:
        return Halted(0, 0, [])
    if grace_s > 0:
        for seen in asked:
            send(seen, signal.SIGTERM)
        for seen in asked:
            send(seen, signal.SIGCONT)
    deadline = now() + grace_s
    while any(lives(seen) for seen in asked) and now() < deadline:
        pause(0.02)
    killed: set[tuple[int, int]] = set()
    began = deadline = now()
    while left := _freeze(find):
        new = [seen for seen in left if send(seen, signal.SIGKILL) and seen.key not in killed]
        killed.update(seen.key for seen in new)
        if new:  # a look alone can take seconds on a loaded machine, so the time counts from the newest KILL
            deadline = min(now() + _KILL_S, began + _KILL_AT_MOST_S)
        if now() >= deadline:
            break
        pause(0.02)
    return Halted(len(asked), len(killed), find() if left else [])


def _freeze(find: "Callable[[], list[Seen]]") -> "list[Seen]":
    """Stop members until a whole look finds no new one: only then can none of them still be forking."""
    held: dict[tuple[int, int], Seen] = {}
    for _ in range(_FREEZE_ROUNDS):
        new = [seen for seen in find() if seen.key not in held]
        if not new:
            break
        for seen in new:
            send(seen, signal.SIGSTOP)
            held[seen.key] = seen
    return list(held.values())


def chase(tag_entry: bytes, mark: int) -> int:
    """Stop, by SIGSTOP, carriers of the tag or the mark that end before a look at all processes reaches them, until no new one is met
    for a while; return how many were stopped.

    Linux numbers processes upwards, so only the newest numbers are read. Each such process leaves a child, which is met here in time.
    """
    stopped = polls = 0
    began = time.monotonic()
    last, until = newest_pid(), began + _CHASE_S
    while (polls < _CHASE_POLLS or time.monotonic() < until) and time.monotonic() < began + _CHASE_AT_MOST_S:
        newest = newest_pid()
        for pid in range(last + 1, newest + 1):
            seen = look(pid)
            if seen is not None and carries(pid, tag_entry, mark) and send(seen, signal.SIGSTOP):
                stopped += 1
                polls, until = 0, time.monotonic() + _CHASE_S
        last = newest
        polls += 1
        time.sleep(_CHASE_POLL_S)
    return stopped


if __name__ == "__main__":
    import sys

    sys.exit(min(chase(os.fsencode(sys.argv[1]), int(sys.argv[2])), 100))
