"""Which files there are. Each is read once, and again when its inode, size or times change."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from memory import disk, layout, note
from memory.layout import Kind
from memory.plain_text import cleaned
from memory.pruning import may_supersede
from memory.versions import Identity
from supervisor.core.errors import HostError, NotFound, Refused
from supervisor.host.foreign import Folder

STRANGE_MAX = 100
"""Files that are refused are listed."""
MISNAMED_MAX = 20
"""Of what is no note by its name are listed."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")
FILES_MAX = 100_000
"""More are not listed: whoever made them did not mean notes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file. `size` is bytes, `mtime` seconds since 1970, `meta` that of its note (a day has none)."""

    path: str
    kind: Kind
    size: int
    mtime: float
    version: str
    title: str
    meta: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Replacement:
    """Whose word counts: see `pruning.may_supersede`."""

    approval: Callable[[], frozenset[Kind]]
    """Asked only when one note names another: it may have to read the settings."""
    by_person: Callable[[str], bool]
    """Whether a person wrote or approved what lies at a path."""

    def of(self, entries: Iterable[Entry], path: str, kind: Kind, note_id: object) -> list[str]:
        """The paths of the notes that take the place of the one at `path`, whose `id` is empty or None when it has none: those that pruning
        believes."""
        names = {path, str(note_id or "")} - {""}
        claims = [entry for entry in entries if entry.path != path and str(entry.meta.get("supersedes") or "") in names]
        waits = self.approval() if claims else frozenset()
        return [one.path for one in claims if may_supersede(kind, one.kind, waits, by_person=self.by_person(one.path))]


def folders(root: Path, top: str, strange: list[tuple[str, str]]) -> Iterator[str]:
    """The directories below `top` that may have files, with a slash at the end; "" is `top` itself. What cannot be entered joins
    `strange`."""
    yield from ("", "semantic/", "procedural/", "episodic/")
    for run in _names(root, top, "agents/", strange):
        for task in _names(root, top, f"agents/{run}/", strange):
            yield f"agents/{run}/{task}/"


def _names(root: Path, top: str, below: str, strange: list[tuple[str, str]]) -> list[str]:
    try:
        with disk.directory(root, f"{top}/{below}x") as (here, _):
            return [name for name in here.names() if layout.kind_of(f"agents/{name}/x/notes.md")]
    except FileNotFoundError:
        return []
    except Refused as error:
        strange.append((below.rstrip("/"), error.why))
        return []


def _is_of_ours(path: str) -> bool:
    """Whether a note, or a directory with notes in it, can have this path."""
    if path.startswith("agents/") and path.count("/") == 1:
        return layout.kind_of(f"{path}/x/notes.md") is not None
    return path in ("semantic", "procedural", "episodic", "agents") or layout.kind_of(path) is not None


def _why_not(path: str) -> str:
    name = path.rpartition("/")[2]
    if not _NAME.match(name):
        return "names have letters, digits, dots, dashes and underscores, and begin with none of the dots and dashes"
    if path.startswith(("semantic/", "procedural/")) and not name.endswith(".md"):
        return "notes are called NAME.md, and there are no directories among them"
    return f"no note can lie there: {layout.WHERE}"


def no_such(path: str, known: Iterable[str]) -> NotFound:
    """The error of whoever asks for a file that is not there, with what it may have meant."""
    near = difflib.get_close_matches(path, list(known), n=3)
    meant = "".join(f", did you mean {one}?" for one in [" or ".join(near)] if near)
    return NotFound("no such file in the memory", on=path, hint=f"nightcrew mem ls{meant}")


def refused(strange: list[tuple[str, str]], misnamed: tuple[list[tuple[str, str]], int]) -> dict[str, object]:
    """What `Listing` says is not read, as an answer has it: `refused` and `more_refused`."""
    named, more = misnamed
    shown = [{"path": cleaned(path), "why": cleaned(why)} for path, why in [*strange[:STRANGE_MAX], *named]]
    return {"refused": shown, "more_refused": more + max(0, len(strange) - STRANGE_MAX)}


class Listing:
    """Of one tree of files: `memory` or `quarantine` below the root of a project."""

    def __init__(self, root: Path, top: str) -> None:
        self._root, self._top = root, top
        self._seen: dict[str, tuple[Identity, Entry]] = {}

    def entries(self) -> list[Entry]:
        """By path. Raises ToolFailed."""
        return self._walked()[0]

    def strange(self) -> list[tuple[str, str]]:
        """What lies where a file may lie and is none that is read, by path, with why."""
        return self._walked()[1]

    def misnamed(self) -> tuple[list[tuple[str, str]], int]:
        """What lies among the files and is none because of its name or place, with why: the first MISNAMED_MAX, and how many there are
        beside them. What begins with a dot is left alone."""
        found: list[str] = []
        for below in ("agents/", *folders(self._root, self._top, [])):
            with contextlib.suppress(FileNotFoundError, Refused), disk.directory(self._root, f"{self._top}/{below}x") as (here, _):
                found += [f"{below}{name}" for name in here.names() if not name.startswith(".") and not _is_of_ours(f"{below}{name}")]
        return [(path, _why_not(path)) for path in sorted(found)[:MISNAMED_MAX]], max(0, len(found) - MISNAMED_MAX)

    def _walked(self) -> tuple[list[Entry], list[tuple[str, str]]]:
        found: dict[str, Entry] = {}
        strange: list[tuple[str, str]] = []
        for below in folders(self._root, self._top, strange):
            try:
                with disk.directory(self._root, f"{self._top}/{below}x") as (here, _):
                    for name in here.names():
                        self._look(here, below, name, found, strange)
            except FileNotFoundError:
                continue
            except Refused as error:
                strange.append((below.rstrip("/"), error.why))
        self._seen = {path: kept for path, kept in self._seen.items() if path in found}
        return [found[path] for path in sorted(found)[:FILES_MAX]], sorted(strange)

    def _look(self, here: Folder, below: str, name: str, found: dict[str, Entry], strange: list[tuple[str, str]]) -> None:
        path = f"{below}{name}"
        kind = layout.kind_of(path)
        if kind is None:
            return
        place, limit = self._root / self._top / path, layout.size_max(kind)
        try:
            seen = disk.look(here, name, place, limit)
            if seen is None:
                return
            kept = self._seen.get(path)
            if kept is None or kept[0] != disk.identity(seen):
                kept = self._read(here, path, kind, seen)
        except (Refused, HostError) as error:
            strange.append((path, error.why))
            return
        if kept is not None:
            self._seen[path] = kept
            found[path] = kept[1]

    def _read(self, here: Folder, path: str, kind: Kind, seen: os.stat_result) -> tuple[Identity, Entry] | None:
        read = disk.read_in(here, path.rpartition("/")[2], self._root / self._top / path, layout.size_max(kind))
        if read is None:
            return None
        meta = {} if kind is Kind.EPISODIC else note.listed(read.data.decode("utf-8", "replace"))
        title = str(meta.get("title", "")) or path
        return read.identity, Entry(path, kind, len(read.data), seen.st_mtime, read.version, title, meta)
