"""Which file system a path is on, where that decides what the kernel tells of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_MOUNTINFO = Path("/proc/self/mountinfo")
_REMOTE = re.compile(
    r"nfs4?|cifs|smb\w*|9p|virtiofs|ceph|glusterfs|lustre|afs|ncpfs|vboxsf|prl_fs|fuse|fuse\.(?!fuse-overlayfs|ext\d|ntfs).*"
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


def file_system(path: Path, mounts: Iterable[str] | None = None) -> str:
    """The type of the file system that `path` lies on, as the kernel names it; "" where it does not say. `mounts` are the lines of
    mountinfo, proc(5)."""
    if mounts is None:
        try:
            mounts = _MOUNTINFO.read_text(errors="surrogateescape").split("\n")
        except OSError:
            return ""
    found = (-1, "")
    for line in mounts:
        before, _, after = line.partition(" - ")
        words = before.split(" ")
        if len(words) < 5 or not after:
            continue
        point = Path(_ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), words[4]))
        if path.is_relative_to(point) and len(point.parts) >= found[0]:  # of two at one place the later one covers the other
            found = (len(point.parts), after.split(" ")[0])
    return found[1]


def changes_elsewhere(kind: str) -> bool:
    """Whether files of such a file system may change without this kernel knowing: no event says so then."""
    return _REMOTE.fullmatch(kind) is not None
