"""All notes of a project as they lie on the disk, through the door for what agents write."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from memory.layout import DAY_MAX as DAY_FILE_MAX
from memory.layout import NOTE_MAX, Kind, Layout, kind_of
from supervisor.host import foreign
from supervisor.host.foreign import Folder

DAY_MAX = 8 * 2**20
"""Bytes of a day's records that are searched: the last ones."""
FILES_MAX = 50_000
"""Of one directory."""
AGENTS = "agents"


@dataclass(frozen=True, slots=True)
class Found:
    """A file of a memory."""

    path: str
    text: str
    modified: float
    size: int


def is_empty(layout: Layout) -> bool:
    """Whether there is nothing at all that a search could find, or an agent be given."""
    return next(everything(layout), None) is None


def everything(layout: Layout) -> Iterator[Found]:
    """Every note, in no order that matters. What is no plain file, too large or not to be read is passed over."""
    for below in ("", Kind.SEMANTIC.value, Kind.PROCEDURAL.value, Kind.EPISODIC.value, *_agents(layout)):
        with _folder(layout, below) as folder:
            if folder is not None:
                yield from _files(folder, f"{below}/" if below else "")


def one(layout: Layout, path: str) -> Found | None:
    """One note; None when there is none."""
    below, _, name = path.rpartition("/")
    if kind_of(path) is None:
        return None
    with _folder(layout, below) as folder:
        return _read(folder, name, path) if folder is not None else None


def _agents(layout: Layout) -> Iterator[str]:
    with _folder(layout, AGENTS) as runs:
        named = sorted(runs.names())[:FILES_MAX] if runs is not None else []
    for run in named:
        with _folder(layout, f"{AGENTS}/{run}") as tasks:
            below = tasks.names() if tasks is not None else []
        yield from (f"{AGENTS}/{run}/{task}" for task in below)


@contextlib.contextmanager
def _folder(layout: Layout, below: str) -> Iterator[Folder | None]:
    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(foreign.folder(layout.memory, below))
        except OSError:
            found = None
        yield found


def _files(folder: Folder, prefix: str) -> Iterator[Found]:
    for name in folder.names()[:FILES_MAX]:
        if kind_of(path := prefix + name) is not None and (found := _read(folder, name, path)) is not None:
            yield found


def _read(folder: Folder, name: str, path: str) -> Found | None:
    is_day = kind_of(path) is Kind.EPISODIC
    try:
        seen = folder.look(name)
        data = folder.read(name, DAY_MAX if is_day else NOTE_MAX, tail=is_day)
    except OSError:
        return None
    if seen is None or data is None or seen.st_size > (DAY_FILE_MAX if is_day else NOTE_MAX):
        return None
    return Found(path, data.decode("utf-8", "replace"), seen.st_mtime, seen.st_size)
