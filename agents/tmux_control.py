"""One `tmux -C` client, kept open, and what tmux lists."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from urllib.parse import parse_qsl, quote, urlencode

from supervisor.host import files, processes, unix_sockets
from supervisor.kernel.errors import ToolFailed, ToolMissing
from supervisor.kernel.format import duration

# Control
# -------
# One `tmux -C` client, kept open: a command costs a write and a read instead of a process.
#
# The protocol: each command of a line answers with a block `%begin TIME NUMBER FLAGS` … `%end` or `%error` with the same three
# numbers; notifications stand between blocks. After every line we send a second one that prints a number nobody else knows.
# Everything before that mark is the reply, so a screen full of forged `%end` lines cannot shift it: of several matching ends the
# last one is the real one.
#
# A tmux server up to 3.6 crashes, with every session in it, when it has news for control clients while another one is half
# connected (tmux pull request 4980; 3.3a did so in most of our trials with six clients). So one turn at a time: whoever sends a
# command or starts a client holds a file lock, in all nightcrew processes of a user. And before a client starts, a plain call makes
# sure that the server has dealt with what came before, such as the end of the last client.
#
# A server that cannot write to a client never lets it go: kill -9 of a supervisor that read a screen left one in half of our
# trials, and a server with such a client does not even exit. The next client to start kills them.


LINE_MAX = 2**20
"""Bytes of one command line. tmux's limit of 16 kB is for the arguments of a process and does not hold here; parsing 1 MB was
measured to keep the server from everybody else for 0.4 s."""

READY = "ready"
"""What the client's own arguments print last. A command sent before that may meet a client without a session and fail."""

_BEGIN = re.compile(rb"%begin (\d+ \d+ 1)")  # flag 1: an answer to us; 0: the client's own start, hooks
_CHUNK = 65536
_TURN_PAUSE_S = 0.002


class ClientLost(ToolFailed):
    """The client ended before it answered; whether tmux ran the command is unknown."""


@dataclass(frozen=True, slots=True)
class Block:
    """What one command printed, or the error it ended with."""

    ok: bool
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def parse_blocks(lines: Sequence[bytes]) -> list[Block]:
    """The answers among `lines`, in order; all other lines are notifications and are skipped."""
    blocks: list[Block] = []
    at = 0
    while at < len(lines):
        begin = _BEGIN.fullmatch(lines[at])
        end = _last_end(lines, at, begin[1]) if begin else None
        if end is not None:
            body = tuple(line.decode("utf-8", "surrogateescape") for line in lines[at + 1 : end])
            blocks.append(Block(ok=lines[end].startswith(b"%end"), lines=body))
            at = end
        at += 1
    return blocks


def _last_end(lines: Sequence[bytes], begin: int, key: bytes) -> int | None:
    ends = (b"%end " + key, b"%error " + key)
    return next((at for at in range(len(lines) - 1, begin, -1) if lines[at] in ends), None)


