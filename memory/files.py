"""Where a memory lies, and its files as the disk has them."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from memory.versions import NEVER, Identity, version_of
from supervisor.host import files, untrusted_fs
from supervisor.host.failpoint import failpoint
from supervisor.host.untrusted_fs import Folder
from supervisor.kernel.errors import HostError, Refused, ToolFailed, UsageError
from supervisor.kernel.path_globs import CONFLICT, CORE_MAX, DAY_MAX, NOTE_MAX, PATH_MAX, RECORD_MAX, WHERE, Kind, kind_of

# Layout
# ------
# Where the memory of one project lies, and what may lie there.
#
#     memory/core.md                  given to every agent
#     memory/semantic/NAME.md         one fact a file
#     memory/procedural/NAME.md       one way of doing something a file
#     memory/episodic/YYYY-MM-DD.jsonl        what happened, a line each, only added to
#     memory/agents/RUN/TASK/notes.md         one agent's own; nobody else writes there
#     NAME.conflict-WHO.md            beside any of these: what somebody wrote who did not know the file as it was
#     mail/person/{tmp,new,cur}       Maildirs: mail/RUN/TASK/{tmp,new,cur} for agents
#     quarantine/                     what waits for a person's word, by the path that it would have
#     archive/                        what was pruned or removed, by the path that it had
#     memory.db                       every version of every file, and how often each is read
#
# A path here is text below `memory/`, its parts divided by `/`. It is the name of a note everywhere: on the command line, in a
# task's `after`, at agents.sock.


__all__ = [
    "CONFLICT",
    "CORE_MAX",
    "DAY_MAX",
    "NOTE_MAX",
    "PATH_MAX",
    "RECORD_MAX",
    "WHERE",
    "Kind",
    "Layout",
    "checked",
    "kind_of",
    "notes_of",
]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything of one project lies. `root` is its directory, `Home.project`."""

    root: Path

    @property
    def memory(self) -> Path:
        return self.root / "memory"

    @property
    def mail(self) -> Path:
        return self.root / "mail"

    @property
    def quarantine(self) -> Path:
        return self.root / "quarantine"

    @property
    def archive(self) -> Path:
        return self.root / "archive"

    @property
    def book(self) -> Path:
        """The file of the versions."""
        return self.root / "memory.db"

    def mailbox(self, owner: str) -> Path:
        """Of a task, or of `person`."""
        return self.mail / owner


def checked(path: str) -> Kind:
    """As `kind_of`. Raises UsageError for a path at which nothing may lie."""
    found = kind_of(path)
    if found is None:
        hint = "names have letters, digits, dots, dashes and underscores"
        raise UsageError("not a path of the memory", on=path[:PATH_MAX], why=WHERE, hint=hint)
    return found


def notes_of(task: str) -> str:
    """The path of an agent's own notes."""
    return f"agents/{task}/notes.md"


def is_conflict(path: str) -> bool:
    """Whether it was kept beside the file that it was meant for."""
    return CONFLICT in path


def beside(path: str, who: str, number: int = 1) -> str:
    """Where a text for `path` is kept that came too late, or from somebody who may not write there yet; the `number`th of them."""
    name = re.sub(r"[^A-Za-z0-9_]+", "-", who).strip("-")[:60] or "unknown"
    more = f"-{number}" if number > 1 else ""
    return f"{path.removesuffix('.md')}{CONFLICT}{name}{more}.md"


def meant(path: str) -> str:
    """The path that `beside` was given."""
    return f"{path.partition(CONFLICT)[0]}.md" if is_conflict(path) else path


def size_max(kind: Kind) -> int:
    """Bytes that a file of the kind may have."""
    return {Kind.CORE: CORE_MAX, Kind.EPISODIC: DAY_MAX}.get(kind, NOTE_MAX)


# Disk
# ----
# The files of a memory, by the foreign door: an agent in tier 0, or a person's program, can put anything in their place.
#
# Every path is walked by handles below a root, with no link on the way. A file counts when it is a regular one with a single name
# and within its size. What is replaced is never lost: the old file and the new one exchange their names, and what was really there
# is looked at.


SETTLED_NS = 100_000_000
"""A file that was written more recently can be written again without a change of its times."""
SPARE = 64 * 2**10
"""Bytes that must be free before a line is added: a line in part cannot be taken back while others add to the file."""
_DRAFT = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}\Z")


@dataclass(frozen=True, slots=True)
class Plain:
    """A file that was read."""

    data: bytes
    version: str
    identity: Identity
    """NEVER when it may change without being seen to."""
    looked: Identity


