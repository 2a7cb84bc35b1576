"""How a file of the memory is written, moved and added to, step by step: any of them may be the last one before a kill.

    1 the content, and a pending row that says who writes what     committed in memory.db
    2 a draft beside the file                                       on the disk
    3 draft and file exchange their names                           at one moment
    4 what was there instead of what was expected, if anything      kept beside the file
    5 the row is done                                               committed
    6 the draft, which has the old content now                      removed

`Writer.settle` finds out how far a killed one came: before step 3 the row is dropped and the file is as it was; after it, the row is done.
A place is a path below the root of a project: `memory/` and the path of a note, `quarantine/...` or `archive/...`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from memory import files, listing, note
from memory.files import Changed, Layout, Plain
from memory.listing import Entry, Listing, may_supersede
from memory.note import Note, stripped
from memory.versions import NEVER, NOTHING, PERSON, UNKNOWN, Action, Author, Change, Identity, Known, Planned, Versions, version_of
from supervisor.host.failpoint import failpoint
from supervisor.host.untrusted_fs import Folder
from supervisor.kernel.errors import DiskFull, HostError, LedgerError, NightcrewError, NotFound, Refused, UsageError
from supervisor.kernel.path_globs import Kind

# Writing
# -------


TRIES = 5
"""So often a text is written that does not say what it replaces, while others write the same file."""
BROUGHT_BACK = 10_000
"""Changes of a day that are looked at for lines that an editor took away."""
QUARANTINE = "quarantine/"


@dataclass(frozen=True, slots=True)
class Text:
    """What shall be written, and why. `path` is a note's, or one of the quarantine with that before it."""

    path: str
    data: bytes
    author: Author
    action: Action
    base: str | None = None
    """Of what it is a change, when that is not the file that it replaces."""


@dataclass(frozen=True, slots=True)
class Put:
    """Where a text was written."""

    path: str
    version: str
    conflict: str = ""
    """The file beside `path` that has the text, when `path` was not what the writer thought."""
    quarantined: bool = False
    """It waits for a person, by the name `path`."""


def place(path: str) -> str:
    """Where a file lies below the root of the project."""
    return path if path.startswith(QUARANTINE) else f"memory/{path}"


def limit(path: str) -> int:
    """Bytes that the file may have."""
    return files.size_max(files.kind_of(path.removeprefix(QUARANTINE)) or Kind.SEMANTIC)


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class _Same:
    """A file is as it is known."""


@dataclass(slots=True)
class _Seen:
    """What lies where a killed writer wrote."""

    plain: Plain | None
    lines: frozenset[bytes] | None = None
    """Of a day."""
    added: int = 0
    """Bytes of the lines, and their breaks, that are known to be that writer's."""
    is_plain: bool = True


def _is_done(change: Change, text: bytes, seen: _Seen) -> bool:
    if change.version and seen.lines is not None:
        return text in seen.lines
    return seen.is_plain and (seen.plain.version if seen.plain is not None else "") == change.version


