"""One attempt from fork to record: the loop that waits, passes output on, and stops the tree.

One `poll` serves everything: signals arrive as bytes in a pipe (so none is lost between two looks), output arrives as data,
and time is the poll's time-out. Whoever waits for something, the stopping included, waits by `turn`, so output keeps flowing
while a tree is being stopped.
"""

import os
import select
import time

from agents.runner.child import StartError, adopt_orphans, start
from agents.runner.emergency import LOOK_S, EmergencyStop
from agents.runner.output import Log, Pane
from supervisor.host.procfs import below, descendants, halt, look, table, tagged

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal

    from agents.runner.records import Spec
    from supervisor.host.procfs import Seen
else:
    import _signal as signal

_TAG = b"NIGHTCREW_TAG="  # supervisor.core.identity.TAG_VARIABLE; a test holds the two together
_LEFTOVER_GRACE_S = 0.5  # between TERM and KILL for what an agent left running when it ended by itself
_RSS_UNIT = 1024  # Linux counts ru_maxrss in KiB
_CHUNK = 65536  # a pipe's capacity
_DRAIN_READS = 64  # 4 MiB: more than any pipe holds (1 MiB), so only a survivor that cannot be killed reaches it
_HOLD_TICK_S = 0.01  # between two looks for the file that lets a held command begin
_GATE_TICK_S = 1.0  # the longest time between two looks for the file that lets a gate begin; no supervisor may live for hours
_WORKED = "worked"  # supervisor.core.records.WORKED; a test holds the two together
_STILL_TICK_S = 0.05  # between two looks at whether a paused agent whose time is nearly over goes on
_YEAR_S = 365 * 86400.0
_PANE_TICK_S = 0.02
_PANE_LAST_TRIES = 40
"""In a row that the pane took nothing of what is left: 0.2 s, or longer where the runner itself hardly gets to run."""
_FINISHED = "finished"  # supervisor.core.records.FINISHED; a test holds the two together
_KEYS = (signal.SIGINT, signal.SIGQUIT)  # what Ctrl-C and Ctrl-\ in the pane send
_REASONS: dict[int, str] = {signal.SIGTERM: "stopped", signal.SIGINT: "stopped", signal.SIGHUP: "hangup"}


def hint(spec: "Spec") -> None:
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

    def __init__(self, spec: "Spec") -> None:
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

    def _start(self, spec: "Spec", names: dict[int, str]) -> None:
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

    def _end(self, spec: "Spec") -> str:
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

    def _gate(self, spec: "Spec") -> dict[str, object]:
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

    def _living(self) -> "list[Seen]":
        """What is below us. While the kernel says that we have a child, an empty look was a race with an exit: then read everything."""
        if not self._reap():
            return []
        return descendants(os.getpid()) or [seen for seen in below([os.getpid()], table()).values() if not seen.dead]

    def _strays(self, given_up: set[tuple[int, int]]) -> "list[Seen]":
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