@contextlib.contextmanager
def directory(root: Path, path: str, *, make: bool = False) -> Iterator[tuple[Folder, str]]:
    """The directory of a file below `root`, and the file's name in it. Raises FileNotFoundError when there is none, Refused when what is on
    the way is no directory, and ToolFailed or DiskFull."""
    below, _, name = path.rpartition("/")
    try:
        with untrusted_fs.folder(root, below, make=make) as here:
            yield here, name
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _explained(root / path, error) from error


def _explained(path: Path, error: OSError) -> Refused | HostError:
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EXDEV):
        return _refused(path, "a link or a file is in the place of a directory on its way")
    return files.write_error(path, error)


def _refused(path: Path, why: str) -> Refused:
    return Refused("will not use the file", on=str(path), why=why, kept="it was not touched", hint=f"ls -ld {path}")


def look(here: Folder, name: str, path: Path, limit: int) -> os.stat_result | None:
    """What the file is; None when nothing is there. Raises Refused for what is no plain file of at most `limit` bytes."""
    seen = here.look(name)
    if seen is None:
        return None
    if not stat.S_ISREG(seen.st_mode):
        raise _refused(path, f"it is {untrusted_fs.kind(seen)} and not a file")
    if seen.st_nlink != 1:
        raise _refused(path, f"it has {seen.st_nlink} names: what is written to one of them is written to all")
    if seen.st_size > limit:
        raise _refused(path, f"it has {seen.st_size} bytes, and {limit} are allowed")
    return seen


def read(root: Path, path: str, limit: int) -> Plain | None:
    """The whole file; None when nothing is there. Raises Refused for what is no plain file of at most `limit` bytes, and ToolFailed."""
    try:
        with directory(root, path) as (here, name):
            return read_in(here, name, root / path, limit)
    except FileNotFoundError:
        return None


def read_in(here: Folder, name: str, path: Path, limit: int) -> Plain | None:
    """As `read`, in a directory that is open. `path` is for the words of an error."""
    for _ in range(TRIES):
        before = look(here, name, path, limit)
        if before is None:
            return None
        try:
            data = here.read(name, limit + 1)
        except PermissionError as error:
            raise ToolFailed("cannot read", on=str(path), why=error.strerror or "", hint=f"ls -ld {path}") from error
        if data is not None and len(data) <= limit:
            after = here.look(name)
            same = after is not None and identity(before) == identity(after)
            return Plain(data, version_of(data), settled(before) if same else NEVER, identity(before))
    raise _refused(path, "it is exchanged all the time")


