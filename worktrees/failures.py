"""Turns what git or the system says when it fails into an error of ours."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from supervisor.core.errors import HostError, NightcrewError, ToolFailed
from supervisor.host import files

_FULL = ("No space left on device", "Disk quota exceeded", "Out of diskspace")
_CHECKOUT = "unable to write file"
"""All that git says when it cannot write a file of a commit."""
_FILE_MAX = 100 * 2**20
"""Bytes of a file of a commit, as large hosts take them: on a disk with more room `_CHECKOUT` means something else."""


def failure(verb: str, on: str, code: int, err: str, written: Sequence[Path] = ()) -> NightcrewError:
    """DiskFull when git says so, or when one of the directories that it writes to has hardly any room: for a lock, a log or a directory
    that finds none git often gives no reason. Else ToolFailed. Both have git's last words."""
    why = last_words(err) or f"exit status {code}"
    place = next(filter(files.is_full, written), None)
    if place is None and _says_full(err, written):
        place = min(written, key=_room, default=Path(on))
    if place is not None:
        return files.disk_full(f"git {verb} ran out of space", place, why, hint="free some space, then retry")
    return ToolFailed(f"git {verb} failed", on=on, why=why)


@contextlib.contextmanager
def wrap_os_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of the body into DiskFull or HostError on `path`."""
    try:
        yield
    except OSError as error:
        why, hint = error.strerror or str(error), f"ls -ld {path.parent}"
        if files.is_no_space(error):
            raise files.disk_full("cannot write", path, why) from error
        raise HostError("cannot write", on=str(path), why=why, hint=hint) from error


def _says_full(err: str, written: Sequence[Path]) -> bool:
    return any(words in err for words in _FULL) or (_CHECKOUT in err and any(_room(place) < _FILE_MAX for place in written))


def _room(place: Path) -> float:
    try:
        return files.free_bytes(place)
    except OSError:
        return math.inf


def last_words(err: str) -> str:
    """The line of git's stderr that says why: the last one marked as an error, else the last one; with the paths that it announces."""
    lines = [line for line in err.splitlines() if line.strip()]
    marked = [index for index, line in enumerate(lines) if line.startswith(("fatal:", "error:"))]
    if not marked:
        return lines[-1].strip() if lines else ""
    listed = itertools.takewhile(lambda line: line.startswith("\t"), lines[marked[-1] + 1 :])
    return " ".join([lines[marked[-1]].strip(), ", ".join(line.strip() for line in itertools.islice(listed, 10))]).strip()
