"""read, write and edit: one file at a time, plain files only, bounded, and written whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from agents.builtin.tools import lease
from agents.builtin.tools.given import OUTPUT_MAX, Given, Place, ToolError
from supervisor.core.errors import HostError
from supervisor.host.files import atomic_write

LINES = 2000
LINE_MAX = 2000
"""Characters of a line that are shown."""
EDIT_MAX = 10 * 2**20
"""Bytes of a file that can be edited."""
_LOOK = 8192


def read(given: Given, place: Place) -> str:
    """The lines of a file with their numbers. Raises ToolError, OSError."""
    path = place.resolve(given.text("path"))
    first = int(given.number("offset", 1, 1, 10**9))
    count = int(given.number("limit", LINES, 1, 10**6))
    with _open(path, place) as file:
        size = os.fstat(file.fileno()).st_size
        if b"\0" in file.read(_LOOK):
            raise ToolError(f"{place.shown(path)} is a binary file of {size} bytes; use bash to look into it")
        file.seek(0)
        shown, more = _lines(file, first, count)
    if not shown:
        return f"({place.shown(path)} has no line {first}: it is {size} bytes long)"
    return "".join(shown) + (f"[more follows: read on with offset={more}]\n" if more else "")


def _lines(file: BinaryIO, first: int, count: int) -> tuple[list[str], int]:
    """The numbered lines that are shown, and the number of the one after them; 0 at the end of the file."""
    shown: list[str] = []
    room, number = OUTPUT_MAX, 0
    while raw := file.readline(4 * LINE_MAX):
        number += 1
        rest = 0
        while not raw.endswith(b"\n") and (piece := file.readline(2**16)):
            rest += len(piece.rstrip(b"\r\n"))
            raw = raw if not piece.endswith(b"\n") else raw + b"\n"
        if number < first:
            continue
        line = f"{number}\t{_shown(raw, rest)}\n"
        if number >= first + count or len(line) > room:
            return shown, number
        room -= len(line)
        shown.append(line)
    return shown, 0


def _shown(raw: bytes, rest: int) -> str:
    text = raw.decode("utf-8", "replace").rstrip("\r\n")
    if not rest and len(text) <= LINE_MAX:
        return text
    return f"{text[:LINE_MAX]} [... about {len(text) - len(text[:LINE_MAX]) + rest} more characters in this line]"


def write(given: Given, place: Place) -> str:
    """Put a file in the place of whatever file is there. Raises ToolError, OSError."""
    path, content = place.resolve(given.text("path")), given.text("content")
    existed = path.exists()
    if existed and not path.is_file():
        raise ToolError(f"{place.shown(path)} is not a plain file")
    told = lease.before_write(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, _encoded(content))
    lines = content.count(chr(10)) + (not content.endswith(chr(10)))
    return f"{'replaced' if existed else 'made'} {place.shown(path)}, {lines} lines{told}"


def edit(given: Given, place: Place) -> str:
    """Replace a text that is there exactly once, or wherever it is. Raises ToolError, OSError."""
    path, every = place.resolve(given.text("path")), given.flag("all")
    old, new = _encoded(given.text("old")), _encoded(given.text("new"))
    with _open(path, place) as file:
        data = file.read(EDIT_MAX + 1)
    if len(data) > EDIT_MAX:
        raise ToolError(f"{place.shown(path)} is larger than {EDIT_MAX} bytes; use bash")
    if not old or old == new:
        raise ToolError("'old' is empty" if not old else "'old' and 'new' are the same")
    if old not in data and b"\r\n" in data:
        old, new = (text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") for text in (old, new))
    found = data.count(old)
    if found != 1 and not (every and found):
        why = "is not there: read the file again" if not found else f"is there {found} times: give more lines around it, or set all"
        raise ToolError(f"'old' {why} ({place.shown(path)})")
    told = lease.before_write(path)
    _replace(path, data.replace(old, new))
    line = data[: data.index(old)].count(b"\n") + 1
    return f"changed {place.shown(path)} at line {line}" + (f" and {found - 1} more places" if found > 1 else "") + told


def _open(path: Path, place: Place) -> BinaryIO:
    """A plain file; a pipe or a device is refused, and never waited for."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb")
    is_directory = stat.S_ISDIR(os.fstat(handle).st_mode)
    os.close(handle)
    raise ToolError(f"{place.shown(path)} is {'a directory: use glob' if is_directory else 'not a plain file'}")


def _replace(path: Path, data: bytes) -> None:
    """All of it or nothing. The mode stays; another name of the same file (a hard link) keeps the old content."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        mode = 0o666 & ~_umask()
    try:
        atomic_write(path, data, mode, durable=False)
    except HostError as error:
        raise ToolError(error.line()) from None


def _umask() -> int:
    """The process's; reading it otherwise means changing it, for all threads."""
    with Path("/proc/self/status").open() as status:
        return next((int(line.split()[1], 8) for line in status if line.startswith("Umask:")), 0o022)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"a text holds what is no character: {error.reason}") from None