class Writer:
    """Of one project; it belongs to one thread."""

    def __init__(self, root: Path, versions: Versions, wall: Callable[[], float]) -> None:
        self._root, self._versions, self._wall = root, versions, wall
        self._unsettled = True
        self._opened = versions.newest()
        """The last change of before: a person may have seen every line up to there."""
        self._looked: dict[str, int] = {}
        """Of each day, the newest change when it was looked at last."""

    def read(self, path: str) -> Plain | None:
        """The file as it is. Raises Refused for what is no plain file."""
        return files.read(self._root, place(path), limit(path))

    def write(self, text: Text, if_version: str | None = None) -> Put:
        """Put a text in the place of a file, or, when that is not `if_version` ("" for: none), beside it. Raises Refused, DiskFull,
        ToolFailed and LedgerError; the file is then as it was."""
        self.settle()
        for _ in range(TRIES):
            seen = self.read(text.path)
            current = seen.version if seen is not None else ""
            if if_version not in (None, current):
                self._record(text.path, seen)  # who is to be told
                return self.keep_beside(text)
            if current == version_of(text.data):
                self._record(text.path, seen)
                return Put(text.path, current)
            if self._replaced(text, seen):
                return Put(text.path, version_of(text.data))
        raise Refused("others write the file all the time", on=text.path, kept="it was not touched", hint="try again with if-version")

    def keep_beside(self, text: Text) -> Put:
        """Write it under a name of its own, which says for which file it was meant."""
        for number in range(1, files.NUMBERS):
            path = files.beside(text.path, text.author.name, number)
            seen = self.read(path)
            if seen is None or seen.data == text.data:
                put = self.write(Text(path, text.data, text.author, Action.CONFLICT), seen.version if seen is not None else "")
                return Put(text.path, put.version, conflict=put.conflict or put.path)
        raise Refused("there are too many conflicts about", on=text.path, hint="merge them and remove them")

    def _replaced(self, text: Text, seen: Plain | None) -> bool:
        current, version = seen.version if seen is not None else "", version_of(text.data)
        with self._versions.together():
            self._record(text.path, seen)
            before = text.base if text.base is not None else current
            planned = Planned(text.path, text.author, text.action, self._versions.keep(text.data), before, len(text.data))
            number = self._versions.begin(planned, self._wall())
        with self._settled_after():
            failpoint("note.pending")
            where = place(text.path)
            with files.directory(self._root, where, make=True) as (here, name):
                outcome = files.replace(here, name, self._root / where, text.data, current, limit(text.path))
                if isinstance(outcome, Changed):
                    self._versions.settle(number, "dropped")
                    return False
                with self._row_may_wait():
                    if outcome.displaced is not None:
                        self.keep_beside(Text(text.path, outcome.displaced, UNKNOWN, Action.CONFLICT))
                    self._done(number, text.path, version)
                    if outcome.draft:
                        files.discard(here, outcome.draft, limit(text.path))
        return True

    def _done(self, number: int, path: str, version: str) -> None:
        with self._versions.together():
            self._versions.settle(number, "done")
            self._versions.know(path, version)
        failpoint("note.done")

    @contextlib.contextmanager
    def _row_may_wait(self) -> Iterator[None]:
        """The file is written: that is what the writer is told, though the disk is too full to say so in its row. The next write, look or
        start settles that, and removes the draft."""
        try:
            yield
        except (DiskFull, LedgerError):
            self._unsettled = True

    @contextlib.contextmanager
    def _settled_after(self) -> Iterator[None]:
        """What fails half-way is settled at once, or before the next write."""
        try:
            yield
        except BaseException:
            self._unsettled = True
            with contextlib.suppress(NightcrewError):
                self.settle()
            raise

    def move(self, path: str, to: str, author: Author, action: Action) -> str:
        """Rename a file into the archive; the path that it got there. Raises NotFound, and what `write` raises."""
        with self.moving(path, to, author, action) as now:
            return now()

    @contextlib.contextmanager
    def moving(self, path: str, to: str, author: Author, action: Action) -> Iterator[Callable[[], str]]:
        """As `move`, at the moment that what is given is called: all that a full disk could refuse of it was done before. When what is done
        meanwhile fails, nothing is moved."""
        self.settle()
        try:
            seen = self.read(path)
        except Refused:  # no plain file: it is moved as it is, and nothing reads it there either
            before, size = "", 0
        else:
            if seen is None:
                raise NotFound("no such file in the memory", on=path, hint="nightcrew mem ls")
            self._record(path, seen)
            before, size = seen.version, len(seen.data)
        number = self._versions.begin(Planned(path, author, action, "", before, size), self._wall())
        with self._settled_after():
            failpoint("note.pending")
            with files.directory(self._root, to, make=True):
                pass  # a full disk has no room for one that has to be made
            yield lambda: self._moved(number, path, to)

    def _moved(self, number: int, path: str, to: str) -> str:
        try:
            moved = files.move(self._root, place(path), to)
        except FileNotFoundError:
            self._versions.settle(number, "dropped")
            raise NotFound("no such file in the memory", on=path, hint="nightcrew mem ls") from None
        failpoint("note.moved")
        with self._row_may_wait():
            self._done(number, path, "")
        return moved

    def append(self, path: str, author: Author, line_of: Callable[[int], bytes], action: Action = Action.APPEND) -> None:
        """Add the line that `line_of` gives for the number of the change. A power cut may lose the newest ones; a kill does not."""
        self.settle()
        with self._versions.together(durable=False):
            lines = [line_of(self._versions.next_number())]
            numbers = self._begun(path, author, lines, action)
        self._append(path, lines, numbers)

    def append_all(self, path: str, author: Author, lines: Sequence[bytes], action: Action) -> None:
        """As `append`, of several lines by one write: a full disk leaves none of them, unless others fill it within that write."""
        self.settle()
        with self._versions.together(durable=False):
            numbers = self._begun(path, author, lines, action)
        if lines:
            self._append(path, lines, numbers)

    def _begun(self, path: str, author: Author, lines: Sequence[bytes], action: Action) -> list[int]:
        rows = (Planned(path, author, action, self._versions.keep(line), "", len(line)) for line in lines)
        return [self._versions.begin(planned, self._wall()) for planned in rows]

    def _append(self, path: str, lines: Sequence[bytes], numbers: Sequence[int]) -> None:
        with self._settled_after():
            failpoint("note.pending")
            whole = b"\n".join(lines)
            added = files.append(self._root, place(path), whole, limit(path))
            known, last = self._versions.known(path)
            ours = files.identity(added.before) == last or (not known and added.before.st_size == 0)
            grown = added.after.st_size - added.before.st_size in (len(whole) + 1, len(whole) + 2)
            with self._row_may_wait(), self._versions.together(durable=False):
                for number in numbers:
                    self._versions.settle(number, "done")
                if ours and grown:  # nobody else added meanwhile, or the next look shall find it
                    self._versions.know(path, version_of(lines[-1]), files.identity(added.after))
            failpoint("note.done")

    def found(self, paths: Sequence[str]) -> list[Change]:
        """Look at these files; what is not as it was known is written down, by `unknown`. What is no plain file counts as none."""
        self.settle()
        paths = list(dict.fromkeys(paths))
        with self._versions.together(durable=False):
            before, known = self._versions.next_number() - 1, self._versions.known_of(paths)
            seen = [one for _, group in itertools.groupby(paths, _folder_of) for one in self._look(list(group), known)]
            self._record_all(seen, known)
        changes = self._versions.changes_after(before, len(paths))
        days, newest = [path for path in paths if files.kind_of(path) is Kind.EPISODIC], self._versions.newest()
        for change in changes:
            if change.path in days and change.version:
                self._bring_back(change, self._looked.get(change.path, self._opened))
        self._looked.update(dict.fromkeys(days, newest))
        return changes

    def _bring_back(self, found: Change, looked: int) -> None:
        """An editor that loaded a day before a line was added, and saved it afterwards, has taken the line away: it is added again. What
        went from before a line that is there, and that was there at the last look (the change `looked`), a person removed who saw it."""
        seen = self.read(found.path)
        gone: list[tuple[Change, bytes]] = []
        for change in self._versions.changes(found.path, BROUGHT_BACK) if seen is not None else ():
            line = self._versions.content(change.version) if change.action is Action.APPEND else None
            is_there = line is not None and seen is not None and line + b"\n" in seen.data
            if not change.version or (is_there and change.number <= looked):
                break
            if line is not None and not is_there:
                gone.append((change, line))
        for change, line in reversed(gone):
            self.append(found.path, Author(change.author, change.epoch), lambda _, line=line: line)  # type: ignore[misc]

    def _look(self, paths: list[str], known: Mapping[str, Known]) -> list[tuple[str, Plain | None]]:
        """What lies at these paths of one directory, which is opened once for all; those where nothing changed are left out."""
        try:
            with files.directory(self._root, place(paths[0])) as (here, _):
                looked = [(path, self._look_in(here, path, known.get(path, NOTHING))) for path in paths]
        except (FileNotFoundError, Refused, HostError) as error:
            if len(paths) > 1:  # each has a reason of its own
                return [one for path in paths for one in self._look([path], known)]
            # A HostError: the machine could not look, and the next look will.
            return [] if isinstance(error, HostError) else [(paths[0], None)]
        return [(path, seen) for path, seen in looked if not isinstance(seen, _Same)]

    def _look_in(self, here: Folder, path: str, known: Known) -> Plain | _Same | None:
        version, last = known
        name = path.rpartition("/")[2]
        if version and last != NEVER and files.stands_in(here, name, last):
            return _Same()
        try:
            return files.read_in(here, name, self._root / place(path), limit(path))
        except Refused:
            return None

    def _record(self, path: str, seen: Plain | None) -> None:
        with self._versions.together(durable=False):
            self._record_all([(path, seen)], self._versions.known_of([path]))

    def _record_all(self, looked: Sequence[tuple[str, Plain | None]], known: Mapping[str, Known]) -> None:
        """Write down what files are when that is not what was known."""
        now, knows, texts, planned = self._wall(), list[tuple[str, str, Identity]](), list[Plain](), list[Planned]()
        for path, seen in looked:
            before, last = known.get(path, NOTHING)
            version, identity = (seen.version, seen.identity) if seen is not None else ("", NEVER)
            is_day = files.kind_of(path.removeprefix(QUARANTINE)) is Kind.EPISODIC
            if is_day and seen is not None and seen.looked == last:
                continue
            if seen is not None and (version != before or identity != NEVER):
                knows.append((path, version, seen.looked if is_day else identity))
            if version == before:
                continue
            if seen is None:
                knows.append((path, "", NEVER))
            elif not is_day:  # a day is only added to: its lines are kept one by one
                texts.append(seen)
            planned.append(Planned(path, UNKNOWN, Action.FOUND, version, before, len(seen.data) if seen is not None else 0))
        self._versions.know_all(knows)
        self._versions.keep_all((text.version, text.data) for text in texts)
        self._versions.begin_all(planned, now, "done")

    def settle(self) -> None:
        """Find out what a killed writer, or one whose disk was full, had done."""
        if not self._unsettled:
            return
        pending = self._versions.pending()
        texts = [self._versions.content(change.version) or b"" for change in pending]
        self._unsettled = False  # what is kept beside a file is a write of its own
        try:
            seen = {path: self._seen(path) for path in {change.path for change in pending}}
            for change, text in zip(pending, texts, strict=True):
                state = "done" if _is_done(change, text, seen[change.path]) else "dropped"
                with self._versions.together():
                    self._versions.settle(change.number, state)
                    if state == "done":
                        self._know_again(change, len(text), seen[change.path])
            self._sweep(texts)
        except BaseException:
            self._unsettled = True
            raise

    def _seen(self, path: str) -> _Seen:
        try:
            found = self.read(path)
        except Refused:
            return _Seen(None, is_plain=False)
        is_day = found is not None and files.kind_of(path.removeprefix(QUARANTINE)) is Kind.EPISODIC
        return _Seen(found, lines=frozenset(found.data.split(b"\n")) if found is not None and is_day else None)

    def _know_again(self, change: Change, size: int, seen: _Seen) -> None:
        if seen.lines is None or seen.plain is None:
            self._versions.know(change.path, change.version)
            return
        seen.added += size + 1
        if len(seen.plain.data) - self._versions.known(change.path)[1][1] in (seen.added, seen.added + 1):  # nobody else added to it
            self._versions.know(change.path, change.version, seen.plain.looked)

    def _sweep(self, texts: Sequence[bytes]) -> None:
        """Remove the drafts of killed writers. One that has what nobody knows was exchanged for a file within the last moment."""
        for top in ("memory", "quarantine"):
            for below in listing.folders(self._root, top, []):
                with contextlib.suppress(FileNotFoundError, Refused), files.directory(self._root, f"{top}/{below}x") as (here, _):
                    for draft, name in files.drafts(here):
                        path = f"{below}{name}" if top == "memory" else f"{QUARANTINE}{below}{name}"
                        if files.kind_of(f"{below}{name}") is not None:
                            self._sweep_draft(here, draft, path, texts)

    def _sweep_draft(self, here: Folder, draft: str, path: str, texts: Sequence[bytes]) -> None:
        data = here.read(draft, limit(path) + 1)
        is_kept = data is None or any(text.startswith(data) for text in texts) or self._versions.content(version_of(data)) is not None
        if data is not None and not is_kept:
            self.keep_beside(Text(path, data, UNKNOWN, Action.CONFLICT))
        files.discard(here, draft, limit(path))


