"""The files by which a runner and the daemon speak across any crash, and the names both derive.

An attempt's directory, `runs/<run>/<task>/<epoch>/`:

    launch.spec    daemon -> runner   what to run and inside what limits; `key=value` entries, each ended by NUL (0600)
    started.json   runner -> daemon   written once with O_EXCL: who runs this epoch (a second runner exits)
    exit.json      runner -> daemon   written by rename: how the agent ended; its presence ends the attempt
    result.json    daemon -> people   the judged result, schema 1
    begin          daemon -> runner   empty; lets a held attempt's command begin
    finished       daemon -> runner   empty; the agent has given its result and stays: end it as if it had left with 0
    worked         runner -> daemon   empty; the agent has ended, and its gate waits for the next file
    secured.json   daemon -> runner   what the agent left, once that is on refs (`null`: it could not be); lets the gate begin
    paused         daemon -> runner   `SECONDS SINCE`: how long the agent stood still, and since when (monotonic); 0: it goes on
    stopped        runner -> daemon   empty; there while its tree stands still because of `nightcrew stop-all`
    taken.json     person -> people   the commit that `nightcrew take` merged last, and the branch that it merged it into
    after.json     daemon -> agent    what the tasks it comes after came to
    stdout.log stderr.log gate.log screen.txt diff.patch prompt.md out/

`launch.spec` is not JSON because the runner reads it: importing `json` there costs as much as the rest of its start
(measured: 14 ms against 26 ms). The parser here and the one in `agents/runner/loop.py` are held together by a contract test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, TypeVar

from supervisor.kernel import codec
from supervisor.kernel.names import Identity

SCHEMA = 1
TAKEN = "taken.json"
_YEAR_10000 = 253_402_300_799.0
"""Seconds since 1970: `datetime` cannot show what lies beyond."""
Seconds = Annotated[float, codec.Bound(0, _YEAR_10000)]
Bytes = Annotated[int, codec.Bound(0)]
Pid = Annotated[int, codec.Bound(1, 2**31 - 1)]
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """Everything the runner needs. Lists are repeated keys in the file, `env` entries are `env=NAME=value`.

    The last field has always been in it: a file that is cut short lacks it, one that an older version wrote does not.
    """

    task: str
    epoch: int
    tag: str
    argv: tuple[str, ...]
    """The agent's command, run without a shell."""
    cwd: str
    env: tuple[tuple[str, str], ...] = ()
    """The agent's whole environment: nothing else is inherited (TERM is the pane's own)."""
    mode: str = "headless"
    """`headless`: stdout and stderr are pipes, copied to the pane and to capped logs, and there is no controlling terminal. `listening`:
    the same, but the pane is its controlling terminal. `terminal`: the agent owns the pane."""
    stdin: str = ""
    """File that becomes the agent's stdin when headless; empty means /dev/null."""
    timeout_s: float = 0.0
    """Wall time by the monotonic clock before the whole tree is stopped; 0 means none."""
    grace_s: float = 5.0
    """Between TERM and KILL."""
    log_max: int = 64 * 2**20
    """Bytes kept of each of stdout.log and stderr.log."""
    nice: int = 0
    """Added to the niceness of its processes, and that of its session where the kernel shares time between sessions."""
    idle: bool = False
    """Its processes give way to every other one (SCHED_IDLE)."""
    cores: tuple[int, ...] = ()
    """CPU numbers the tree may use; empty means all."""
    rlimits: tuple[tuple[str, int], ...] = ()
    """Names as in `resource` without `RLIMIT_` (`AS`, `FSIZE`, `NOFILE`, `NPROC`, `CPU`, `CORE`) and the value of both limits."""
    warm: bool = False
    """In a runner that a zygote forked: run a Python program in the forked process itself. All other commands, and those of a runner that
    was started cold, are exec'd."""
    policy: str = ""
    """Absolute path of a file with the words of `supervisor.sandbox.executors.words`, each ended by NUL: the sandbox that the agent's
    process enters before its own code. Empty: none. `cwd` must be a directory in it."""
    wrap: tuple[str, ...] = ()
    """Words put before `argv`, such as bubblewrap's with its options. With these or a policy, a status of 128+n is recorded as signal n."""
    join: tuple[str, ...] = ()
    """Absolute paths of files by which a process joins control groups: the agent's process writes `0` to each before its own code. Where
    that fails it does not start."""
    share: tuple[str, ...] = ()
    """The same of the group that has its class's share of the processor; where that fails it starts all the same."""
    mark: int = 0
    """Value of the inherited rlimit mark, see `mark`; 0 means do not set one."""
    quiet: bool = False
    """Standard output of a headless agent is for programs: it is logged, and not shown in the pane."""
    sentinel: str = ""
    """File that has everything stand still while it exists (`nightcrew stop-all`), the start of the command too. Empty: none."""
    hold: str = ""
    """File in the attempt's directory: the command begins when it is there. Empty: at once."""
    gate: tuple[str, ...] = ()
    """A command that is run as the agent was, once that has exited with 0 and nothing of it is left; headless, without stdin, its output in
    gate.log. Empty: none."""
    gate_timeout_s: float = 0.0
    """As `timeout_s`, of the gate alone."""
    gate_hold: str = ""
    """File in the attempt's directory: the gate begins when it is there; the runner makes WORKED first. Empty: at once."""
    hint_socket: str = ""
    """Datagram socket that is told `task:epoch` when the attempt ends; a hint only."""


