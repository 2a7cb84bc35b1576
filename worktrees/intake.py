"""Takes commits out of a sandbox, as `git receive-pack` takes a stranger's push.

Whoever sends may be the agent. So nothing of theirs is named, moved or kept before it is judged, in this order:

1. The pack is copied into a quarantine, a directory of ours in the repository's own `objects` that no other git reads: bounded in bytes
   and in time.
2. git unpacks it there, `--strict`: every object is parsed, every link leads to an object. Its memory and its files are bounded.
3. Each new tip is a commit, and all that it reaches is there, up to commits that the repository had.
4. The refs still stand where they are expected.
5. The files of the quarantine get their second names in the object store, in git's order (`tmp_objdir_migrate`).
6. All refs move, in one transaction.

A process of ours that is killed leaves its quarantine, which the next `take` in this repository removes; after
step 5 also objects that nothing names, which are git's to prune.

A pack that stays one is protected from a person's `git repack` by a `.keep` until its ref has moved, as git does it. Loose objects are not:
a `git gc --prune=now` that has read the refs before step 6, and deletes after step 5, takes them away. So while one runs every pack stays
one; and when one came meanwhile, its end is waited for and what is missing gets its second name again. A bare `git prune --expire=now`
says to nobody that it runs: what it takes in that moment is missing, as in any push, until the attempt is secured again.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from supervisor.core.errors import DiskFull, NightcrewError, Refused, ToolFailed, ToolHung
from supervisor.host.failpoint import failpoint
from supervisor.host.files import disk_full, free_bytes
from worktrees import garbage_collection, quarantine, refs, stall_detection
from worktrees.failures import last_words, wrap_os_errors
from worktrees.git import BULK_S, Answer, Bounds
from worktrees.refs import Update
from worktrees.repository import Repository

BYTES_MAX = 4 * 2**30
"""Of a pack, and of each file that git makes of it. GitHub takes 2 GiB in a push; more than twice that is no work of one attempt."""
OBJECTS_MAX = 1_000_000
"""Of a pack: twenty times 50,000 new files. git holds about 200 bytes for each."""
MEMORY_MAX = 2**30
"""Of each git that reads a stranger's objects. Files from 16 MiB on (`core.bigFileThreshold`) are not held in memory unless they come as a
delta; one of 300 MiB still fits then."""
RESERVE = 256 * 2**20
"""Of the disk that a pack must leave free. One that is as small as those that become loose objects is taken as long as it fits."""
LOOSE_BELOW = 100
"""Objects. Fewer become loose objects, as git's own `transfer.unpackLimit` has it: thousands of small packs would slow every git."""
LOOSE_BYTES_MAX = 4 * 2**20
"""Of the pack that becomes loose objects, and of each of them. Deltas can make much of little: more than this stays a pack."""
TOLERATED = (
    "zeroPaddedFilemode",
    "badTimezone",
    "badEmail",
    "missingEmail",
    "missingNameBeforeEmail",
    "missingSpaceBeforeEmail",
    "missingSpaceBeforeDate",
    "zeroPaddedDate",
    "badFilemode",
    "badTagName",
    "missingTaggerEntry",
    "gitmodulesParse",
    "gitignoreSymlink",
    "gitattributesSymlink",
    "mailmapSymlink",
)
"""What git's check finds and we take: the first eight are what old tools wrote into histories that an agent may merge, and large hosts take
them too; the others are no errors to git. Ignored and not warned about: a warning for each of a million objects would fill our memory.
All else is refused, above all names that a checkout could turn against a person (`.git` in any spelling, `..`, hostile submodules)."""

_CHUNK = 2**20
_WHY_MAX = 500
_HARDLY_ANY = 2**20
_ANY = tuple(range(-64, 256))  # signals are negative