def identity(seen: os.stat_result) -> Identity:
    """By which a later look knows that a file was not written."""
    return (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


def settled(seen: os.stat_result) -> Identity:
    """As `identity`; NEVER for a file so young that a write could leave its times as they are."""
    return identity(seen) if time.time_ns() - max(seen.st_mtime_ns, seen.st_ctime_ns) > SETTLED_NS else NEVER


@dataclass(frozen=True, slots=True)
class Changed:
    """Nothing was replaced: the file is no longer what it was thought to be."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """The file is the new one. `draft` is the name that what was there before has now, until `discard`; empty: nothing was there."""

    draft: str
    displaced: bytes | None
    """What was there instead of what was expected: somebody wrote within the last moment."""


def replace(here: Folder, name: str, path: Path, data: bytes, expected: str, limit: int) -> Replaced | Changed:
    """Put `data` in the place of the version `expected` (empty: of nothing), on the disk before this returns.

    Raises Refused for what is no plain file, and DiskFull or ToolFailed; the old content is then still there, but for the error of
    `files.unsynced`: then the file is the new one, and what was there has the draft's name.
    """
    try:
        draft = here.draft(name, data, sync=True)
        try:
            failpoint("note.drafted")
            found = _swap(here, name, path, draft, expected, limit)
        except BaseException:
            here.remove(draft)
            raise
        if isinstance(found, Changed):
            here.remove(draft)
            return found
    except OSError as error:
        raise files.write_error(path, error) from error
    _sync(here, path, "the new text")
    failpoint("note.replaced")
    return found


def _sync(here: Folder, path: Path, kept: str) -> None:
    try:
        here.sync()
    except OSError as error:
        raise files.unsynced(path, error, kept) from error


def _swap(here: Folder, name: str, path: Path, draft: str, expected: str, limit: int) -> Replaced | Changed:
    seen = read_in(here, name, path, limit)
    if (seen.version if seen is not None else "") != expected:
        return Changed()
    if seen is None:
        return Replaced("", None) if untrusted_fs.move_new(here.handle, draft, here.handle, name) else Changed()
    try:
        exchanged = untrusted_fs.exchange(here.handle, draft, name)
    except FileNotFoundError:  # it was removed within the last moment
        return Changed()
    if not exchanged:
        os.rename(draft, name, src_dir_fd=here.handle, dst_dir_fd=here.handle)
        return Replaced("", None)
    return Replaced(draft, _displaced(here, draft, expected, limit))


def _displaced(here: Folder, draft: str, expected: str, limit: int) -> bytes | None:
    """Whatever lies there that is no plain file keeps its place, as `discard` leaves it."""
    data = here.read(draft, limit + 1)
    return data if data is not None and len(data) <= limit and version_of(data) != expected else None


def discard(here: Folder, draft: str, limit: int) -> None:
    """Remove what was replaced, once it is known to be kept. What is no plain file within its size is renamed and left."""
    try:
        if (data := here.read(draft, limit + 1)) is not None and len(data) <= limit:
            here.remove(draft)
        elif here.look(draft) is not None:
            here.set_aside(draft)
    except OSError:  # a file too much, with a dot, that nobody reads
        return


def drafts(here: Folder) -> list[tuple[str, str]]:
    """What killed writers left: the names of drafts, and of the files that they were for."""
    return [(found, match["name"]) for found in here.names() if (match := _DRAFT.match(found))]


def stands_in(here: Folder, name: str, known: Identity) -> bool:
    """Whether a file is one that was read before, and was not written since."""
    seen = here.look(name)
    return seen is not None and identity(seen) == known and stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1


@dataclass(frozen=True, slots=True)
class Appended:
    """What the file was before a line was added, and after it. When they do not fit, others added to it at the same time."""

    before: os.stat_result
    after: os.stat_result


def append(root: Path, path: str, line: bytes, limit: int) -> Appended:
    """Add a line, which has no line break, by one write. One that was torn before it stays a line of its own.

    Raises Refused for what is no plain file or would be larger than `limit`, and DiskFull or ToolFailed with nothing added.
    """
    place = root / path
    if files.free_near(root) < len(line) + SPARE:
        raise files.disk_full("cannot add to", place, "the disk is full", kept="what it has")
    with directory(root, path, make=True) as (here, name):
        for _ in range(TRIES):
            look(here, name, place, limit - len(line) - 2)
            try:
                handle = os.open(name, os.O_RDWR | os.O_APPEND | os.O_CREAT | _SAFE, 0o644, dir_fd=here.handle)
            except OSError as error:
                raise _refused(place, error.strerror or "it cannot be opened") from error
            try:
                if (added := _append(handle, place, line)) is not None:
                    return added
            finally:
                os.close(handle)
    raise _refused(place, "it is exchanged all the time")


_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
LOCK_S = 0.05
"""Seconds that a line waits for whoever holds the lock: one write is whole without it, and an agent may hold it for ever."""
TRIES = 5
"""So often a file is opened again that an editor exchanges at the same moment."""
NUMBERS = 1000
"""So many of one name can be kept."""


def _append(handle: int, place: Path, line: bytes) -> Appended | None:
    """None, with nothing written, when an editor has put another file in its place meanwhile."""
    _lock(handle)
    before = os.fstat(handle)
    if not stat.S_ISREG(before.st_mode) or before.st_nlink != 1:
        return None
    torn = before.st_size > 0 and os.pread(handle, 1, before.st_size - 1) != b"\n"
    data = (b"\n" if torn else b"") + line + b"\n"
    try:
        written = os.write(handle, data)
    except OSError as error:
        raise files.write_error(place, error) from error
    if written != len(data):
        raise files.disk_full("cannot add to", place, f"{written} of {len(data)} bytes were written", kept="what it has")
    failpoint("note.appended")
    return Appended(before, os.fstat(handle))


def _lock(handle: int) -> None:
    until = time.monotonic() + LOCK_S
    while not files.try_lock(handle) and time.monotonic() < until:
        time.sleep(0.001)


def move(root: Path, path: str, to: str) -> str:
    """Rename a file; the path that it got: `to`, or with a number when something has that. Links on the way are refused, and one at
    `path` is moved as it is. Raises FileNotFoundError, Refused, DiskFull and ToolFailed, with the file where it was but for the error of
    `files.unsynced`."""
    with directory(root, path) as (here, name), directory(root, to, make=True) as (there, new):
        for number in range(1, NUMBERS):
            fresh = new if number == 1 else f"{new}.{number}"
            if untrusted_fs.move_new(here.handle, name, there.handle, fresh):
                moved = f"{to.rpartition('/')[0]}/{fresh}".lstrip("/")
                for one in (there, here):
                    _sync(one, root / path, f"it is at {root / moved}")
                return moved
    raise Refused("there are too many of this name", on=str(root / to), kept=str(root / path))
