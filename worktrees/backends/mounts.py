"""Overlay mounts as the kernel lists them: which of ours stand, found by looking and not by memory."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_ESCAPE = re.compile(rb"\\([0-7]{3})")
_MOUNTINFO = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Mount:
    """One overlay that this process sees."""

    path: Path
    upper: str
    """The `upperdir` it was mounted with; "" for a read-only one."""


def mounts(root: Path) -> list[Mount]:
    """Every overlay mounted at or below `root`, in the order they were mounted. Empty where there is no such list (macOS)."""
    try:
        listed = _MOUNTINFO.read_bytes()
    except OSError:
        return []
    below = os.fsencode(root)
    found = []
    for line in listed.splitlines():
        if b" - overlay " not in line:
            continue
        fields, _, rest = line.partition(b" - ")
        path = _plain(fields.split(b" ")[4])
        if path == below or path.startswith(below + b"/"):
            found.append(Mount(Path(os.fsdecode(path)), _upper(rest.split(b" ")[2])))
    return found


def _upper(options: bytes) -> str:
    """overlayfs shows commas and colons of a path as it was given them, escaped by a backslash, which mountinfo escapes once more."""
    match = re.search(rb"(?:^|,)upperdir=((?:\\.|[^,\\])*)", _plain(options))
    return os.fsdecode(re.sub(rb"\\(.)", rb"\1", match.group(1))) if match else ""


def _plain(text: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: bytes([int(match.group(1), 8)]), text)
