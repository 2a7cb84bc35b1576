"""UNIX sockets that stay reachable: bound again when their name is taken away, and found when it is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from supervisor.core.errors import NightcrewError
from supervisor.core.records import Identity
from supervisor.host import files, processes, procfs

LOOK_S = 1.0
_LISTENS = b"00010000"
"""`__SO_ACCEPTCON` in the flags of /proc/net/unix."""


async def keep(path: Path, bind: Callable[[], object], say: Callable[[str], None]) -> None:
    """Until cancelled: when what is at `path` is no longer what was bound there, make its directory and call `bind`, within LOOK_S.

    `say` is told each time, and why it failed once while that stays the same; then it is tried again.
    """
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


def _place(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mode


def listeners(path: Path) -> list[Identity]:
    """Our processes that listen on a UNIX socket that was bound to `path`, whatever is there by now. Empty where there is no /proc."""
    name = os.fsencode(path)
    inodes = set()
    for line in procfs.slurp("/proc/net/unix").splitlines():
        words = line.split(None, 7)  # Num RefCount Protocol Flags Type St Inode Path
        if len(words) == 8 and words[3] == _LISTENS and words[7] == name:
            inodes.add(f"socket:[{int(words[6])}]")
    return [who for pid in procfs.table() if inodes and _holds(pid, inodes) and (who := processes.identity(pid)) is not None]


def _holds(pid: int, sockets: set[str]) -> bool:
    place = f"/proc/{pid}/fd"
    try:
        return any(os.readlink(f"{place}/{name}") in sockets for name in os.listdir(place))  # noqa: PTH115, PTH208 - once a process
    except OSError:  # it ended, closed it meanwhile, or is not ours to look into
        return False
