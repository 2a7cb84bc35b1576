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
from pathlib import Path

from memory import files, listing
from memory.files import Changed, Plain
from memory.versions import NEVER, NOTHING, UNKNOWN, Action, Author, Change, Identity, Known, Planned, Versions, version_of
from supervisor.host.failpoint import failpoint
from supervisor.host.untrusted_fs import Folder
from supervisor.kernel.errors import DiskFull, HostError, LedgerError, NightcrewError, NotFound, Refused
from supervisor.kernel.path_globs import Kind

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
