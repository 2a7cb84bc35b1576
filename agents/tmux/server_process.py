"""The processes behind the door: the server's first start, one-off calls and the control client's pipes.

Every child gets a short list of environment variables and nothing else, because whatever the server is started with is
seen by every pane for as long as it lives, and a process group of its own, because a hung one is killed with its children.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.host import processes, unix_sockets
from supervisor.kernel.errors import ToolFailed, ToolMissing
from supervisor.kernel.format import duration

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
