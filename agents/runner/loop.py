"""One attempt from fork to record."""

from __future__ import annotations

import os
import select
import time

from agents.runner.child import StartError, adopt_orphans, start
from supervisor.host.procfs import below, descendants, halt, lives, look, send, table, tagged

TYPE_CHECKING = False  # `typing` costs more to import than this module


# Emergency
# ---------
# The emergency stop, as a runner honours it: while the sentinel file exists its agent stands still, whether or not a supervisor
# lives.


if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from supervisor.host.procfs import Seen
else:
    import _signal as signal

LOOK_S = 0.5  # between two looks for the sentinel; an idle look costs a system call
_ROUNDS = 100  # of stopping what a tree forks meanwhile; the next look goes on
_STOPPED, _NO_CODE_RUNS = "Tt", "TtDZX"
RECORD = "stopped"  # in the attempt's directory, while its tree stands still because of the sentinel


class EmergencyStop:
    """Of one attempt. `near` gives the living processes below the runner, parents before children; `far` others of the attempt, and costs a
    look at all of the machine's processes: it is asked once a stop."""

    def __init__(self, sentinel: bytes, near: Callable[[], list[Seen]], far: Callable[[], list[Seen]]) -> None:
        self._sentinel = sentinel
        self._near, self._far = near, far
        self._sent: dict[tuple[int, int], Seen] = {}
        self._since = 0.0
        self._still_s = 0.0

    def ordered(self) -> bool:
        """Whether everything is to stand still."""
        return bool(self._sentinel) and os.path.exists(self._sentinel)

    def step(self) -> None:
        """Stop what moves while the sentinel is there; let go what was stopped once it is not."""
        if self.ordered():
            still = self._stop(self._near)
            if not self._since:
                self._since = time.monotonic()
                still = self._stop(self._far) and still
            if still and not os.path.lexists(RECORD):
                os.close(os.open(RECORD, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        elif self._since:
            self._let_go()

    def stood_still(self) -> float:
        """Seconds for which it was stopped: no part of its time, unless it was paused meanwhile, which is counted by itself."""
        return self._still_s + (time.monotonic() - self._since if self._since else 0.0)

    def _stop(self, find: Callable[[], list[Seen]]) -> bool:
        """Stop whoever moves; whether a look found nobody."""
        for _ in range(_ROUNDS):
            moving = [seen for seen in find() if seen.state not in (_NO_CODE_RUNS if seen.key in self._sent else _STOPPED)]
            if not moving:
                return True
            for seen in moving:
                if send(seen, signal.SIGSTOP):
                    self._sent[seen.key] = seen
        return False

    def _let_go(self) -> None:
        """Children first, so that no shell with job control sees a stopped child."""
        for seen in reversed(self._sent.values()):
            if lives(seen):
                send(seen, signal.SIGCONT)
        self._sent.clear()
        self._still_s, self._since = self.stood_still(), 0.0
        if os.path.exists(RECORD):
            os.unlink(RECORD)


# Output
# ------
# Where a headless agent's output goes: a log of bounded size, and the pane, at a pace that tmux can follow.
#
# Neither may ever slow the agent down or make it fail. What does not fit is left out, counted and marked.


TAIL = 2**20  # bytes of the end kept when a log is cut: enough for the last result line, which holds the longest answer of a model
_MARKERS = 128  # bytes set aside for our own lines, so that a log stays inside its quota
_PACE = 1_000_000  # bytes a second; eight unpaced panes of `yes` took 61 % of a core of the tmux server
_BURST = 64 * 1024


class Log:
    """One capped log file: its beginning, then `[nightcrew: truncated N bytes]`, then its last MiB.

    A full disk costs the bytes of that time and nothing more: every later write tries again and marks the gap first.
    """

    __slots__ = ("_cut", "_gap", "_handle", "_name", "_room", "_size", "_tail", "_tail_max", "lost")

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._handle = -1
        self._size = 0
        self._tail_max = min(TAIL, limit // 2)
        self._room = max(limit - self._tail_max - _MARKERS, 0)
        self._tail = bytearray()
        self._cut = 0
        self._gap = 0
        self.lost = 0
        """Bytes left out so far, by the cap or by a full disk."""
        self._put(b"")

    def add(self, data: bytes) -> None:
        head = data[: self._room]
        if head:
            self._append(head)
            self._room -= len(head)
        rest = data[len(head) :]
        if rest:
            self._tail += rest
            over = max(len(self._tail) - self._tail_max, 0)
            self._cut += over
            self.lost += over
            del self._tail[:over]

    def close(self) -> None:
        """Write what was held back and make the file durable, so that no exit record can outlive the output it is judged by."""
        if self._cut:
            self._append(b"\n[nightcrew: truncated %d bytes]\n" % self._cut)
        self._append(self._tail)
        self._mark_gap()
        if self._handle >= 0:
            try:
                os.ftruncate(self._handle, self._size)  # drop a marker that was only half written
                os.fsync(self._handle)
            except OSError:
                pass  # the same full or broken disk: what is lost is counted already
            os.close(self._handle)

    def _append(self, data: bytes | bytearray) -> None:
        written = self._put(data) if self._mark_gap() else 0
        self._size += written
        self._gap += len(data) - written
        self.lost += len(data) - written

    def _mark_gap(self) -> bool:
        """Whether the file is ready for more: a gap before it has been marked, or there is none."""
        if self._gap:
            marker = b"\n[nightcrew: %d bytes lost, no space to write them]\n" % self._gap
            if self._put(marker) < len(marker):
                return False
            self._size += len(marker)
            self._gap = 0
        return True

    def _put(self, data: bytes | bytearray) -> int:
        """Write at the end that we know of and say how much arrived; what a failed marker left there is written over."""
        try:
            if self._handle < 0:
                self._handle = os.open(self._name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            return os.pwrite(self._handle, data, self._size)
        except OSError:
            return 0


class Pane:
    """The terminal of the pane: a view for people. It is never waited for, and a pane that is gone is no error."""

    __slots__ = ("_at", "_buffer", "_credit", "_handle", "_skipped")

    def __init__(self, terminal: int, now: float) -> None:
        self._buffer = b""
        self._skipped = 0
        self._credit = float(_BURST)
        self._at = now
        self._handle = _reopen(terminal)

    @property
    def waiting(self) -> bool:
        return bool(self._buffer or self._skipped)

    def show(self, data: bytes) -> None:
        if self._handle < 0:
            return
        if len(self._buffer) + len(data) > _BURST:
            self._skipped += len(data)
            return
        self._note_skipped()
        self._buffer += data

    def _note_skipped(self) -> None:
        """CAN and the reset end whatever escape sequence or colour the missing part had begun."""
        if self._skipped:
            self._buffer += b"\x18\x1b[0m\n[nightcrew: %d bytes not shown here, see the logs]\n" % self._skipped
            self._skipped = 0

    def flush(self, now: float) -> bool:
        """Pass on what the pace allows at `now` (monotonic seconds) and the terminal takes at once; whether that was anything."""
        if not self._buffer:
            self._note_skipped()
        self._credit = min(_BURST, self._credit + (now - self._at) * _PACE)
        self._at = now
        ready = self._buffer[: int(self._credit)]
        if not ready:
            return False
        try:
            written = os.write(self._handle, ready)
        except BlockingIOError:
            return False
        except OSError:  # EIO: the session is closed
            self._handle = -1
            self._buffer = b""
            self._skipped = 0
            return False
        self._credit -= written
        self._buffer = self._buffer[written:]
        return True


def _reopen(terminal: int) -> int:
    """A non-blocking handle of our own on the terminal: O_NONBLOCK on the given one would change it for every process that holds it."""
    try:
        return os.open(os.ttyname(terminal), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1


# Records
# -------
# The runner's side of the files in an attempt's directory, all relative to the working directory.
#
# `supervisor.kernel.records` owns the formats; this is the second writer and reader of them because importing `json` and
# `dataclasses` costs the runner more than the rest of its start. `tests/agents/runner/test_records.py` holds the two together.


# (pathlib costs more than this whole file, see agents/runner/main.py)


_RESERVE = 4096  # bytes kept for exit.json, so that a disk that fills up later cannot swallow the record


class SpecError(Exception):
    """`launch.spec` is not what `supervisor.kernel.records.write_spec` writes."""


class Spec:
    """`launch.spec`, with paths and everything that is handed to `execve` still in bytes."""

    __slots__ = (
        "argv", "cores", "cwd", "env", "epoch", "gate", "gate_hold", "gate_timeout_s", "grace_s", "hint_socket", "hold", "idle", "join",
        "log_max", "mark", "mode", "nice", "policy", "quiet", "rlimits", "sentinel", "share", "stdin", "tag", "task", "timeout_s", "warm",
        "wrap",
    )  # fmt: skip

    def __init__(self, data: bytes) -> None:
        if not data.endswith(b"\0"):
            raise SpecError("it is cut short")
        many: dict[bytes, list[bytes]] = {}
        for entry in data[:-1].split(b"\0"):
            key, _, value = entry.partition(b"=")
            many.setdefault(key, []).append(value)
        try:
            one = {key: values[-1] for key, values in many.items()}
            self.task = _text(one[b"task"])
            self.epoch = int(one[b"epoch"])
            self.tag = one[b"tag"]
            self.argv = many[b"argv"]
            self.cwd = one[b"cwd"]
            self.mode = one[b"mode"]
            self.stdin = one[b"stdin"]
            self.timeout_s = float(one[b"timeout_s"])
            self.grace_s = float(one[b"grace_s"])
            self.log_max = int(one[b"log_max"])
            self.nice = int(one[b"nice"])
            self.mark = int(one[b"mark"])
            self.hint_socket = one[b"hint_socket"]
            self.hold = one[b"hold"]
            self.warm = one.get(b"warm") == b"True"  # these eleven are missing in what an older supervisor wrote
            self.idle = one.get(b"idle") == b"True"
            self.quiet = one.get(b"quiet") == b"True"
            self.sentinel = one.get(b"sentinel", b"")
            self.policy = one.get(b"policy", b"")
            self.wrap = many.get(b"wrap", [])
            self.join = many.get(b"join", [])
            self.gate = many.get(b"gate", [])
            self.gate_timeout_s = float(one.get(b"gate_timeout_s", b"0"))
            self.gate_hold = one.get(b"gate_hold", b"")
            self.share = many.get(b"share", [])
            self.env = dict(_pair(text) for text in many.get(b"env", []))
            self.cores = [int(text) for text in many.get(b"core", [])]
            self.rlimits = [(name.decode("ascii"), int(number)) for name, number in map(_pair, many.get(b"rlimit", []))]
        except KeyError as missing:
            raise SpecError(f"it has no entry {missing}") from None
        except ValueError as wrong:
            raise SpecError(str(wrong)) from None

    def of_gate(self) -> Spec:
        """The same for the gate's command."""
        made = Spec.__new__(Spec)
        for name in Spec.__slots__:
            setattr(made, name, getattr(self, name))
        made.argv, made.timeout_s, made.mode, made.stdin, made.warm = self.gate, self.gate_timeout_s, b"headless", b"", False
        return made

    @property
    def headless(self) -> bool:
        return self.mode != b"terminal"

    @property
    def detached(self) -> bool:
        """Return whether the agent runs without a controlling terminal, so that no program of its can ask a question there."""
        return self.mode == b"headless"

    @property
    def confined(self) -> bool:
        """Whether something stands between us and the agent that reports a signal n as the status 128+n."""
        return bool(self.policy or self.wrap)


def _pair(text: bytes) -> tuple[bytes, bytes]:
    name, _, value = text.partition(b"=")
    return name, value


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def read_spec() -> Spec:
    """Raises OSError when the file cannot be read and SpecError when it is not whole."""
    handle = os.open("launch.spec", os.O_RDONLY | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        return Spec(file.read())


def to_json(value: object) -> str:
    """JSON of the few shapes our records have; everything outside printable ASCII is escaped, lone surrogates included."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return '"' + "".join(map(_escape, value)) + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{to_json(key)}: {to_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(to_json, value)) + "]"
    return repr(value)


def _escape(char: str) -> str:
    if " " <= char <= "~" and char not in '"\\':
        return char
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def write_started(shape: dict[str, object]) -> bool:
    """Write `started.json`; False when it exists already, and then nothing was touched.

    A hard link is both exclusive and whole: unlike O_EXCL alone, no reader and no crash can see a half-written file.
    """
    draft = f".started.{os.getpid()}"
    handle = _create(draft)
    try:
        _write_all(handle, to_json(shape).encode("ascii"))
        os.fsync(handle)
        os.link(draft, "started.json")
    except FileExistsError:
        return False
    finally:
        os.close(handle)
        os.unlink(draft)
    _sync_directory()
    return True


class ExitRecord:
    """The place of `exit.json`, reserved before the agent starts and filled when it ends."""

    __slots__ = ("_draft", "_handle")

    def __init__(self) -> None:
        self._draft = f".exit.{os.getpid()}"
        self._handle = _create(self._draft)
        _write_all(self._handle, b" " * _RESERVE)

    def discard(self) -> None:
        os.unlink(self._draft)

    def write(self, shape: dict[str, object]) -> None:
        """Publish the record: from the rename on, the attempt has ended."""
        text = to_json(shape).encode("ascii")
        os.lseek(self._handle, 0, os.SEEK_SET)
        _write_all(self._handle, text)
        os.ftruncate(self._handle, len(text))
        os.fsync(self._handle)
        os.rename(self._draft, "exit.json")
        _sync_directory()


def _create(name: str) -> int:
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def _sync_directory() -> None:
    handle = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Loop
# ----
# One attempt from fork to record: the loop that waits, passes output on, and stops the tree.
#
# One `poll` serves everything: signals arrive as bytes in a pipe (so none is lost between two looks), output arrives as data, and
# time is the poll's time-out. Whoever waits for something, the stopping included, waits by `turn`, so output keeps flowing while a
# tree is being stopped.


if TYPE_CHECKING:
    import signal

    from supervisor.host.procfs import Seen
else:
    import _signal as signal

_TAG = b"NIGHTCREW_TAG="  # supervisor.kernel.records.TAG_VARIABLE; a test holds the two together
_LEFTOVER_GRACE_S = 0.5  # between TERM and KILL for what an agent left running when it ended by itself
_RSS_UNIT = 1024  # Linux counts ru_maxrss in KiB
_CHUNK = 65536  # a pipe's capacity
_DRAIN_READS = 64  # 4 MiB: more than any pipe holds (1 MiB), so only a survivor that cannot be killed reaches it
_HOLD_TICK_S = 0.01  # between two looks for the file that lets a held command begin
_GATE_TICK_S = 1.0  # the longest time between two looks for the file that lets a gate begin; no supervisor may live for hours
_WORKED = "worked"  # supervisor.kernel.records.WORKED; a test holds the two together
_STILL_TICK_S = 0.05  # between two looks at whether a paused agent whose time is nearly over goes on
_YEAR_S = 365 * 86400.0
_PANE_TICK_S = 0.02
_PANE_LAST_TRIES = 600
"""Times in a row that the pane may take nothing of what is left: 3 s. A tmux server on a busy machine was silent for longer than 0.2 s."""
_FINISHED = "finished"  # supervisor.kernel.records.FINISHED; a test holds the two together
_KEYS = (signal.SIGINT, signal.SIGQUIT)  # what Ctrl-C and Ctrl-\ in the pane send
_REASONS: dict[int, str] = {signal.SIGTERM: "stopped", signal.SIGINT: "stopped", signal.SIGHUP: "hangup"}


def hint(spec: Spec) -> None:
    """Tell the daemon to look now. It looks anyway within a tick, so nothing depends on this and nothing waits for it."""
    if not spec.hint_socket:
        return
    import _socket  # only now: an agent that never needed it started sooner

    try:
        post = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
        post.setblocking(False)
        post.sendto(f"{spec.task}:{spec.epoch}".encode("utf-8", "surrogateescape"), spec.hint_socket)
    except OSError:
        pass


class Attempt:
    """The agent, its tree and its output. Construct it before the epoch is claimed: from then on no signal is lost."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._wall = time.time()
        self._began = time.monotonic()
        self._wake = _signals_as_bytes()
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._logs: dict[str, Log] = {}
        self._sources: dict[int, Log] = {}
        self._quiet = -1
        """The source that the pane does not show."""
        self._pane = Pane(1 if spec.headless else -1, self._began)
        self._born = me.ticks if (me := look(os.getpid())) else 0
        self._agent = -1
        """Its process, or the gate's."""
        self._passes_keys_on = False
        """The pane's keys mean the agent, which has left the pane's terminal."""
        self._at_gate = False
        self._status: int | None = None
        self._until = 0.0
        """When its time is over, by the monotonic clock; 0: never."""
        self._still_before = 0.0
        """For how long it had stood still when its time began."""
        self._asked = ""
        self._cpu_s = 0.0
        self._max_rss = 0
        self._reaped = 0
        self._survivors: list[int] = []
        self._emergency = EmergencyStop(spec.sentinel, lambda: descendants(os.getpid()), lambda: self._strays(set()))

    def run(self) -> tuple[int, dict[str, object]]:
        """Run the agent to its end and stop all it left behind; the status to exit with, and the shape of `exit.json`."""
        adopt_orphans()
        if self._hold():
            self._close_logs()
            return 128 + signal.SIGTERM, self._record(self._asked, "before its command began")
        try:
            self._start(self._spec, {1: "stdout", 2: "stderr"} if self._spec.headless else {})
        except StartError as error:
            self._close_logs()
            return error.status, self._record("exec", error.detail)
        why = self._end(self._spec)
        agent = self._status
        well = why == "finished" or (why == "exit" and agent == 0)
        gate = self._gate(self._spec.of_gate()) if self._spec.gate and well and self._gate_may_begin() else None
        self._status = agent
        self._close_logs()
        code = 128 + signal.SIGKILL if agent is None else os.waitstatus_to_exitcode(agent)
        return code if code >= 0 else 128 - code, self._record(self._asked or why, "", gate)

    def _hold(self) -> bool:
        """Wait until the command may begin; true when the attempt was asked to end first. Its time counts from here."""
        if self._spec.hold:
            os.write(1, b"nightcrew: ready; waiting until all that begin together are up\n")
        while self._spec.hold and not self._asked and not os.path.exists(self._spec.hold):
            self._turn(_HOLD_TICK_S)
        if self._emergency.ordered():
            os.write(1, b"nightcrew: everything is stopped; waiting for nightcrew thaw\n")
        while not self._asked and self._emergency.ordered():
            self._turn(LOOK_S)
        self._wall = time.time()
        self._began = time.monotonic()
        return bool(self._asked)

    def _start(self, spec: Spec, names: dict[int, str]) -> None:
        """Start it with the logs of these names behind its handles."""
        pipes: dict[str, int] = {}
        for name in dict.fromkeys(names.values()):
            source, pipes[name] = os.pipe()
            os.set_blocking(source, False)
            self._logs[name] = self._sources[source] = Log(f"{name}.log", spec.log_max)
            self._poll.register(source, select.POLLIN)
            if spec.quiet and name == "stdout":
                self._quiet = source
        self._until = time.monotonic() + spec.timeout_s if spec.timeout_s > 0 else 0.0
        self._status = None
        self._passes_keys_on = spec.detached and os.isatty(0)
        try:
            self._agent = start(spec, {handle: pipes[name] for handle, name in names.items()})
        finally:
            for theirs in pipes.values():
                os.close(theirs)

    def _end(self, spec: Spec) -> str:
        """Until it has ended, and nothing that it started is left: why it did."""
        why = self._wait()
        self._stop_tree(_LEFTOVER_GRACE_S if why == "exit" else spec.grace_s)
        self._drain()
        return why

    def _gate_may_begin(self) -> bool:
        """Say that the agent has ended, and wait until what it left is secured: what the gate changes is not its work. False when the
        attempt was asked to end first."""
        if self._spec.gate_hold:
            os.close(os.open(_WORKED, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            hint(self._spec)
        tick = _HOLD_TICK_S
        while self._spec.gate_hold and not self._asked and not os.path.exists(self._spec.gate_hold):
            self._turn(tick)
            tick = min(tick * 1.2, _GATE_TICK_S)
        return not self._asked

    def _gate(self, spec: Spec) -> dict[str, object]:
        """Run the gate as the agent was run, on what that has left; how it ended."""
        began = time.monotonic()
        self._at_gate = True
        self._still_before = self._stood_still()
        if not self._spec.headless:
            self._pane = Pane(1, began)
        self._pane.show(b"nightcrew: the gate: %s\n" % b" ".join(spec.gate).translate(None, bytes(range(32))))
        why, detail = "exec", ""
        try:
            self._start(spec, {1: "gate", 2: "gate"})
            why = self._end(spec)
        except StartError as error:
            detail = error.detail
        code, number = self._code(self._status)
        return {"code": code, "signal": number, "why": why, "detail": detail, "duration_s": time.monotonic() - began}

    def _wait(self) -> str:
        """Wait until the agent ends, or a signal, the deadline or the supervisor asks for its end; return which. A stopped agent has not
        ended."""
        while self._status is None and not self._asked:
            left = self._until - time.monotonic() if self._until else None
            if left is not None and left <= 0:
                left += self._stood_still() - self._still_before
                if left <= 0:
                    return "timeout"
                left = max(left, _STILL_TICK_S)
            self._turn(left if self._spec.sentinel == b"" else LOOK_S if left is None else min(left, LOOK_S))
            self._emergency.step()
            if not self._at_gate and os.path.exists(_FINISHED) and not self._emergency.ordered() and not self._paused()[1]:
                return "finished"
        return self._asked or "exit"

    def _stood_still(self) -> float:
        """Seconds for which the agent stood still: they are no part of its time."""
        return self._paused()[0] + self._emergency.stood_still()

    def _paused(self) -> tuple[float, float]:
        """Return the seconds for which the supervisor had the agent paused, until now, and since when it is (monotonic; 0.0: it is not)."""
        try:
            with open("paused", "rb") as file:
                seconds, since = map(float, file.read(100).split())
        except (OSError, ValueError):  # it never was, or this is no record of ours
            return 0.0, 0.0
        total = seconds + (time.monotonic() - since if since else 0.0)
        return (total, since) if 0 <= total < _YEAR_S else (0.0, 0.0)  # without a sandbox the agent can write it too

    def _stop_tree(self, grace_s: float) -> None:
        """Nobody of the tree outlives its agent: first what is below us (no orphan can leave, we are its subreaper), then whatever
        else carries the tag: a build server or `at` can start processes with an environment that it was handed."""
        left_s = _LEFTOVER_GRACE_S
        if self._emergency.ordered():  # whoever hears TERM moves
            grace_s = left_s = 0.0
        ours = halt(self._living, self._pause, time.monotonic, grace_s)
        given_up = {seen.key for seen in ours.survivors}
        strays = halt(lambda: self._strays(given_up), self._pause, time.monotonic, left_s)
        self._reap()  # who died during the last look, for the sum of cpu_s
        self._survivors = sorted({seen.pid for seen in [*ours.survivors, *strays.survivors]})

    def _living(self) -> list[Seen]:
        """What is below us. While the kernel says that we have a child, an empty look was a race with an exit: then read everything."""
        if not self._reap():
            return []
        return descendants(os.getpid()) or [seen for seen in below([os.getpid()], table()).values() if not seen.dead]

    def _strays(self, given_up: set[tuple[int, int]]) -> list[Seen]:
        """Carriers of the tag anywhere. Only processes younger than we are can be, which spares the bulk of a busy machine."""
        younger = (seen for seen in table().values() if seen.ticks >= self._born and seen.key not in given_up)
        return tagged(_TAG + self._spec.tag, self._spec.mark, younger)

    def _pause(self, seconds: float) -> None:
        """Let `seconds` pass, or less when a process of the tree ends."""
        until = time.monotonic() + seconds
        before = self._reaped
        while self._reaped == before and (left := until - time.monotonic()) > 0:
            self._turn(left)

    def _turn(self, seconds: float | None) -> None:
        """Serve whatever happens first within `seconds` (None: however long it takes)."""
        if self._pane.waiting:
            seconds = _PANE_TICK_S if seconds is None else min(seconds, _PANE_TICK_S)
        for handle, _ in self._poll.poll(None if seconds is None else seconds * 1000):
            if handle == self._wake:
                self._take_signals()
            else:
                self._take_output(handle)
        self._pane.flush(time.monotonic())

    def _take_signals(self) -> None:
        numbers = os.read(self._wake, 512)
        self._reap()
        for number in numbers:
            if number in _KEYS and self._passes_keys_on:
                self._pass_on(number)
            elif number in _REASONS and not self._asked:
                self._asked = _REASONS[number]

    def _pass_on(self, number: int) -> None:
        """Send a key's signal to the group that a terminal would send it to: the agent's own, which inside a sandbox is the oldest of its
        session beside that of the sandbox's processes."""
        if self._status is not None:
            return
        found = descendants(self._agent) if self._spec.confined else []
        inside = [seen for seen in found if seen.group != self._agent and _session(seen.pid) == self._agent]
        group = min(inside, key=lambda seen: (seen.ticks, seen.pid)).group if inside else self._agent
        try:  # noqa: SIM105 - contextlib costs several ms
            os.killpg(group, number)
        except OSError:
            pass  # it ended

    def _reap(self) -> bool:
        """Collect every process that ended; False when there is no child left, not even a running one."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self._reaped += 1
            self._cpu_s += usage.ru_utime + usage.ru_stime
            self._max_rss = max(self._max_rss, usage.ru_maxrss)
            if pid == self._agent:
                self._status = status

    def _take_output(self, source: int) -> bool:
        """Pass one piece on; False when there is none now."""
        try:
            data = os.read(source, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._poll.unregister(source)
            del self._sources[source]
            os.close(source)
            return False
        self._sources[source].add(data)
        if source != self._quiet:
            self._pane.show(data)
        return True

    def _drain(self) -> None:
        """What the tree had written before it ended still lies in the pipes."""
        for source in list(self._sources):
            for _ in range(_DRAIN_READS):
                if not self._take_output(source):
                    break
        in_vain = 0
        while self._pane.waiting and in_vain < _PANE_LAST_TRIES:
            in_vain = 0 if self._pane.flush(time.monotonic()) else in_vain + 1
            time.sleep(_PANE_TICK_S / 4)

    def _close_logs(self) -> None:
        for log in self._logs.values():
            log.close()

    def _code(self, status: int | None) -> tuple[int | None, int | None]:
        """Exit status and signal of what `wait` said; at most one of them is something."""
        if status is None:
            return None, None
        code = os.waitstatus_to_exitcode(status)
        if self._spec.confined and code - 128 in signal.valid_signals():
            code = 128 - code
        return (code, None) if code >= 0 else (None, -code)

    def _record(self, why: str, detail: str, gate: dict[str, object] | None = None) -> dict[str, object]:
        code, number = self._code(self._status)
        return {
            "schema": 1,
            "task": self._spec.task,
            "epoch": self._spec.epoch,
            "code": code,
            "signal": number,
            "why": why,
            "detail": detail,
            "started": self._wall,
            "ended": time.time(),
            "duration_s": time.monotonic() - self._began,
            "cpu_s": self._cpu_s,
            "max_rss": self._max_rss * _RSS_UNIT,
            "truncated": {name: log.lost for name, log in self._logs.items() if log.lost},
            "survivors": self._survivors[:100],
            "gate": gate,
        }


def _signals_as_bytes() -> int:
    """From now on TERM, INT, HUP and CHLD arrive as bytes at the returned handle, and no terminal can stop us."""
    wake, bell = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(bell, False)
    signal.set_wakeup_fd(bell, warn_on_full_buffer=False)
    for number in (*_REASONS, *_KEYS, signal.SIGCHLD):
        signal.signal(number, _arrived)
    for number in (signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    return wake


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0  # it ended


def _arrived(number: int, frame: object) -> None:
    """The byte in the pipe is the message; a handler must exist for it to be written."""
