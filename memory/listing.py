"""Which notes there are, which are about which files, and which go to the archive."""

from __future__ import annotations

import bisect
import contextlib
import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory import files, note
from memory.files import Layout
from memory.note import cleaned, quoted
from memory.versions import PERSON, Identity
from supervisor.host.untrusted_fs import Folder
from supervisor.kernel.errors import HostError, NotFound, Refused
from supervisor.kernel.format import duration, size
from supervisor.kernel.path_globs import CORE_MAX, DAY_MAX, NOTE_MAX, Kind, covers, normalised, overlap
from supervisor.kernel.settings import MemoryTerms

if TYPE_CHECKING:
    from memory.writing import Store

# About files
# -----------
# Which notes are about which files of the repository, by the patterns in their `paths`, see `core.path_globs`. Pure.


_WILD = re.compile(r"[*?\[]")
_FILES = 10_000
"""Paths that are compared with one pattern; one that could cover more is taken to cover one of them."""


class GlobIndex:
    """The patterns of many notes, by the notes' numbers: a task asks for its files, and few notes are near them."""

    def __init__(self) -> None:
        self._by_first: dict[str, dict[str, set[int]]] = {}

    def add(self, number: int, globs: Iterable[str]) -> None:
        """A note is about what these cover; what is no pattern is passed over."""
        for glob in known(globs):
            self._by_first.setdefault(_first(glob), {}).setdefault(glob, set()).add(number)

    def remove(self, number: int, globs: Iterable[str]) -> None:
        """Take back what `add` did."""
        for glob in known(globs):
            same = self._by_first.get(_first(glob), {})
            same.get(glob, set()).discard(number)
            if not same.get(glob):
                same.pop(glob, None)

    def about(self, paths: Iterable[str]) -> set[int]:
        """The notes about one of these files, or patterns of files."""
        found: set[int] = set()
        for path in known(paths):
            first = _first(path)
            for key in (first, "") if first else tuple(self._by_first):
                for glob, numbers in self._by_first.get(key, {}).items():
                    if overlap(glob, path):
                        found |= numbers
        return found


def known(globs: Iterable[str]) -> list[str]:
    """Their normal forms, without what is no pattern."""
    found = []
    for glob in globs:
        try:
            found.append(normalised(glob))
        except ValueError:
            continue
    return found


def is_dead(globs: Iterable[str], tracked: Sequence[str]) -> bool:
    """Whether there are patterns, and none of them covers one of the `tracked` files, which are sorted."""
    patterns = known(globs)
    return bool(patterns) and not any(_covers_one(glob, tracked) for glob in patterns)


def _covers_one(glob: str, tracked: Sequence[str]) -> bool:
    fixed = _WILD.split(glob, maxsplit=1)[0]
    begin, end = bisect.bisect_left(tracked, fixed), bisect.bisect_right(tracked, fixed + chr(0x10FFFF))
    near = tracked[begin:end]
    return len(near) > _FILES or any(covers(glob, path) for path in near)


def _first(glob: str) -> str:
    """Its first part; empty when that may be anything."""
    part = glob.split("/", 1)[0]
    return "" if _WILD.search(part) else part


# Pruning
# -------
# Which notes go to the archive, and why. Pure: whoever acts on it archives by the store's door, which deletes nothing.


DAY_S = 86400.0
REPLACED = (Kind.SEMANTIC, Kind.PROCEDURAL)
"""Kinds of which one note may take the place of another."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One file of a memory. Moments are seconds since 1970."""

    path: str
    kind: Kind
    size: int
    changed: float
    """For records of a day: when that day was over."""
    id: str = ""
    supersedes: str = ""
    """Id or path of the note that this one takes the place of."""
    expires: float | None = None
    globs: tuple[str, ...] = ()
    by_person: bool = False
    """A person wrote or approved it as it is."""


@dataclass(frozen=True, slots=True)
class Prune:
    """One file that goes."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pruning would do."""

    prunes: tuple[Prune, ...]
    days: tuple[Prune, ...]
    """Days of records, of each of which a summary is made first."""
    remarks: tuple[str, ...] = ()
    """What a person should look at: it is not pruned."""


