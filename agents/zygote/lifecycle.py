"""A zygote from outside: start, find and end it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agents import compiling, runner
from supervisor import __version__
from supervisor.host import files, processes, untrusted_fs
from supervisor.kernel.errors import Refused, TimedOut
from supervisor.kernel.format import duration
from supervisor.kernel.names import Identity

# Zygote protocol
# ---------------
# What a client in a pane and the zygote say to each other.
#
#     client -> zygote   once: 4 bytes length, then `key=value` entries each ended by NUL: `dir` (the attempt's directory, an
# absolute path;
#                        the runner works there, wherever the client was) and `env` (`NAME=value`, repeated); with it the pane's handles
#                        0, 1, 2 as SCM_RIGHTS
#     zygote -> client   answers of 128 bytes, padded with NUL: `pid N` (the runner, which sends it itself), later `end N` (the
# status to exit
#                        with); instead of either `no WHY` (nothing was started)
#
# A client that waits in vain takes its request back: it shuts its side of the connection down, and then looks once more for a `pid`. The
# runner says its `pid` first and then looks whether the request was taken back. So either the client finds the `pid` and stays, or the
# runner leaves with `no`, or both: the client then reads on to the `no`. Never do both go on.
#
# The connection belongs to the zygote and to the runner. Whichever of them is left says `end`: the zygote when it has reaped the runner,
# whatever killed that; the runner itself in case the zygote is gone. `client.c` and `client.py` are the other side of this.


_LINUX: bool = sys.platform == "linux"
KIND = socket.SOCK_SEQPACKET if _LINUX else socket.SOCK_STREAM
REQUEST_MAX = 128 * 1024
"""Bytes of a request; a message on a Linux socket may have some 200 KB by default."""
ANSWER = 128
"""Bytes of an answer."""
_LENGTH = struct.Struct("=I")
NOTHING = _LENGTH.pack(0)
"""A request for nothing, which is answered `no`: it shows that somebody is there."""


@dataclass(frozen=True, slots=True)
class Request:
    """One attempt to start."""

    directory: bytes
    environment: dict[bytes, bytes]


class NotARequest(Exception):
    """What came is none, and never will be one."""


def read_request(data: bytes) -> Request | None:
    """The request that `data` holds; None when more has to come. Raises NotARequest."""
    if len(data) < _LENGTH.size:
        return None
    length = _LENGTH.unpack_from(data)[0]
    body = data[_LENGTH.size :]
    if length > REQUEST_MAX or len(body) > length:
        raise NotARequest("its length is wrong")
    if len(body) < length:
        return None
    if not body.endswith(b"\0"):
        raise NotARequest("it is cut short")
    pairs = [entry.partition(b"=")[::2] for entry in body[:-1].split(b"\0")]
    one = dict(pairs)
    if not one.get(b"dir", b"").startswith(b"/"):
        raise NotARequest("it names no absolute directory")
    variables = [value.partition(b"=")[::2] for key, value in pairs if key == b"env"]
    return Request(one[b"dir"], {name: value for name, value in variables if name})


def answer(word: str, value: object) -> bytes:
    """One answer; a long `value` is cut."""
    return f"{word} {value}".encode("utf-8", "replace")[: ANSWER - 1].ljust(ANSWER, b"\0")


def send(handle: socket.socket, data: bytes) -> None:
    """Send an answer without ever waiting; a client that is gone or does not read has none."""
    try:
        handle.send(data, socket.MSG_DONTWAIT)
    except OSError:
        return


def taken_back(handle: socket.socket) -> bool:
    """Whether the client waits no more: it shut its side down, or is gone. Never waits."""
    try:
        return not handle.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def peer_uid(handle: socket.socket) -> int:
    """Who is at the other end, as the kernel says it. Raises OSError."""
    if _LINUX:
        return int(struct.unpack("3i", handle.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])
    return int(struct.unpack("2I", handle.getsockopt(0, 1, 76)[:8])[1])  # LOCAL_PEERCRED: struct xucred of BSD and macOS; not tried


def close_all(handles: list[int]) -> None:
    """Close what came with a request."""
    for handle in handles:
        os.close(handle)


# Record
# ------
# Where a zygote is, and what it writes down about itself when it is ready.


_MAX = 64 * 1024
_ROOT = Path(__file__).parents[2]
_LOADED = ("agents/runner", "agents/zygote", "supervisor/kernel", "supervisor/sandbox", "supervisor/host")
"""What a forked runner runs, and the process that forks it."""


@dataclass(frozen=True, slots=True)
class Record:
    """A zygote that was ready once."""

    identity: Identity
    preload: tuple[str, ...]
    """Modules it imported."""
    path: tuple[str, ...]
    """Directories that it looks into before our own packages."""
    rss: int
    """Bytes of resident memory when it was ready."""
    seconds: float
    """From its start until it was ready."""
    program: str = ""
    """What it runs (`program`); empty in records of before there was this."""


@dataclass(frozen=True, slots=True)
class Place:
    """One zygote's files, in a directory that only its user can enter."""

    socket: Path
    """At most 107 bytes long."""

    @property
    def record(self) -> Path:
        """JSON, schema 1; there from the moment the zygote is ready until it ends in good order."""
        return self.socket.with_name(self.socket.name + ".json")

    @property
    def lock(self) -> Path:
        """Held by the zygote of this socket for as long as it lives."""
        return self.socket.with_name(self.socket.name + ".lock")

    @property
    def log(self) -> Path:
        """What it says: why it refused, above all."""
        return self.socket.with_name(self.socket.name + ".log")

    def write(self, record: Record) -> None:
        """Raises DiskFull or ToolFailed."""
        who = record.identity
        shape = {
            "schema": 1,
            "pid": who.pid,
            "ticks": who.ticks,
            "boot_id": who.boot_id,
            "preload": record.preload,
            "path": record.path,
            "rss": record.rss,
            "seconds": record.seconds,
            "program": record.program,
        }
        files.atomic_write(self.record, json.dumps(shape).encode() + b"\n")

    def read(self) -> Record | None:
        """The last record; None when there is none, or it is not whole."""
        try:
            shape = json.loads(untrusted_fs.read_plain(self.record, _MAX) or b"")
            identity = Identity(int(shape["pid"]), int(shape["ticks"]), str(shape["boot_id"]))
            found = Record(
                identity,
                tuple(shape["preload"]),
                tuple(shape["path"]),
                int(shape["rss"]),
                float(shape["seconds"]),
                str(shape.get("program", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            return None
        return found if 0 < identity.pid < 2**31 else None


def program(root: Path = _ROOT) -> str:
    """A digest of this Python and of our files below `root` as they are now, which is what an attempt that starts cold would run.

    Files count by name, size and time of change; one that is removed meanwhile does not. Takes 1 ms.
    """
    what = (__version__, sys.version, os.path.realpath(sys.executable), sorted(_files(os.fspath(root))))
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def _files(root: str) -> Iterator[tuple[str, int, int]]:
    for part in _LOADED:
        for folder, _, names in os.walk(f"{root}/{part}"):
            for name in names:
                if name.endswith(".py"):
                    with contextlib.suppress(FileNotFoundError):
                        seen = os.stat(f"{folder}/{name}")  # noqa: PTH116 - for every warm start; a Path of each costs more than the look
                        yield f"{folder}/{name}".removeprefix(root), seen.st_size, seen.st_mtime_ns


# Lifecycle
# ---------
# A zygote from outside: starting it, finding it again after a restart of ours, ending it, and the command for a pane.


_POLL_S = 0.005
_END_S = 5.0
_ANSWER_S = 5
"""A fork, the longest thing that a zygote does between two looks at its clients, takes milliseconds."""
_PYTHON_CLIENT = Path(__file__).with_name("client.py")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a zygote is to be."""

    preload: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    """`site-packages` directories of another environment of the same Python, to preload from. One in a virtual environment serves the
    programs of that, and of every copy that holds the same files (`agents.runner.warm`)."""
    env: tuple[str, ...] = ("PATH", "HOME", "LANG", "TMPDIR")
    """Variables it keeps of the starter's; what it preloads may want some. Agents get none of them."""

    def argv(self, place: Place) -> list[str]:
        """The command of such a zygote."""
        # -B: what it imports may lie in a frozen template, where nothing may be written. Forks do as their own options say.
        words = [sys.executable, "-I", "-B", "-m", "agents.zygote", os.fspath(place.socket)]
        words += ["--preload", ",".join(self.preload), "--env", ",".join(self.env)]
        return words + [word for entry in self.path for word in ("--path", entry)]


@dataclass(frozen=True, slots=True)
class Child:
    """A zygote that we started."""

    record: Record
    process: subprocess.Popen[bytes]
    """To be kept, and polled when it is over: it is ours to reap, though it need not end before us."""


def start(place: Place, wanted: Wanted, environ: Mapping[str, str], timeout_s: float = 60.0) -> Child:
    """Start one in a session of its own and wait until it is ready; it outlives us.

    Raises Refused in the zygote's own words (a module cannot be imported or starts threads, or there is one already), TimedOut when it
    is not ready after `timeout_s` seconds (it is then killed), DiskFull or ToolFailed for its directory.
    """
    files.private_dir(place.socket.parent)
    kept = {name: environ[name] for name in wanted.env if name in environ}
    log = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        process = subprocess.Popen(
            wanted.argv(place), cwd="/", env=kept, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    finally:
        os.close(log)
    deadline = time.monotonic() + timeout_s
    while process.poll() is None:
        record = place.read()
        if record is not None and record.identity.pid == process.pid:
            return Child(record, process)
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            late = f"not within {duration(timeout_s)}"
            raise TimedOut("the zygote does not get ready", on=str(place.socket), why=late, hint=f"cat {place.log}")
        time.sleep(_POLL_S)
    raise Refused("the zygote refused to start", on=str(place.socket), why=_last_words(place) or f"exit status {process.returncode}")


def find(place: Place) -> Record | None:
    """The zygote that lives here now; an agent could have written anybody's pid into the record, so its command line must fit too."""
    record = place.read()
    if record is None or not processes.alive(record.identity):
        return None
    return record if processes.runs(record.identity.pid, "-m", "agents.zygote", os.fspath(place.socket)) else None


def answers(place: Place) -> bool:
    """Whether the zygote serves its clients: one that was stopped, or hangs, does not. Blocks for 5 s then, else usually less than 1 ms."""
    with socket.socket(socket.AF_UNIX, KIND) as caller:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # `settimeout` would make `connect` fail at once where others wait
            caller.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", _ANSWER_S, 0))
        try:
            caller.connect(os.fspath(place.socket))
            caller.send(NOTHING)
            return bool(caller.recv(ANSWER))
        except OSError:  # also a time-out
            return False


def stop(place: Place) -> bool:
    """End the zygote, if there is one; whether there was. The runners it forked go on. Blocks for at most 5 s, then kills it.

    Also one that was killed leaves nothing in its place. Not to be called while another starts there.
    """
    record = find(place)
    if record is not None:
        processes.send(record.identity, signal.SIGTERM)
        processes.send(record.identity, signal.SIGCONT)  # one that was stopped ends now, too
        deadline = time.monotonic() + _END_S
        while processes.alive(record.identity) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        processes.send(record.identity, signal.SIGKILL)
    for who in processes.all_running("-m", "agents.zygote", os.fspath(place.socket)):  # it has not come so far as to write its record
        processes.send(who, signal.SIGKILL)
    for left in (place.socket, place.record):
        left.unlink(missing_ok=True)
    return record is not None


def build_client(directory: Path) -> Path | None:
    """The client of a pane, compiled in `directory`; see `compiling.build`."""
    return compiling.build(Path(__file__).with_name("client.c"), directory)


def pane_argv(place: Place, directory: Path, client: Path | None) -> list[str]:
    """The command for a pane: `client` (from `build_client`; None: the Python one) hands the pane to the zygote, and starts the runner of
    the attempt in `directory` cold, saying so, when the zygote is not there or refuses."""
    cold = [sys.executable, "-I", "-S", os.fspath(Path(runner.__file__).parent / "main.py"), os.fspath(directory)]
    first = [os.fspath(client)] if client is not None else [sys.executable, "-I", "-S", os.fspath(_PYTHON_CLIENT)]
    return [*first, os.fspath(place.socket), *cold]


def _last_words(place: Place) -> str:
    return untrusted_fs.last_line(place.log).removeprefix("nightcrew zygote: ")
