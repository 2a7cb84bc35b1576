"""The notes of one project: who may write what, and every file read, written, moved and found as memory/writing.py does it.

What is found on disk and came by no door is a version too, by `unknown`. Texts that do not fit each other are both kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from memory import files, note
from memory.files import Layout
from memory.listing import Entry, Listing, Replacement
from memory.note import Note, stripped
from memory.versions import PERSON, UNKNOWN, Action, Author, Change, Versions
from memory.writing import QUARANTINE, Put, Text, Writer
from supervisor.kernel.errors import HostError, NotFound, Refused, UsageError
from supervisor.kernel.path_globs import Kind

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

    def __init__(self, where: Layout, wall: Callable[[], float], terms: Terms | None = None) -> None:
        self.terms = terms or Terms()
        self._wall = wall
        self._versions = Versions(where.book)
        self._writer = Writer(where.root, self._versions, wall)
        self._files, self._waiting = Listing(where.root, "memory"), Listing(where.root, "quarantine")
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

    def notes(self) -> Iterator[Stored]:
        """All files with their texts, by path, but for days; what is refused, or goes meanwhile, is left out."""
        for entry in self.entries():
            if entry.kind is Kind.EPISODIC:
                continue
            try:
                found = self.read(entry.path)
            except Refused:
                continue
            if found is not None:
                yield found

    def day(self, path: str) -> tuple[list[dict[str, object]], list[note.Skipped]]:
        """The records of a day, and the lines that are none. Both are empty when there is no such day."""
        found = self.read(path)
        return note.records(found.text.encode()) if found is not None else ([], [])

    def superseding(self, path: str, kind: Kind, note_id: object) -> list[str]:
        """The paths of the notes that take the place of the one at `path`."""
        believed = Replacement(lambda: self.terms.approval, self._versions.by_person)
        return believed.of(self.entries(), path, kind, note_id)

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

    def text_of(self, version: str) -> str | None:
        """What a version was; None when it is not kept."""
        data = self._versions.content(version)
        return None if data is None else data.decode("utf-8", "replace")

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
        return author.is_agent and (not author.trusted or self.terms.trust == "none" or kind in self.terms.approval)

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