def plan(found: Iterable[Candidate], read: Mapping[str, float], tracked: Sequence[str] | None, now: float, terms: MemoryTerms) -> Plan:
    """`read`: when each note was read last. `tracked`: the files of the repository, sorted; None: nobody knows, and no path is dead."""
    files = sorted(found, key=lambda one: one.path)
    notes = [one for one in files if one.kind in REPLACED]
    superseded = _superseded(notes, terms.approval)
    going: dict[str, str] = {}
    for one in notes:
        if why := _why(one, superseded, max(read.get(one.path, 0.0), one.changed), tracked, now, terms):
            going[one.path] = why
    left = [one for one in notes if one.kind is Kind.SEMANTIC and one.path not in going]
    going |= _over_budget(left, read, terms)
    days = [Prune(one.path, f"older than {duration(terms.episodic_s)}") for one in files if _is_old_day(one, now, terms)]
    remarks = [f"{one.path} has {size(one.size)}: agents are given its first {size(CORE_MAX)}" for one in files if _is_large_core(one)]
    return Plan(tuple(Prune(path, why) for path, why in sorted(going.items())), tuple(days), tuple(remarks))


def _superseded(notes: Sequence[Candidate], approval: frozenset[Kind]) -> dict[str, str]:
    """Which note takes the place of which, by path. Two that say it of each other both stay: nobody knows
    which is right. What an agent may not write unapproved it does not replace unapproved either."""
    by_name = {name: one for one in notes for name in (one.path, one.id) if name}
    claims = [(by_name[one.supersedes], one) for one in notes if one.supersedes in by_name]
    heard = [(old, new) for old, new in claims if may_supersede(old.kind, new.kind, approval, by_person=new.by_person)]
    by_path = {old.path: new.path for old, new in heard if old.path != new.path}
    return {path: by for path, by in by_path.items() if not _comes_back(path, by_path)}


def may_supersede(old: Kind, new: Kind, approval: frozenset[Kind], *, by_person: bool) -> bool:
    """Whether the word of a note of the kind `new` counts for one of the kind `old`. `approval`: the kinds of which an agent's text waits
    for a person; `by_person`: one wrote or approved the new one as it is."""
    return old in REPLACED and new in REPLACED and (by_person or new in approval or old not in approval)


def _comes_back(path: str, by_path: Mapping[str, str]) -> bool:
    seen: set[str] = set()
    at = by_path.get(path, "")
    while at and at != path and at not in seen:
        seen.add(at)
        at = by_path.get(at, "")
    return at == path


def _why(one: Candidate, superseded: Mapping[str, str], used: float, tracked: Sequence[str] | None, now: float, terms: MemoryTerms) -> str:
    if one.expires is not None and one.expires <= now:
        return "expired"
    if by := superseded.get(one.path):
        return f"superseded by {by}"
    if tracked is not None and is_dead(one.globs, tracked):
        return f"no file is left at {', '.join(one.globs[:3])}"
    if now - used > terms.unread_s:
        return f"neither read nor changed for {duration(terms.unread_s)}"
    return ""


def _over_budget(notes: Sequence[Candidate], read: Mapping[str, float], terms: MemoryTerms) -> dict[str, str]:
    """Those that were used longest ago, until the rest fits."""
    total = sum(one.size for one in notes)
    going: dict[str, str] = {}
    for one in sorted(notes, key=lambda one: (max(read.get(one.path, 0.0), one.changed), one.path)):
        if total <= terms.semantic_max:
            break
        total -= one.size
        going[one.path] = f"facts have more than {size(terms.semantic_max)}, and this one was used longest ago"
    return going


def _is_old_day(one: Candidate, now: float, terms: MemoryTerms) -> bool:
    return one.kind is Kind.EPISODIC and now - one.changed > terms.episodic_s


def _is_large_core(one: Candidate) -> bool:
    return one.kind is Kind.CORE and one.size > CORE_MAX


# Listing
# -------
# Which files there are. Each is read once, and again when its inode, size or times change.


