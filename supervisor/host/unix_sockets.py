"""UNIX sockets that stay reachable: bound again when their name is taken away, and found when it is."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from supervisor.host import files, processes, procfs
from supervisor.kernel.errors import NightcrewError
from supervisor.kernel.names import Identity

LOOK_S = 1.0
UNUSED_S = 60.0
_HEX = re.compile(r"[0-9a-f]{16}")
_LISTENS = b"00010000"
"""`__SO_ACCEPTCON` in the flags of /proc/net/unix."""


async def keep(path: Path, bind: Callable[[], object], say: Callable[[str], None]) -> None:
    """Until cancelled: when what is at `path` is no longer what was bound there, make its directory and call `bind`, within LOOK_S.

    `say` is told each time, and why it failed once while that stays the same; then it is tried again.
    """
    import asyncio  # commands, which only look for sockets, need not wait for it

    bound, failed = _place(path), ""
    while True:
        await asyncio.sleep(LOOK_S)
        if bound is not None and _place(path) == bound:
            continue
        try:
            files.private_dir(path.parent)
            made = bind()
            if asyncio.iscoroutine(made):
                await made
        except (OSError, NightcrewError) as error:
            why = error.line() if isinstance(error, NightcrewError) else str(error)
            if why != failed:
                say(f"{path} was removed or replaced, and cannot be bound again: {why}")
            bound, failed = None, why
        else:
            say(f"{path} was removed or replaced, and is bound again")
            bound, failed = _place(path), ""


def _place(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def bound() -> Iterator[tuple[bytes, int, bytes]]:
    """Every UNIX socket of this network that has a name: the name, its inode, its flags."""
    for line in procfs.slurp("/proc/net/unix").splitlines()[1:]:
        words = line.split(None, 7)  # Num RefCount Protocol Flags Type St Inode Path
        if len(words) == 8:
            yield words[7], int(words[6]), words[3]


def listeners(path: Path) -> list[Identity]:
    """Our processes that listen on a UNIX socket that was bound to `path`, whatever is there by now. Empty where there is no /proc."""
    name = os.fsencode(path)
    inodes = {f"socket:[{inode}]" for place, inode, flags in bound() if flags == _LISTENS and place == name}
    everyone = procfs.table() if inodes else ()
    return [who for pid in everyone if _holds(pid, inodes) and (who := processes.identity(pid)) is not None]


def sweep(parent: Path, prefix: str, now: float) -> None:
    """Remove the directories of sockets in `parent`, called `prefix` and 16 hex digits, in which nobody listens: of homes that are gone, or
    that make theirs anew. One that changed in the last UNUSED_S seconds of the wall clock `now` stays: somebody may be about to listen."""
    for place in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            found = place.lstat()
            if _HEX.fullmatch(place.name.removeprefix(prefix)) and found.st_uid == os.geteuid() and found.st_mtime < now - UNUSED_S:
                remove_unused(place)


def remove_unused(place: Path) -> None:
    """Remove a directory of sockets and of the lock files beside them, unless somebody listens there; what else lies there keeps it."""
    within = os.fsencode(place) + b"/"
    if any(name.startswith(within) for name, _, _ in bound()):
        return
    with contextlib.suppress(OSError):
        for entry in list(place.iterdir()):
            if stat.S_ISDIR(entry.lstat().st_mode):
                remove_unused(entry)
            elif _is_dead(entry):
                entry.unlink()
        place.rmdir()


def _is_dead(entry: Path) -> bool:
    """Whether it is a socket that nobody listens on, seen also where the listener is in a network of its own; or a lock file of ours."""
    if not stat.S_ISSOCK(entry.lstat().st_mode):
        return entry.suffix == ".turn"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        return probe.connect_ex(os.fspath(entry)) == errno.ECONNREFUSED


def _holds(pid: int, sockets: set[str]) -> bool:
    place = f"/proc/{pid}/fd"
    try:
        return any(_link(f"{place}/{name}") in sockets for name in os.listdir(place))  # noqa: PTH208 - once a process of the machine
    except OSError:  # it ended, or is not ours to look into
        return False


def _link(handle: str) -> str:
    try:
        return os.readlink(handle)  # noqa: PTH115
    except OSError:  # closed meanwhile
        return ""