def take(
    repo: Repository,
    pack: int,
    updates: Sequence[Update],
    known: Sequence[str],
    why: str,
    *,
    deadline_s: float = BULK_S,
    is_still: Callable[[], bool] = lambda: False,
) -> None:
    """Take what `pack` holds, and move our refs to it.

    `pack` is a readable descriptor that yields one pack and then its end; nothing at all means that no object is new. It may be thin.
    `updates`: each `new` is a commit. `known`: commits that the repository has with their whole history, such as the base.
    `deadline_s` is for all of it, waiting for the sender included; a sender of whom `is_still` says, asked every half second while
    nothing comes, that it does nothing is waited for no longer.
    Raises Refused (the pack is broken, hostile or too large, or a tip is no commit), Incomplete, ToolFailed (a ref stands elsewhere),
    ToolHung, DiskFull or HostError: then no ref moved, and no object stays unless a ref moved away within the last milliseconds.
    """
    _check_names(repo, updates, known)
    with _explained(repo), quarantine.quarantine(repo.common_dir / "objects") as place:
        intake = _Intake(repo, place, time.monotonic() + deadline_s)
        intake.receive(pack, is_still)
        failpoint("intake.unpacked")
        intake.check_connected(updates, known)
        refs.compare_all(repo, updates)
        failpoint("intake.connected")
        try:
            quarantine.migrate(place, intake.objects)
            failpoint("intake.migrated")
            refs.move_all(repo, updates, why)
            failpoint("intake.moved")
            intake.outlast_collection()
        finally:
            quarantine.let_go(place, intake.objects)


class Incomplete(ToolFailed):
    """An object is missing that a tip reaches: the sender left it out, or a person's git collected what the sender saw."""


