"""Completion of the paths of a memory: by the files that are there, so no supervisor is asked."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import click

from memory.rescan import Deep
from supervisor.cli.memory import door
from supervisor.cli.names import NEWEST
from supervisor.core.note_paths import kind_of
from supervisor.host import foreign

ENTRIES_MAX = 20_000
"""Looks of one completion, 50 ms: the next key does not wait."""


def note_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's signature
    """One whose name no note can have is not offered: it could drive the terminal."""
    return _below(door.files(), incomplete)


def waiting_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's signature
    """As `note_path`, of what waits for a person."""
    return _beside("quarantine", incomplete)


def archived_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's signature
    """As `note_path`, of what was removed; and of what is there, since an older version of that can be restored."""
    return sorted({*_beside("archive", incomplete), *_below(door.files(), incomplete)})[:NEWEST]


def _beside(folder: str, incomplete: str) -> list[str]:
    files = door.files()
    return _below(files.parent / folder, incomplete) if files is not None and not door.is_agent() else []


def _below(top: Path | None, incomplete: str) -> list[str]:
    paths = (path for path in _files(top) if kind_of(path) and path.startswith(incomplete)) if top is not None else iter(())
    return sorted(itertools.islice(paths, NEWEST))


def _files(top: Path) -> Iterator[str]:
    """Every name below a directory that an agent may write, through the door for such: nothing is opened but directories, no link is
    followed, and a tree of any size costs no more than ENTRIES_MAX looks."""
    with contextlib.suppress(OSError), contextlib.closing(foreign.entries(top.parent, top.name, leave_out=Deep.below(top.name))) as entries:
        for folder, _, entry in itertools.islice(entries, ENTRIES_MAX):
            if not entry.is_dir(follow_symlinks=False):  # what is no file can be removed by its name
                yield f"{folder}/{entry.name}".partition("/")[2]