STRANGE_MAX = 100
"""Files that are refused are listed."""
MISNAMED_MAX = 20
"""Of what is no note by its name are listed."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")
FILES_MAX = 100_000
"""More are not listed: whoever made them did not mean notes."""


_LISTED = ("id", "agent", "task", "tags", "paths", "expires", "supersedes", "broken")
"""Keys of a note's front matter that a list shows."""


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

    def shape(self) -> dict[str, Any]:
        """Return what a list says of the file, for agents and people."""
        known = {key: self.meta[key] for key in _LISTED if key in self.meta}
        shape = {"path": self.path, "kind": str(self.kind), "size": self.size, "mtime": self.mtime, "version": self.version}
        return {**shape, "title": cleaned(self.title), **known}


def folders(root: Path, top: str, strange: list[tuple[str, str]]) -> Iterator[str]:
    """The directories below `top` that may have files, with a slash at the end; "" is `top` itself. What cannot be entered joins
    `strange`."""
    yield from ("", "semantic/", "procedural/", "episodic/")
    for run in _names(root, top, "agents/", strange):
        for task in _names(root, top, f"agents/{run}/", strange):
            yield f"agents/{run}/{task}/"


def _names(root: Path, top: str, below: str, strange: list[tuple[str, str]]) -> list[str]:
    try:
        with files.directory(root, f"{top}/{below}x") as (here, _):
            return [name for name in here.names() if files.kind_of(f"agents/{name}/x/notes.md")]
    except FileNotFoundError:
        return []
    except Refused as error:
        strange.append((below.rstrip("/"), error.why))
        return []


def _is_of_ours(path: str) -> bool:
    """Whether a note, or a directory with notes in it, can have this path."""
    if path.startswith("agents/") and path.count("/") == 1:
        return files.kind_of(f"{path}/x/notes.md") is not None
    return path in ("semantic", "procedural", "episodic", "agents") or files.kind_of(path) is not None


def _why_not(path: str) -> str:
    name = path.rpartition("/")[2]
    if not _NAME.match(name):
        return "names have letters, digits, dots, dashes and underscores, and begin with none of the dots and dashes"
    if path.startswith(("semantic/", "procedural/")) and not name.endswith(".md"):
        return "notes are called NAME.md, and there are no directories among them"
    return f"no note can lie there: {files.WHERE}"


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
            with contextlib.suppress(FileNotFoundError, Refused), files.directory(self._root, f"{self._top}/{below}x") as (here, _):
                found += [f"{below}{name}" for name in here.names() if not name.startswith(".") and not _is_of_ours(f"{below}{name}")]
        return [(path, _why_not(path)) for path in sorted(found)[:MISNAMED_MAX]], max(0, len(found) - MISNAMED_MAX)

    def _walked(self) -> tuple[list[Entry], list[tuple[str, str]]]:
        found: dict[str, Entry] = {}
        strange: list[tuple[str, str]] = []
        for below in folders(self._root, self._top, strange):
            try:
                with files.directory(self._root, f"{self._top}/{below}x") as (here, _):
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
        kind = files.kind_of(path)
        if kind is None:
            return
        place, limit = self._root / self._top / path, files.size_max(kind)
        try:
            seen = files.look(here, name, place, limit)
            if seen is None:
                return
            kept = self._seen.get(path)
            if kept is None or kept[0] != files.identity(seen):
                kept = self._read(here, path, kind, seen)
        except (Refused, HostError) as error:
            strange.append((path, error.why))
            return
        if kept is not None:
            self._seen[path] = kept
            found[path] = kept[1]

    def _read(self, here: Folder, path: str, kind: Kind, seen: os.stat_result) -> tuple[Identity, Entry] | None:
        read = files.read_in(here, path.rpartition("/")[2], self._root / self._top / path, files.size_max(kind))
        if read is None:
            return None
        meta = {} if kind is Kind.EPISODIC else note.parse(read.data.decode("utf-8", "replace")).meta
        title = str(meta.get("title", "")) or path
        return read.identity, Entry(path, kind, len(read.data), seen.st_mtime, read.version, title, meta)