class ControlClient:
    """Thread-safe: one request at a time. Starts its process at the first request and again after it was lost.

    The process has a process group of its own, its pipes are not inherited by other programs. Use it in the process that
    made it, not in a fork.
    """

    def __init__(self, tmux: Sequence[str], attach: Sequence[str], env: Mapping[str, str], turn: Path, deadline_s: float) -> None:
        """`tmux` reaches the server and never starts one; the commands `attach` attach and print `READY`; `turn` is the lock file that
        all clients of one server share.
        """
        self._tmux = tuple(tmux)
        self._attach = tuple(attach)
        self._turn = turn
        self._env = dict(env)
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._secret = os.urandom(8).hex()
        self._numbers = itertools.count()

    def request(self, line: str, *, once: bool = False) -> list[Block]:
        """Run one command line and return a block for each command that ran. When the client is lost the line is sent again to a
        new one, so tmux may run it twice; `once` forbids that.

        Raises ToolFailed when the deadline passes (the client's process group is killed; the next request starts a new
        one) or when the line is too long; ClientLost when the client cannot reach the server; ToolMissing without tmux.
        """
        ends_at = time.monotonic() + self._deadline_s
        data = line.encode()
        if len(data) > LINE_MAX:
            raise ToolFailed("tmux command is too long", why=f"{len(data)} bytes, at most {LINE_MAX}", hint="pass long text by file")
        if not self._lock.acquire(timeout=self._deadline_s):
            raise self._late("another call still waits for an answer")
        try:
            with self._our_turn(ends_at):
                return self._request(data, ends_at, once=once)
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the client process, if there is one. Idempotent; a later request starts a new one."""
        with self._lock:
            self._drop()

    @contextlib.contextmanager
    def _our_turn(self, ends_at: float) -> Iterator[None]:
        """The kernel frees the lock of a process that dies, however it dies."""
        try:
            fd = os.open(self._turn, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ClientLost("cannot reach tmux", on=str(self._turn), why=error.strerror or str(error)) from error
        try:
            while not files.try_lock(fd):
                if time.monotonic() > ends_at:
                    raise self._late("another process still waits for an answer")
                time.sleep(_TURN_PAUSE_S)
            yield
        finally:
            os.close(fd)

    def _request(self, line: bytes, ends_at: float, *, once: bool) -> list[Block]:
        """A client from an earlier call may have ended since then, with its server or alone: that is worth a new client."""
        kept = self._process is not None and not once
        try:
            return self._exchange(line, ends_at)
        except ClientLost:
            if not kept:  # one that was made just now would only be lost again
                raise
            return self._exchange(line, ends_at)

    def _exchange(self, line: bytes, ends_at: float) -> list[Block]:
        mark = f"{self._secret}-{next(self._numbers)}".encode()
        try:
            process = self._process = self._process or self._open(ends_at)
            reply = self._transfer(process, line + b"\ndisplay-message -p " + mark + b"\n", mark, ends_at)
        except BaseException:  # also KeyboardInterrupt: half an answer in the pipe would be taken for the next one
            self._drop()
            raise
        return parse_blocks(reply.split(b"\n"))

    def _open(self, ends_at: float) -> subprocess.Popen[bytes]:
        while orphans := [pid for pid in self._clients(ends_at) if _orphaned(pid)]:
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        while True:
            process = self._process = open_group((*self._tmux, "-C", *self._attach), self._env)
            try:
                self._transfer(process, b"", READY.encode(), ends_at)
            except ClientLost as error:
                if CUT not in error.why or time.monotonic() > ends_at:
                    raise
                self._drop()
                time.sleep(_TURN_PAUSE_S)
            else:
                return process

    def _clients(self, ends_at: float) -> list[int]:
        """The control clients of the server. Their numbers are not stale: the server still holds their connections."""
        command = (*self._tmux, "list-clients", "-F", "#{?client_control_mode,#{client_pid},}")
        while CUT in (listed := run(command, self._env, max(0.0, ends_at - time.monotonic()))).output and time.monotonic() < ends_at:
            time.sleep(_TURN_PAUSE_S)
        if listed.output == NO_SESSION:
            return []
        if listed.code != 0:
            raise ClientLost("no tmux server answers", why=listed.output)
        return [int(pid) for pid in listed.output.split()]

    def _transfer(self, process: subprocess.Popen[bytes], data: bytes, mark: bytes, ends_at: float) -> bytes:
        """Write `data` and return the lines that come back before the block that prints `mark`."""
        assert process.stdin is not None  # noqa: S101  # open_group makes both pipes
        assert process.stdout is not None  # noqa: S101
        stdin, stdout = process.stdin.fileno(), process.stdout.fileno()
        poller = select.poll()
        poller.register(stdout, select.POLLIN)
        if data:
            poller.register(stdin, select.POLLOUT)
        mark = b"\n" + mark + b"\n%end "
        received = bytearray()
        while True:
            ready = dict(poller.poll(max(0.0, ends_at - time.monotonic()) * 1000))
            if not ready:
                raise self._late(f"no answer within {duration(self._deadline_s)}")
            if stdin in ready:
                data = _write_some(stdin, data)
                if not data:
                    poller.unregister(stdin)
            if stdout in ready:
                unseen = max(0, len(received) - len(mark))
                received += _read_some(stdout, received)
                at = received.find(mark, unseen)
                if at >= 0:
                    return bytes(received[: received.rfind(b"\n", 0, at) + 1])  # without the %begin of the mark

    def _late(self, why: str) -> ToolFailed:
        return ToolFailed("tmux did not answer", on=self._tmux[0], why=why, kept="the server and every session", hint="nightcrew status")

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            kill_group(process)


def _orphaned(pid: int) -> bool:
    """Whether nobody can read what the client prints: its stdout is a pipe whose other end is closed."""
    stdout = Path(f"/proc/{pid}/fd/1")
    try:
        if not stat.S_ISFIFO(stdout.stat().st_mode):
            return False
        fd = os.open(stdout, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # gone by now, or another user's
        return False
    try:
        poller = select.poll()
        poller.register(fd, 0)
        return any(event & select.POLLERR for _, event in poller.poll(0))
    finally:
        os.close(fd)


def _write_some(fd: int, data: bytes) -> bytes:
    """What is left to write. A closed pipe leaves nothing: the reason is on the client's output, still to be read."""
    try:
        return data[os.write(fd, data[:_CHUNK]) :]
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return b""


