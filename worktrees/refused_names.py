"""Leftover files whose names git does not take, such as `git~1` or `.GIT `: copied beside an attempt's records, so that they outlive its
worktree. An agent wrote them, and their names: both sides are used by handle, and nothing is followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from supervisor.core.errors import one_line
from supervisor.host import files, foreign
from supervisor.host.foreign import folder
from worktrees.environment import Environment

PLACE = "left"
"""The directory beside the records."""
FILE_MAX = 16 * 2**20
"""Bytes of one such file."""
ALL_MAX = 64 * 2**20
"""Bytes of all of an attempt's."""
_SAID_MAX = 20


def keep(env: Environment, names: Sequence[str], records: Path) -> list[str]:
    """Copy the files `names` (below the top of the worktree) to `left/` in the directory `records`; calling again does so anew. A line
    for each of the first; what is no plain file, or too large, lies where it was. Raises DiskFull."""
    upper = env.layers.upper if env.layers is not None else ""
    top, room, said = Path(upper or env.path), ALL_MAX, []
    for name in names:
        try:
            size, why = _kept(top, name, records, min(room, FILE_MAX))
        except OSError as error:
            if files.is_no_space(error):
                raise files.disk_full("cannot keep a file that git does not take", records, error.strerror or str(error)) from error
            size, why = 0, error.strerror or str(error)
        room -= size
        is_now = f"not kept beside the records: {why}" if why else f"kept beside the records, as {PLACE}/{_shown(name)}"
        said.append(f"{_shown(name)} was not stored, since git takes no such name; it is {is_now}")
    more = len(said) - _SAID_MAX
    return [*said[:_SAID_MAX], f"{more} more like these"] if more > 0 else said


def _kept(top: Path, name: str, records: Path, limit: int) -> tuple[int, str]:
    """How many bytes were copied, or why none were. Raises OSError."""
    above, _, last = name.rpartition("/")
    with folder(top, above) as here:
        seen = here.look(last) if last not in ("", ".", "..") and "\0" not in name else None
        if seen is None or not stat.S_ISREG(seen.st_mode):
            return 0, "it is gone" if seen is None else f"it is {foreign.kind(seen)}"
        data = here.read(last, limit + 1) if seen.st_size <= limit else None
    if data is None or len(data) > limit:
        return 0, f"it has {seen.st_size} bytes or another name"
    with folder(records, f"{PLACE}/{above}".rstrip("/"), make=True) as there:
        there.replace(last, data)
    return len(data), ""


def _shown(name: str) -> str:
    return one_line(os.fsencode(name).decode("utf-8", "backslashreplace"))
