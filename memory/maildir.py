"""One mailbox, and one message as text."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from memory import note
from memory.note import BrokenError
from supervisor.host import files, untrusted_fs
from supervisor.host.untrusted_fs import Folder
from supervisor.kernel.errors import HostError, Refused

# Message
# -------
# One message as text: front matter (`memory.note`), then its words. People can read it and write one by hand.
#
#     ---
#     id: 01J...
#     from: 1123-k3f9/planner
#     to: 1123-k3f9/builder
#     subject: which port?
#     ---
#     The words.


FILE_MAX = 64 * 2**10
"""Bytes of a message's file."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a file says. Nothing of `head` is to be believed: who sent it and when is in the ledger."""

    head: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


def written(message: Message) -> str:
    """The text of the file; `parse` gives the same message back. Empty values are left out."""
    return note.written(message.head, message.body.rstrip("\n") + "\n")


def parse(text: str) -> Message:
    """Read a message; one without front matter is all words. Raises Refused for front matter that is broken."""
    try:
        front, body = note.split(text.removeprefix("\ufeff").replace("\r\n", "\n"))
        head = note.read_head(front) if front is not None else {}
    except BrokenError as error:
        raise Refused("not a message", why=str(error), kept="the file, set aside") from None
    return Message({key.lower(): value for key, value in head.items() if isinstance(value, str)}, body)


# Maildir
# -------
# One mailbox: `tmp/`, `new/` and `cur/` of its owner, with a copy of each message: in `new/` until it is read, then in `cur/`. What the
# ledger says of a message is the truth; a copy that is missing or changed tells nothing.
#
# A person, and an agent without a sandbox, can write here, so everything is reached through the door for files of others. A file in
# `new/` that is no copy becomes a message. All functions read and write files: call them on the memory's thread. They raise HostError
# when the directory cannot be used.


SUFFIX = ".md"
STILL_S, EMPTY_S = 2.0, 10.0
"""Seconds without a change before a file is taken: one whose writers the kernel cannot name, and an empty one."""
LOOKED_MAX = 1000
"""Files of a mailbox that one look takes."""
NEW, CUR, TMP = "new", "cur", "tmp"


@dataclass(frozen=True, slots=True)
class Found:
    """A file in `new/` that is not one of ours."""

    name: str
    data: bytes | None
    """None when it is no plain file of at most FILE_MAX bytes, which `why` explains."""
    why: str = ""
    which: str = ""
    """Tells it from another file that has its name, and the same words, later."""
    unfinished: bool = False
    """A process is still writing it."""


class Maildir:
    """The mailbox of one owner. It is made with its first message."""

    def __init__(self, mail: Path, owner: str) -> None:
        """`mail`: the directory of all mailboxes of a project. `owner`: a task's id or `person`."""
        self._mail = mail
        self.owner = owner

    def put(self, name: str, text: str) -> None:
        """Write the copy of a message to `new/`, in place of whatever has its name. `tmp/` is made too: people write a file there
        and move it to `new/` when it is whole."""
        with self._box(TMP), self._box(NEW) as new:
            new.replace(name + SUFFIX, text.encode())

    def file(self, name: str) -> None:
        """Move the copy of a message to `cur/`, if there is one in `new/`."""
        with self._box(NEW) as new, self._box(CUR) as cur:
            new.move(name + SUFFIX, cur)

    def text(self, name: str) -> str | None:
        """The text of a message whose words a release before this one kept in its file alone; None when there is none."""
        for box in (NEW, CUR, TMP):
            data = None
            with contextlib.suppress(FileNotFoundError), self._box(box, make=False) as place:
                data = place.read(name + SUFFIX, FILE_MAX)
            if data is not None:
                return data.decode("utf-8", "replace")
        return None

    def strangers(self, ours: frozenset[str]) -> list[Found]:
        """What lies in `new/` beside our own messages, oldest name first. What begins with a dot is somebody's draft, or was set aside."""
        with self._box(NEW) as new:
            names = sorted(name for name in new.names() if not name.startswith(".") and name.removesuffix(SUFFIX) not in ours)
            return [_found(new, name) for name in names[:LOOKED_MAX]]

    def set_aside(self, name: str) -> str:
        """Take a file of `new/` out of the way, by a name that is hidden there; returns it."""
        with self._box(NEW) as new:
            return new.set_aside(name)

    def remove(self, found: Found) -> None:
        """Remove a file of `new/` that was taken over, and not one that has been put there since under its name."""
        with self._box(NEW) as new:
            seen = new.look(found.name)
            if seen is not None and _which(seen) == found.which:
                new.remove(found.name)

    @contextlib.contextmanager
    def _box(self, box: str, *, make: bool = True) -> Iterator[Folder]:
        try:
            with untrusted_fs.folder(self._mail, f"{self.owner}/{box}", make=make) as place:
                yield place
        except OSError as error:
            if not make and isinstance(error, FileNotFoundError):
                raise
            on = f"{self._mail}/{self.owner}/{box}"
            if files.is_no_space(error):
                raise files.disk_full("cannot write the message", Path(on), "the disk is full") from error
            why = "it is a link or no directory" if error.errno in (errno.ELOOP, errno.ENOTDIR) else error.strerror or str(error)
            raise HostError("cannot use the mailbox", on=on, why=why) from error