# Store
# -----
# The notes of one project: who may write what, and every file read, written, moved and found as memory/writing.py does it.
#
# What is found on disk and came by no door is a version too, by `unknown`. Texts that do not fit each other are both kept.


__all__ = ["PERSON", "QUARANTINE", "UNKNOWN", "Action", "Author", "Change", "Entry", "Put", "Store", "Stored", "Terms"]


LINES_MAX = 1_000_000
"""Changes of a day that are looked at to restore it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a person settled."""

    approval: frozenset[Kind] = frozenset((Kind.CORE, Kind.PROCEDURAL))
    """Kinds of which an agent's text waits for a person."""
    trust: str = "all"
    """`none`: every text of an agent waits."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A file as it is. `size` is bytes; `note` is None for a day."""

    path: str
    text: str
    version: str
    size: int
    kind: Kind
    note: Note | None


class Store:
    """Of one project; it belongs to one thread. Paths are those of memory/files.py. Everything raises UsageError for what is no path,
    Refused for what is no plain file of its size, and DiskFull, ToolFailed and LedgerError with the files as they were, but for a change
    that a power cut may undo (`host.files.unsynced`): that one is made."""

    def __init__(self, where: Layout, wall: Callable[[], float], terms: Callable[[], Terms] = Terms, *, reads: bool = False) -> None:
        """`terms` is asked only when it matters. `reads`: nothing is written, also while a supervisor has the files open."""
        self._terms, self._wall = terms, wall
        self._versions = Versions(where.book, reads=reads)
        self._writer = Writer(where.root, self._versions, wall)
        self._files, self._waiting = Listing(where.root, "memory"), Listing(where.root, "quarantine")
        if not reads:
            self._writer.settle()

    def close(self) -> None:
        """Nothing else may be called afterwards."""
        self._versions.close()

    @property
    def versions(self) -> Versions:
        """For whoever keeps tables of their own in the same file."""
        return self._versions

    def read(self, path: str) -> Stored | None:
        """A file, or None. What waits for a person has `quarantine/` before its path."""
        kind = files.checked(path.removeprefix(QUARANTINE))
        found = self._writer.read(path)
        if found is None:
            return None
        text = found.data.decode("utf-8", "replace")
        return Stored(path, text, found.version, len(found.data), kind, note.parse(text) if kind is not Kind.EPISODIC else None)

    def entries(self) -> list[Entry]:
        """All files, by path."""
        return self._files.entries()

    def day(self, path: str) -> tuple[list[dict[str, object]], list[note.Skipped]]:
        """The records of a day, and the lines that are none. Both are empty when there is no such day."""
        found = self.read(path)
        return note.records(found.text.encode()) if found is not None else ([], [])

    def superseding(self, path: str, kind: Kind, note_id: object) -> list[str]:
        """Return the paths of the notes that take the place of the one at `path`, whose `id` is empty or None when it has none: those that
        pruning believes."""
        names = {path, str(note_id or "")} - {""}
        claims = [one for one in self.entries() if one.path != path and str(one.meta.get("supersedes") or "") in names]
        waits = self._terms().approval if claims else frozenset()
        return [one.path for one in claims if may_supersede(kind, one.kind, waits, by_person=self._versions.by_person(one.path))]

    def strange(self) -> list[tuple[str, str]]:
        """What lies where a file may lie and is none that is read: its path, and why."""
        return self._files.strange()

    def misnamed(self) -> tuple[list[tuple[str, str]], int]:
        """What lies there and is no file of ours by its name or place: the first with why, and how many more there are."""
        return self._files.misnamed()

    def put(self, path: str, text: str, author: Author, *, if_version: str | None = None, approved: bool = False) -> Put:
        """Write a note. Where there is another version than `if_version` ("" is for: none) the file stays, and the text is kept beside it.

        An agent's text is stripped of what hides, its front matter says who wrote it and when, and it may have to wait for a person
        (`quarantined`), but for one that is `approved`.
        """
        kind = self._may_write(path, author)
        data = self._data(path, kind, self._signed(path, kind, text, author) if author.is_agent else text)
        if self._waits(kind, author) and not approved:
            return self._set_aside(Text(path, data, author, Action.QUARANTINE), if_version)
        return self._writer.write(Text(path, data, author, Action.PUT), if_version)

    def append(self, record: Mapping[str, object], author: Author) -> str:
        """Add a line to today's file (of UTC); the path of that. `record` has `text`, and may have `type` and `refs`."""
        now = self._wall()
        path = f"episodic/{datetime.fromtimestamp(now, UTC):%Y-%m-%d}.jsonl"
        where = f"{QUARANTINE}{path}" if self._waits(Kind.EPISODIC, author) else path
        self._writer.append(where, author, lambda number: note.line(record, author, now, number))
        return where

    def add_day(self, path: str, text: str, author: Author) -> int:
        """Add the records of a day of another memory that are not there yet, each as it is; how many. Raises Refused for an agent: they say
        themselves who wrote them."""
        if author.is_agent:
            raise _not_a_person(path)
        there = set(map(note.again, self.day(path)[0]))
        missing = [line for line in map(note.again, note.records(text.encode())[0]) if line not in there]
        for line in dict.fromkeys(missing):
            self._writer.append(path, author, lambda _, line=line: line)  # type: ignore[misc]
        return len(missing)

    def remove(self, path: str, author: Author, action: Action = Action.REMOVE) -> str:
        """Move a file to the archive; its path there. Raises NotFound."""
        self._may_write(path, author, removes=True)
        if author.is_agent:
            self._writer.read(path)  # what is no plain file is a person's to move
        return self._writer.move(path, f"archive/{path}", author, action)

    def restore(self, path: str, author: Author, version: str | None = None) -> Put:
        """Write an older version again: the one whose first digits are given, else the last one that was another than now. Of a day the
        recorded lines that are missing are added, for a person. Raises NotFound, and UsageError for a version of a day."""
        if files.kind_of(path) is Kind.EPISODIC and version is None:
            return self._restore_day(path, author)
        kind = self._may_write(path, author)
        now = self._writer.read(path)
        current = now.version if now is not None else ""
        data = self._older(path, current, version)[1]
        if self._waits(kind, author):
            return self._set_aside(Text(path, data, author, Action.QUARANTINE), current)
        return self._writer.write(Text(path, data, author, Action.RESTORE), current)

    def _restore_day(self, path: str, author: Author) -> Put:
        if author.is_agent:
            raise _not_a_person(path)
        found = self.read(path)
        there = set(found.text.encode().split(b"\n")) if found is not None else set()
        added = (Action.APPEND, Action.APPROVE, Action.RESTORE)
        rows = [change.version for change in self.changes(path, LINES_MAX) if change.version and change.action in added]
        lines = [line for version in dict.fromkeys(reversed(rows)) if (line := self._versions.content(version)) is not None]
        if not lines:
            raise NotFound("no line is recorded of", on=path, hint=f"nightcrew mem log {path}")
        for line in lines:
            if line not in there:
                self._writer.append(path, author, lambda _, line=line: line, Action.RESTORE)  # type: ignore[misc]
        whole = self.read(path)
        return Put(path, whole.version if whole is not None else "")

    def changes(self, path: str | None = None, limit: int = 100) -> list[Change]:
        """Of one file or all, newest first."""
        return self._versions.changes(path, limit)

    def changes_after(self, number: int, limit: int) -> list[Change]:
        """Oldest first."""
        return self._versions.changes_after(number, limit)

    def newest(self) -> int:
        """Number of the last change; 0 before the first."""
        return self._versions.newest()

    def found(self, path: str) -> Change | None:
        """Look at a file; the change, when it is not what it was at the last look and nobody came by a door."""
        return next(iter(self.found_all([path])), None)

    def found_all(self, paths: Sequence[str]) -> list[Change]:
        """As `found`, of many, in one transaction. Paths at which nothing may lie are left out."""
        return self._writer.found([path for path in paths if files.kind_of(path) is not None])

    def known(self) -> list[str]:
        """The paths of all files that were there at the last look."""
        return [path for path in self._versions.known_paths() if not path.startswith(QUARANTINE)]

    def quarantined(self) -> list[Entry]:
        """What waits for a person, by path without `quarantine/`."""
        return self._waiting.entries()

    def approve(self, path: str, author: Author, version: str | None = None) -> Put:
        """Put what waits in its place, or beside it when that changed since. Raises NotFound, and Refused for an agent, and when what waits
        is not `version` (none: whatever it is). What a disk refuses is approved not at all; or it is, still waits, the error says so, and
        the next approval only moves it."""
        waits = self._waits_at(path, author)
        if version not in (None, waits.version):
            raise Refused("another text waits by now", on=path, kept="it still waits", hint=f"nightcrew mem show {QUARANTINE}{path}")
        put = Put(path, "")
        try:
            with self._writer.moving(f"{QUARANTINE}{path}", f"archive/{QUARANTINE}{path}", author, Action.APPROVE) as move:
                if waits.kind is Kind.EPISODIC:
                    self._approve_day(path, author)
                else:
                    put = self._approve_note(waits, path, author)
                move()
        except HostError as error:
            error.kept, error.hint = self._left(waits, path, put), f"nightcrew mem approve {path} --version {waits.version}"
            raise
        return put

    def _approve_note(self, waits: Stored, path: str, author: Author) -> Put:
        text = Text(files.meant(path), waits.text.encode(), author, Action.APPROVE)
        here = self._writer.read(text.path)
        if here is not None and here.data == text.data:  # an approval came so far before
            return self._writer.write(text)
        proposed = next((change for change in self.changes(f"{QUARANTINE}{path}") if change.action is Action.QUARANTINE), None)
        return self._writer.write(text, proposed.before if proposed is not None else None)

    def _left(self, waits: Stored, path: str, put: Put) -> str:
        """What an approval left that a disk did not let end."""
        if put.conflict:
            return f"it is kept as {put.conflict}, and still waits"
        if self._writer.read(f"{QUARANTINE}{path}") is None:
            return "it is approved, and a power cut may undo that"
        here = self._writer.read(files.meant(path))
        is_there = not self._missing(path) if waits.kind is Kind.EPISODIC else here is not None and here.version == waits.version
        return "it is approved, and still waits" if is_there else "it still waits, and nothing of it is approved"

    def reject(self, path: str, author: Author) -> str:
        """Move what waits to the archive; its path there. Raises NotFound, and Refused for an agent."""
        if author.is_agent:
            raise _not_a_person(path)
        files.checked(path)
        return self._writer.move(f"{QUARANTINE}{path}", f"archive/{QUARANTINE}{path}", author, Action.REJECT)

    def _approve_day(self, path: str, author: Author) -> None:
        self._writer.append_all(path, author, self._missing(path), Action.APPROVE)

    def _missing(self, path: str) -> list[bytes]:
        """The lines of a day that wait and that it does not have. Two that have no number, since somebody wrote them by hand, are one when
        they are the same."""
        there = set(map(note.again, self.day(path)[0]))
        waits = dict.fromkeys(map(note.again, self.day(f"{QUARANTINE}{path}")[0]))
        return [line for line in waits if line not in there]

    def _waits_at(self, path: str, author: Author) -> Stored:
        if author.is_agent:
            raise _not_a_person(path)
        found = self.read(f"{QUARANTINE}{path}")
        if found is None:
            raise NotFound("nothing waits by this name", on=path, hint="nightcrew mem quarantine")
        return found

    def _waits(self, kind: Kind, author: Author) -> bool:
        terms = self._terms()
        return author.is_agent and (not author.trusted or terms.trust == "none" or kind in terms.approval)

    def _set_aside(self, text: Text, base: str | None) -> Put:
        """Into the quarantine, beside what another author has there."""
        now = self._writer.read(text.path)
        base = base if base is not None else now.version if now is not None else ""
        path = text.path
        last = next(iter(self.changes(f"{QUARANTINE}{path}", 1)), None)
        if last is not None and last.version and last.author != text.author.name:
            path = files.beside(path, text.author.name)
        put = self._writer.write(Text(f"{QUARANTINE}{path}", text.data, text.author, text.action, base))
        return Put(path, put.version, quarantined=True)

    def _may_write(self, path: str, author: Author, *, removes: bool = False) -> Kind:
        kind = files.checked(path)
        if kind is Kind.EPISODIC and not removes:
            raise UsageError("a day is only added to", on=path, hint="nightcrew mem append TEXT")
        if not author.is_agent:
            return kind
        if kind is Kind.NOTES and files.meant(path) != files.notes_of(author.name):
            raise Refused("these are another agent's notes", on=path, hint=f"yours are {files.notes_of(author.name)}")
        if removes and (self._waits(kind, author) or kind is Kind.EPISODIC):
            raise _not_a_person(path)
        if files.is_conflict(path) and not removes:
            raise Refused("only nightcrew gives such a name", on=path, hint=f"write {files.meant(path)}")
        return kind

    def _signed(self, path: str, kind: Kind, text: str, author: Author) -> str:
        """With who wrote it, whatever it says itself."""
        text = stripped(text)
        before = self._writer.read(path)
        meta = note.parse(text).meta
        old = note.parse(before.data.decode("utf-8", "replace")).meta if before is not None else {}
        now = note.moment_text(self._wall())
        created = old.get("created")
        keys: dict[str, object] = {
            "id": old.get("id") or note.fresh_id(self._wall(), f"{author.name} {author.epoch} {path} {self.newest()}"),
            "kind": kind.value,
            "title": meta["title"] or path,
            "agent": author.agent or None,
            "task": author.name,
            "created": note.moment_text(created) if isinstance(created, float) else now,
            "updated": now,
        }
        return note.rewritten(text, **keys)

    def _data(self, path: str, kind: Kind, text: str) -> bytes:
        try:
            data = text.encode()
        except UnicodeEncodeError:
            raise UsageError("not Unicode text", on=path) from None
        if len(data) > files.size_max(kind):
            raise UsageError(
                "the note is too large", on=path, why=f"{len(data)} bytes; {files.size_max(kind)} are allowed", hint="divide it"
            )
        return data

    def older(self, path: str, version: str) -> tuple[str, str]:
        """A version of a file by its first digits, 4 or more, and its text. Raises NotFound."""
        found, data = self._older(path, "", version)
        return found, data.decode("utf-8", "replace")

    def _older(self, path: str, current: str, start: str | None) -> tuple[str, bytes]:
        if start is None:
            found = next((change.version for change in self.changes(path, 1000) if change.version not in ("", current)), "")
        else:
            found = next(iter(self._versions.versions_like(path, start)), "") if len(start) >= 4 else ""
        data = self._versions.content(found) if found else None
        if data is None:
            raise NotFound("no such version is kept of", on=f"{path} {start or ''}".rstrip(), hint=f"nightcrew mem log {path}")
        return found, data


def _not_a_person(path: str) -> Refused:
    return Refused(
        "only a person may do that",
        on=path,
        why="an agent proposes by put, and never removes or approves",
        hint="write to the person: nightcrew mail send person",
    )