def _read_some(fd: int, before: bytearray) -> bytes:
    chunk = os.read(fd, _CHUNK)
    if not chunk:
        raise ClientLost("tmux client ended", why=_last_words(before))
    return chunk


def _last_words(received: bytearray) -> str:
    lines = (line.removeprefix("%exit ") for line in received.decode("utf-8", "replace").splitlines())
    words = [line for line in lines if line and not line.startswith("%")]
    return words[-1] if words else "it said nothing"


# Listings
# --------
# What tmux lists, read into values. Pure.
#
# A row is fields with a space between. `#{q:…}` puts a backslash before spaces and other special characters, so a name or title
# cannot shift the fields; numbers come first and free text last, so that even a damaged row keeps its pane.


FORMAT = (
    "#{session_id} #{pane_id} #{pane_pid} #{session_attached} #{pane_dead} #{pane_dead_status} #{pane_dead_signal} "
    "#{@nightcrew_control} #{q:@nightcrew_pane} #{q:session_name} #{q:pane_title}"
)

_ROW = re.compile(r"(\$\d+) (%\d+) (\d+) (\d+) ([01]?) (\d*) (\w*) ([^ ]*) (.*)")
_FIELD = re.compile(r"((?:\\.|[^\\ ])*)(?: |$)")


@dataclass(frozen=True, slots=True)
class PaneView:
    """One pane at the moment of the call."""

    session_id: str
    pane_id: str
    pid: int
    """Its first process; after its end the number may be another program's."""
    attached: int
    """Terminals that show the session, our control client's among them in its own session."""
    closed: bool
    """Nobody holds its terminal any more. Mostly it has ended, but a program may also close its terminal and run on."""
    dead: bool
    """It has ended, and tmux knows how; the runner's own record tells it."""
    control: bool
    """The pane is of our own `_control` session."""
    tags: Mapping[str, str]
    """As given to `spawn`; empty for a pane that a user made, also inside a session of ours."""
    session_name: str
    """As it is now: a user may have renamed it."""
    title: str
    """Set by the program inside: evidence of the lowest rank."""


def pack_tags(tags: Mapping[str, str]) -> str:
    """All tags as one value without spaces and control characters, for the pane option."""
    return urlencode(tags, quote_via=quote, safe="/:", errors="surrogateescape")