@dataclass(frozen=True, slots=True)
class _Intake:
    repo: Repository
    place: Path
    until: float

    @property
    def objects(self) -> Path:
        return self.repo.common_dir / "objects"

    def git(self, *argv: str, stdin: bytes | int, file_max: int = BYTES_MAX, accept: tuple[int, ...] = (0,)) -> Answer:
        """A verb that writes into the quarantine, and reads the repository's objects beside it."""
        return self.repo.git.run(
            self.repo.store,
            *argv,
            stdin=stdin,
            env=quarantine.environment(self.place, self.objects),
            accept=accept,
            deadline_s=max(self.until - time.monotonic(), 0.0),
            bounds=Bounds(MEMORY_MAX, file_max),
        )

    def receive(self, pack: int, is_still: Callable[[], bool]) -> None:
        """Copied first: git then never waits for the sender, and can read it twice."""
        with tempfile.TemporaryFile(dir=self.place) as file:
            size = self._copy(pack, file, is_still)
            failpoint("intake.received")
            if size > 0:
                self._unpack(file, size, _count(file))

    def _wait_on(self, *, still: bool) -> None:
        if still or time.monotonic() >= self.until:
            why = stall_detection.STILL if still else "the pack came to no end in time"
            raise ToolHung("taking commits out of a sandbox was stopped", on=str(self.repo.root), why=why)

    def _copy(self, pack: int, file: IO[bytes], is_still: Callable[[], bool]) -> int:
        room = max((free_bytes(self.place) - RESERVE) // 2, LOOSE_BYTES_MAX)  # git writes as much again
        size, poll = 0, select.poll()
        poll.register(pack, select.POLLIN)
        while True:
            while not poll.poll(stall_detection.LOOK_S * 1000):
                self._wait_on(still=is_still())
            self._wait_on(still=False)
            chunk = os.read(pack, _CHUNK)
            size += len(chunk)
            if size > BYTES_MAX:
                raise _refused(self.repo, f"the pack has more than {BYTES_MAX} bytes")
            if size > room:
                raise self._no_room(f"it has more than {room} bytes, is written twice, and must leave {RESERVE}")
            if not chunk:
                file.flush()
                return size
            file.write(chunk)

    def _unpack(self, file: IO[bytes], size: int, count: int) -> None:
        if count < 0 or count > OBJECTS_MAX:
            raise _refused(self.repo, "it is no pack" if count < 0 else f"the pack has more than {OBJECTS_MAX} objects")
        strict = "--strict=" + ",".join(f"{name}=ignore" for name in TOLERATED)
        few = count < LOOSE_BELOW and size <= LOOSE_BYTES_MAX and not garbage_collection.is_collecting(self.repo.common_dir)
        if few and self._unpack_loose(file, size, strict):
            return
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        keep = quarantine.keep_option(self.place)
        answer = self.git("index-pack", "--stdin", "--fix-thin", "--threads=1", strict, keep, stdin=file.fileno(), accept=_ANY)
        if answer.code != 0:
            raise self._judged(answer, size)

    def _judged(self, answer: Answer, size: int) -> NightcrewError:
        """The error for a git that failed. Its words alone do not prove a full disk: a stranger may have put them there."""
        if free_bytes(self.place) < size + _HARDLY_ANY:
            return self._no_room(f"it has {size} bytes")
        found = [line for line in answer.err.splitlines() if line.startswith("error: object ")]
        words = " ".join([*found[-1:], last_words(answer.err)])[:_WHY_MAX]
        return _refused(self.repo, words or f"git index-pack ended with status {answer.code}")

    def _no_room(self, why: str) -> DiskFull:
        return disk_full("no room for a pack out of a sandbox", self.objects, why, hint="free some space, then retry")

    def _unpack_loose(self, file: IO[bytes], size: int, strict: str) -> bool:
        """False where git has to say more, or keep it as a pack. What follows the pack, this verb would pass over."""
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        answer = self.git("unpack-objects", "-q", strict, stdin=file.fileno(), file_max=LOOSE_BYTES_MAX, accept=_ANY)
        return answer.code == 0 and not answer.out and os.lseek(file.fileno(), 0, os.SEEK_CUR) == size

    def outlast_collection(self) -> None:
        """Give back what a `git gc` took that had looked at the refs before they moved."""
        garbage_collection.outlast(self.repo.common_dir)
        with contextlib.suppress(FileNotFoundError):  # it took the quarantine too: the next `secure` brings what is missing
            if not quarantine.is_migrated(self.place, self.objects):
                quarantine.migrate(self.place, self.objects)

    def check_connected(self, updates: Sequence[Update], known: Sequence[str]) -> None:
        tips = sorted({update.new for update in updates})
        kinds = self.git("cat-file", "--batch-check=%(objecttype)", stdin="".join(f"{tip}\n" for tip in tips).encode()).out.split(b"\n")
        for tip, kind in zip(tips, kinds, strict=False):
            if kind.endswith(b" missing"):
                raise _incomplete(self.repo, f"{tip} did not come with it")
            if kind != b"commit":
                raise _refused(self.repo, f"{tip} is no commit that came with it")
        asked = "".join(f"{tip}\n" for tip in (*tips, *(f"^{oid}" for oid in known)))
        answer = self.git("rev-list", "--objects", "--quiet", "--stdin", stdin=asked.encode(), accept=_ANY)
        if answer.code != 0:
            raise _incomplete(self.repo, last_words(answer.err))


def _check_names(repo: Repository, updates: Sequence[Update], known: Sequence[str]) -> None:
    """Their form alone: lines of ours must not become other lines of git's."""
    oid = re.compile(f"[0-9a-f]{{{len(repo.head)}}}")
    refs_fit = all(update.ref.startswith("refs/") and "\0" not in update.ref for update in updates)
    oids = [*known, *(update.new for update in updates), *(update.old for update in updates if update.old)]
    if not updates or not refs_fit or not all(map(oid.fullmatch, oids)):
        raise _refused(repo, "a ref or an object is named wrongly")


def _count(file: IO[bytes]) -> int:
    """How many objects the pack's header promises; -1 when it is no pack."""
    header = os.pread(file.fileno(), 12, 0)
    return int.from_bytes(header[8:], "big") if len(header) == 12 and header.startswith(b"PACK") else -1


def _incomplete(repo: Repository, why: str) -> Incomplete:
    return Incomplete("not all of what came out of a sandbox is there", on=str(repo.root), why=why)


def _refused(repo: Repository, why: str) -> Refused:
    return Refused("what came out of a sandbox was not taken", on=str(repo.root), why=why)


@contextlib.contextmanager
def _explained(repo: Repository) -> Iterator[None]:
    try:
        with wrap_os_errors(repo.common_dir / "objects"):
            yield
    except NightcrewError as error:
        error.kept = error.kept or "no ref moved; the commits stay where they were made"
        raise
