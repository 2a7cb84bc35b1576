"""A zygote: `python -I -m agents.zygote SOCKET [--preload MODULE,MODULE] [--path DIR]… [--env NAME,NAME]`.

It imports the modules once, freezes them, and forks a runner for each client on SOCKET until TERM comes. DIRs are the `site-packages`
of another environment of this Python: the modules then come from there alone. Of the variables it was started with it keeps the named ones.

Exit status: 0 ended by TERM, INT or HUP, or because its socket was removed; 6 refused, and stderr says why in one line.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from pathlib import Path

from agents.runner.warm import TITLE
from agents.zygote import lifecycle
from agents.zygote import server as preload
from agents.zygote.lifecycle import Place, Record, program
from agents.zygote.server import Server
from supervisor.host import files, procfs
from supervisor.kernel.errors import NightcrewError, Refused
from supervisor.kernel.names import Identity

_ROOM = 8192
"""Bytes for the command lines that forks show: two paths of the longest kind (4096)."""


def main(words: list[str]) -> int:
    """Serve until the end; the exit status."""
    began = time.monotonic()
    options = _options(words)
    if not options.room:
        _start_clean(words, options.env)
    _quiet()
    loaded = program()  # as early as can be: it is about what is loaded
    place = Place(options.socket)
    try:
        files.private_dir(place.socket.parent)
        lock = _lock(place)
        preload.warm(options.preload, options.path)
        listener = _listen(place)
    except NightcrewError as error:
        print(f"nightcrew zygote: {error.line()}", file=sys.stderr)
        return error.exit_code
    inode = place.socket.stat().st_ino
    server = Server(listener, lambda: _is_at(place, inode))
    _get_ready(place, options, began, loaded)
    server.serve()
    if _is_at(place, inode):  # otherwise somebody else may be there by now
        place.socket.unlink()
        place.record.unlink(missing_ok=True)
    os.close(lock)
    return 0


def _options(words: list[str]) -> argparse.Namespace:
    def listed(text: str) -> list[str]:
        return [name for name in text.split(",") if name]

    parser = argparse.ArgumentParser(prog="agents.zygote")
    parser.add_argument("socket", type=Path)
    parser.add_argument("--preload", type=listed, default=[])
    parser.add_argument("--path", action="append", default=[])
    parser.add_argument("--env", type=listed, default=[])
    parser.add_argument("--room", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if not options.socket.is_absolute():
        parser.error("SOCKET must be an absolute path")
    return options


def _start_clean(words: list[str], names: list[str]) -> None:
    """Start over, because what a process was started with can be read in /proc for ever: without other variables and handles,
    and with room for the command lines and the tags of forks (`agents.runner.warm`)."""
    environment = {name: os.environ[name] for name in names if name in os.environ and name != "LC_ALL"}
    environment |= {"LC_CTYPE": "C.UTF-8", "NIGHTCREW_ROOM": "." * 256}  # LC_ALL=C would turn Python's UTF-8 mode on for every fork
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")
    os.execve(sys.executable, [sys.executable, "-I", "-B", "-m", "agents.zygote", *words, "--room", "." * _ROOM], environment)  # noqa: S606 - no shell


def _quiet() -> None:
    """What is said from now on goes to the starter's stderr, which should be a file."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    del os.environ["NIGHTCREW_ROOM"]


def _lock(place: Place) -> int:
    """Held for life, so that one socket has one zygote. Forks close it."""
    handle = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if not files.try_lock(handle):
        raise Refused("there is a zygote already", on=str(place.socket), why="it holds the lock", kept="that zygote")
    return handle


def _listen(place: Place) -> socket.socket:
    place.socket.unlink(missing_ok=True)  # a dead one's: we hold the lock
    listener = socket.socket(socket.AF_UNIX, lifecycle.KIND)
    try:
        mask = os.umask(0o177)
        listener.bind(os.fspath(place.socket))
        os.umask(mask)
        listener.listen(256)
    except OSError as error:
        raise Refused("cannot listen", on=str(place.socket), why=error.strerror or str(error), hint="use a shorter path") from error
    return listener


def _is_at(place: Place, inode: int) -> bool:
    """Whether the socket that clients find is still the one that we listen on."""
    return place.socket.exists() and place.socket.stat().st_ino == inode


def _get_ready(place: Place, options: argparse.Namespace, began: float, program: str) -> None:
    """From here on this process is what forks will be. The record says so."""
    preload.freeze()
    TITLE.show([os.fsencode(word) for word in sys.orig_argv[: -2 if options.room else None]])
    me = procfs.look(os.getpid())
    place.write(
        Record(
            identity=Identity(os.getpid(), me.ticks if me else 0, procfs.boot_id()),
            preload=tuple(options.preload),
            path=tuple(options.path),
            rss=preload.resident(),
            seconds=time.monotonic() - began,
            program=program,
        )
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