def _found(new: Folder, name: str) -> Found:
    seen = new.look(name)
    if seen is None:
        return Found(name, None, "it is gone")
    if not name.endswith(SUFFIX):
        return Found(name, None, f"its name does not end with {SUFFIX}")
    data = new.read(name, FILE_MAX + 1)
    if data is None:
        what = untrusted_fs.kind(seen)
        return Found(name, None, f"it is {what}" if what != "a file" else "it is a file with several names")
    if _is_unfinished(new, name, seen):
        return Found(name, None, "it is being written", unfinished=True)
    if len(data) > FILE_MAX:
        return Found(name, None, f"it is larger than {FILE_MAX} bytes")
    return Found(name, data, which=_which(seen))


def _is_unfinished(new: Folder, name: str, seen: os.stat_result) -> bool:
    """Return whether a file is still being written: a process has it open for writing, or it is empty and new. Where the kernel cannot
    say whether a process has it open, a file that changed less than STILL_S ago counts as unfinished."""
    open_now, still_s = new.is_being_written(name), time.time() - seen.st_mtime
    if open_now is None:
        return 0 <= still_s < STILL_S
    return open_now or (not seen.st_size and 0 <= still_s < EMPTY_S)


def _which(seen: os.stat_result) -> str:
    return f"{seen.st_ino} {seen.st_mtime_ns}"


def owners(mail: Path) -> list[str]:
    """Who has a mailbox: `person`, and tasks as RUN/TASK. Names that can be neither are left out."""
    found = []
    with untrusted_fs.folder(mail) as top:
        runs = [name for name in top.names() if _is_folder(top, name)]
    for run in sorted(runs):
        with contextlib.suppress(OSError), untrusted_fs.folder(mail, run) as below:
            names = [name for name in below.names() if _is_folder(below, name)]
            found += [run] if run == "person" else [f"{run}/{name}" for name in sorted(names)]
    return found


def _is_folder(place: Folder, name: str) -> bool:
    seen = place.look(name)
    return not name.startswith(".") and seen is not None and untrusted_fs.kind(seen) == "a directory"


def changed(mail: Path, owner: str) -> int:
    """When `new/` of a mailbox changed last, as the file system says; 0 when there is none."""
    try:
        with untrusted_fs.folder(mail, owner) as box:
            seen = box.look(NEW)
    except OSError:
        return 0
    return seen.st_mtime_ns if seen is not None else 0


def is_arrival(path: str) -> bool:
    """Whether a path below the directory of all mailboxes is that of a file in `new/` of one of them."""
    parts = path.split("/")
    return len(parts) in (3, 4) and parts[-2] == NEW and not parts[-1].startswith(".")


def id_of(name: str) -> str:
    """The id of the message that a file is called after."""
    return name.removesuffix(SUFFIX)