def write_spec(spec: LaunchSpec) -> bytes:
    """The bytes of `launch.spec`. Raises ValueError when a value holds NUL, which no argv or environment can carry."""
    entries: list[tuple[str, str]] = []
    for item in fields(spec):
        value = getattr(spec, item.name)
        if item.name == "env":
            entries += [("env", f"{name}={text}") for name, text in value]
        elif item.name == "rlimits":
            entries += [("rlimit", f"{name}={number}") for name, number in value]
        elif item.name == "cores":
            entries += [("core", str(number)) for number in value]
        elif item.name in ("argv", "wrap", "join", "share", "gate"):
            entries += [(item.name, text) for text in value]
        else:
            entries.append((item.name, str(value)))
    for key, text in entries:
        if "\0" in text:
            raise ValueError(f"{key} holds a NUL character")
    return b"".join(f"{key}={text}\0".encode("utf-8", "surrogateescape") for key, text in entries)


@dataclass(frozen=True, slots=True)
class Started:
    """`started.json`: the runner that owns the epoch."""

    task: str
    epoch: int
    identity: Identity
    at: Seconds
    """Wall clock, seconds since 1970."""


@dataclass(frozen=True, slots=True)
class GateExit:
    """How the gate of an attempt ended."""

    code: int | None
    signal: int | None
    why: str
    """As `Exit.why`."""
    detail: str = ""
    duration_s: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class Exit:
    """`exit.json`: how the agent ended, as its parent saw it by `wait`."""

    task: str
    epoch: int
    code: int | None
    """Exit status, or None when a signal ended it or it never ran."""
    signal: int | None
    why: str
    """`exit` (by itself) · `finished` (ended because its result was there) · `timeout` · `stopped` (TERM to the runner) · `hangup` (the
    session was closed) · `exec` (could not start)."""
    detail: str = ""
    """The kernel's words when `why` is `exec`."""
    started: Seconds = 0.0
    ended: Seconds = 0.0
    duration_s: Seconds = 0.0
    """By the monotonic clock: right across a clock change."""
    cpu_s: Seconds = 0.0
    """User and system time of every process of the tree that was reaped."""
    truncated: Mapping[str, int] = field(default_factory=dict)
    """Bytes left out of the logs `stdout`, `stderr` and `gate`."""
    survivors: tuple[Pid, ...] = ()
    """Pids of the tree that were still alive after KILL: normally none."""
    max_rss: Bytes = 0
    """The most that one process of those that were reaped had in memory at once, bytes; 0 in older records."""
    gate: GateExit | None = None
    """None: it has none, or its agent did not end well. All else here is about the agent, but for times and what was left alive."""


def parse_started(text: str) -> Started | None:
    """Read `started.json`; None when it is not a whole, valid record."""
    found = _read(Started, text)
    return found if found is not None and 0 < found.identity.pid < 2**31 else None


def parse_exit(text: str) -> Exit | None:
    """Read `exit.json`; None when it is not a whole, valid record."""
    return _read(Exit, text, "started", "ended", "duration_s", "cpu_s")


def _read(kind: type[R], text: str, *needed: str) -> R | None:
    """Without a sandbox an agent can write these files too, so what is read must be harmless: a pid that `kill` takes for a group, a time
    that no calendar has, or text that no database takes would each stop the daemon, and stop it again after every restart."""
    try:
        shape = json.loads(text)
        if not isinstance(shape, dict) or shape.get("schema") != SCHEMA or not shape.keys() >= {*needed}:
            return None
        return codec.check(kind, {"identity": shape, **shape}, whole=False)
    except (ValueError, RecursionError):
        return None


PAUSED, FINISHED = "paused", "finished"
"""Names of these files."""
WORKED, SECURED = "worked", "secured.json"
"""Names of the two files between an agent's end and its gate."""


def parse_stood_still(data: bytes) -> tuple[float, float]:
    """Read `paused`: how many seconds the agent stood still until now, and since when it does by the monotonic clock; 0.0 when it does
    not, and where nothing of that is there."""
    try:
        seconds, since = map(float, data.split())
    except ValueError:
        return 0.0, 0.0
    return (seconds, since) if 0 <= seconds < _YEAR_10000 and 0 <= since < _YEAR_10000 else (0.0, 0.0)