# Reading
# -------
# All notes of a project with their texts, for a search and for pruning.


READING_DAY_MAX = 8 * 2**20
"""Bytes of a day's records that are searched: the last ones."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file of a memory."""

    path: str
    text: str
    modified: float
    size: int


def everything(layout: Layout) -> Iterator[Found]:
    """Every note, in no order that matters. What is no plain file, too large or not to be read is passed over."""
    for below in folders(layout.root, "memory", []):
        with contextlib.suppress(FileNotFoundError, Refused, HostError), files.directory(layout.root, f"memory/{below}x") as (here, _):
            for name in here.names()[:FILES_MAX]:
                if files.kind_of(f"{below}{name}") is not None and (found := _read(here, name, f"{below}{name}")) is not None:
                    yield found


def one(layout: Layout, path: str) -> Found | None:
    """One note; None when there is none."""
    if files.kind_of(path) is not None:
        with contextlib.suppress(FileNotFoundError, Refused, HostError), files.directory(layout.root, f"memory/{path}") as (here, name):
            return _read(here, name, path)
    return None


def _read(folder: Folder, name: str, path: str) -> Found | None:
    is_day = files.kind_of(path) is Kind.EPISODIC
    try:
        seen = folder.look(name)
        data = folder.read(name, READING_DAY_MAX if is_day else NOTE_MAX, tail=is_day)
    except OSError:
        return None
    if seen is None or data is None or seen.st_size > (DAY_MAX if is_day else NOTE_MAX):
        return None
    return Found(path, data.decode("utf-8", "replace"), seen.st_mtime, seen.st_size)


# Answers
# -------
# What `mem ls`, `show` and `quarantine` answer, with a supervisor and without one.


LISTED_MAX = 2_000
"""Files of one answer."""
DAY_TAIL = 256 * 2**10
"""Characters of a day that one answer has: its newest."""


def listed(store: Store, prefix: str) -> dict[str, Any]:
    """As `ls` returns it, but for how changes are seen."""
    found = [entry for entry in store.entries() if entry.path.startswith(prefix)]
    shape = {"entries": list(map(_shape, found[:LISTED_MAX])), "more": max(0, len(found) - LISTED_MAX)}
    return {**shape, **refused(store.strange(), store.misnamed())}


def waiting(store: Store) -> dict[str, Any]:
    """As `quarantine` returns it."""
    return {"entries": list(map(_shape, store.quarantined()[:LISTED_MAX]))}


def shown(store: Store, path: str, version: str | None, reader: str) -> dict[str, Any]:
    """As `show` returns it to a task or `person`. Raises NotFound and UsageError."""
    kind = files.checked(path.removeprefix("quarantine/"))
    found = store.read(path) if version is None else None
    text = found.text if found is not None else store.older(path, version)[1] if version is not None else None
    if text is None:
        raise no_such(path, [entry.path for entry in store.entries()])
    version = found.version if found is not None else version
    whole, text = len(text), text[-DAY_TAIL:]
    meta = note.parse(text).meta if kind is not Kind.EPISODIC else {"title": path}
    shape: dict[str, Any] = {"path": path, "kind": kind.value, "version": version, "title": str(meta["title"]), "text": text}
    shape |= {"superseded_by": store.superseding(path, kind, meta.get("id")), "cut": whole - len(text)}
    if broken := meta.get("broken"):
        shape["broken"] = str(broken)
    if reader != PERSON.name:
        wrote = next((change.author for change in store.changes(path, 1)), "unknown")
        shape["text"] = cleaned(text, NOTE_MAX)
        if wrote != reader:
            shape["quoted"] = quoted(text, f"note {path}, version {version}, by {wrote}")
    return shape


def _shape(entry: Entry) -> dict[str, Any]:
    known = ("id", "agent", "task", "tags", "paths", "expires", "supersedes", "broken")
    shape = {"path": entry.path, "kind": str(entry.kind), "size": entry.size, "mtime": entry.mtime, "version": entry.version}
    return {**shape, "title": cleaned(entry.title), **{key: entry.meta[key] for key in known if key in entry.meta}}