def parse_panes(rows: Iterable[str]) -> list[PaneView]:
    """Rows of `FORMAT` as panes in the order of their ids. A pane that several sessions show (session groups, linked windows) is
    listed once, under the oldest of them, with the terminals of all.
    """
    panes: dict[str, PaneView] = {}
    for row in rows:
        view = _parse(row)
        if view is None:
            continue
        other = panes.get(view.pane_id)
        if other is not None:
            oldest = min(view, other, key=lambda one: int(one.session_id[1:]))
            view = replace(oldest, attached=view.attached + other.attached)
        panes[view.pane_id] = view
    return sorted(panes.values(), key=lambda one: int(one.pane_id[1:]))


def _parse(row: str) -> PaneView | None:
    """None for a line that is no row: the rest of a value with a line break, which only a user's own tmux command can set."""
    found = _ROW.fullmatch(row)
    if found is None:
        return None
    session_id, pane_id, pid, attached, dead, status, signal_name, control, rest = found.groups()
    packed, name, title = [*map(_unescaped, _FIELD.findall(rest)), "", "", ""][:3]
    return PaneView(
        session_id=session_id,
        pane_id=pane_id,
        pid=int(pid),
        attached=int(attached),
        closed=dead == "1",
        dead=dead == "1" and bool(status or signal_name),
        control=control == "1",
        tags=unpack_tags(packed),
        session_name=name,
        title=title,
    )


def _unescaped(field: str) -> str:
    return re.sub(r"\\(.)", r"\1", field) if "\\" in field else field


@lru_cache(maxsize=4096)  # a pane's tags never change, and it is listed every second
def unpack_tags(packed: str) -> Mapping[str, str]:
    """What `pack_tags` made."""
    return MappingProxyType(dict(parse_qsl(packed, keep_blank_values=True, errors="surrogateescape")))


# Server process
# --------------
# The processes behind the door: the server's first start, one-off calls and the control client's pipes.
#
# Every child gets a short list of environment variables and nothing else, because whatever the server is started with is
# seen by every pane for as long as it lives, and a process group of its own, because a hung one is killed with its children.


MINIMUM = (3, 3)
"""First tmux with `remain-on-exit-format`; `-N` and `new-session -f` came with 3.2."""

_KEPT_ENV = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "SHELL", "TMPDIR", "TERM")

_LEAVE = "#{?#{m/r:^(tmux|screen),#{client_termtype}#{client_termname}},Ctrl-b Ctrl-b d,Ctrl-b d} leaves: it goes on  "
"""How to get out again. In a tmux of the user's own the outer one takes the first prefix; a terminal says what it is, or its name does."""

_SETTINGS = (
    ("-s", "exit-empty", "off"),  # the server outlives its last session
    ("-s", "set-clipboard", "external"),  # what a person copies here reaches their clipboard; an agent's OSC 52 does not
    ("-s", "extended-keys", "on"),  # Shift+Enter and the like reach an agent that asks for them
    ("-s", "terminal-features[100]", "xterm*:extkeys"),  # and the terminal is asked to tell them apart
    ("-s", "escape-time", "10"),  # ms; at the default of 500 Escape feels broken in agents' screens
    ("-g", "update-environment", ""),  # nothing of an attaching terminal's environment enters a session
    ("-g", "set-titles", "off"),  # an agent cannot name the user's terminal window
    ("-g", "allow-rename", "off"),
    ("-g", "automatic-rename", "off"),
    ("-g", "allow-passthrough", "off"),
    ("-g", "remain-on-exit", "on"),  # an ended pane stays until its exit status and screen are read
    ("-g", "remain-on-exit-format", ""),  # the default text takes a line of the last screen
    ("-g", "history-limit", "10000"),
    ("-g", "default-terminal", "screen-256color"),  # in every ncurses-base, unlike tmux-256color
    ("-g", "mouse", "on"),
    ("-g", "status-left", " nightcrew #S "),
    ("-g", "status-left-length", "64"),
    ("-g", "status-right", f"#{{?pane_dead,ended ,}}#{{?pane_in_mode,scrolled (q leaves) ,{_LEAVE}}}%H:%M "),
    ("-g", "status-right-length", "64"),
    ("-g", "status-style", "fg=colour250,bg=colour236"),
)

START = ("start-server", *(word for flag, name, value in _SETTINGS for word in (";", "set-option", flag, name, value)))
"""tmux arguments of the first start. On a server that lives they only set the same values again."""


_PROBE_TIMEOUT = struct.pack("ll", 1, 0)
"""`struct timeval`, 1 s: how long to wait for a place in the queue of a server that accepts slowly."""

CUT = "server exited"
"""What a client says whose connection was cut: its server is on its way out, or twenty clients came at once (tmux 3.3a, under load). The
next one is answered, or meets no server."""

NO_SESSION = "no current target"
"""What tmux answers to lists when its server has no session; the answer to give instead is an empty list."""


@dataclass(frozen=True, slots=True)
class Finished:
    code: int
    output: str
    """stdout and stderr, mixed, without the white space around them."""


def scrubbed(environ: Mapping[str, str]) -> dict[str, str]:
    """What of `environ` tmux may see: the names a terminal program needs, none that can hold a secret or load code."""
    return {name: environ[name] for name in _KEPT_ENV if name in environ}


def open_group(argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start `argv` in a session of its own with a non-blocking stdin pipe and one pipe for stdout and stderr."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            cwd="/",  # so that nothing keeps a directory in use
            bufsize=0,
            start_new_session=True,
        )
    except (FileNotFoundError, PermissionError) as error:
        raise missing(argv[0], error.strerror or str(error)) from error
    assert process.stdin is not None  # noqa: S101  # asked for above
    os.set_blocking(process.stdin.fileno(), False)
    return process


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its children, collect it and close its pipes. Not reaped yet, so its number is still its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()


def run(argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Finished:
    """Run a command to its end. Raises ToolMissing when it does not exist, ToolFailed when `timeout_s` seconds were not enough."""
    process = open_group(argv, env)
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise ToolFailed("tmux did not answer", on=argv[0], why=f"no end within {duration(timeout_s)}", hint="nightcrew status") from error
    finally:
        kill_group(process)
    return Finished(process.returncode, output.decode("utf-8", "replace").strip())


def missing(binary: str, why: str) -> ToolMissing:
    """The error for a tmux that is absent or too old, with what to do."""
    least = ".".join(map(str, MINIMUM))
    return ToolMissing(
        f"tmux {least} or newer is needed",
        why=f"{binary}: {why}",
        hint="install it: apt install tmux, dnf install tmux or brew install tmux",
    )


def require(binary: str, env: Mapping[str, str], timeout_s: float) -> None:
    """Raise ToolMissing unless `binary` is a tmux of at least `MINIMUM`."""
    if shutil.which(binary) is None:
        raise missing(binary, "not found")
    said = run((binary, "-V"), env, timeout_s).output
    version = parse_version(said)
    if version is not None and version < MINIMUM:
        raise missing(binary, f"found {said}")


def parse_version(said: str) -> tuple[int, int] | None:
    """`tmux 3.3a` -> (3, 3), `tmux next-3.6` -> (3, 6); None for a build without a number (`tmux master`), which is newer."""
    found = re.search(r"(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else None


def bring_back(path: Path) -> bool:
    """Ask a server whose socket at `path` was removed to make it again, by the signal that tmux has for that; the directory must be there.
    False when no process listens on what was bound there."""
    lost = unix_sockets.listeners(path)
    for who in lost[:1]:
        processes.send(who, signal.SIGUSR1)
    return bool(lost)


def server_pid(path: Path) -> int | None:
    """The process that listens on `path`, as the kernel knows it, so also that of a server that hangs. None when none does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _PROBE_TIMEOUT)
        try:
            probe.connect(os.fspath(path))
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            return None
        except OSError as error:
            raise ToolFailed(
                "cannot reach the tmux server", on=os.fspath(path), why=error.strerror or str(error), hint="nightcrew status"
            ) from error
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, _uid, _gid = struct.unpack("3i", credentials)
        return int(pid)
