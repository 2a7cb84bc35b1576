"""Take commits out of a sandbox."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from supervisor.host import files
from supervisor.host.failpoint import failpoint
from supervisor.host.files import disk_full, free_bytes
from supervisor.host.scratch import locked_directory
from supervisor.host.untrusted_fs import open_plain
from supervisor.kernel.errors import DiskFull, NightcrewError, Refused, ToolFailed, ToolHung
from supervisor.kernel.format import duration
from worktrees import changes, git, repository
from worktrees.changes import Changes
from worktrees.git import BULK_S, Answer, Bounds, Place, last_words, wrap_os_errors
from worktrees.repository import Repository, Update

# Garbage collection
# ------------------
# A `git gc` of the person's beside us: with `--prune=now` it takes what no ref named when it looked.


OUTLAST_S = 2.0
"""Seconds to wait for a `git gc` that began before refs moved. One that takes longer looks at the refs again before it deletes."""
_POLL_S = 0.02


def is_collecting(common_dir: Path) -> bool:
    """Whether a `git gc` runs in the repository: it says so in a file for as long as it does."""
    try:
        with open_plain(common_dir / "gc.pid") as file:
            pid = int(file.read(100).split()[0])
        os.kill(pid, 0)
    except PermissionError:
        return True  # somebody else's
    except (OSError, ValueError, IndexError, OverflowError):
        return False
    return True


def outlast(common_dir: Path) -> None:
    """Return when no `git gc` runs that may not have seen the refs of now."""
    until = time.monotonic() + OUTLAST_S
    while is_collecting(common_dir) and time.monotonic() < until:
        time.sleep(_POLL_S)


def check_kept(repo: Repository, commits: Sequence[str], known: str) -> None:
    """Raises ToolFailed when a collection took an object of `commits`, which refs name now, that `known` does not have."""
    outlast(repo.common_dir)
    repo.run("rev-list", "--objects", "--quiet", *commits, f"^{known}", deadline_s=BULK_S)


# Quarantine
# ----------
# A directory for foreign objects until they are checked, and how they then get into the object store.
#
# Laid out as git's own (`tmp_objdir`): objects are unpacked into it by a git that has it for its object directory and the store for
# an alternate. Nobody else sees them there.


_PREFIX = "nightcrew-incoming-"  # not as git's own `tmp_objdir`: a person's `git gc --prune=now` takes whatever begins with tmp_
_KEEP = "nightcrew "
_FANOUT = re.compile(r"[0-9a-f]{2}")
_LOOSE = re.compile(r"[0-9a-f]{38}|[0-9a-f]{62}")
_GIVE_TRIES = 8
_PACK_PARTS = (".keep", ".pack", ".rev", ".idx")  # a reader looks for .idx: it comes last


@contextlib.contextmanager
def quarantine(objects: Path) -> Iterator[Path]:
    """A directory that is locked as long as this process needs it, and gone afterwards; what killed processes of ours left goes first."""
    with locked_directory(objects, _PREFIX) as place:
        _sweep_marks(objects)
        yield place


def _sweep_marks(objects: Path) -> None:
    """Remove what killed processes of ours left on packs."""
    for keep in (objects / "pack").glob("*.keep"):
        with contextlib.suppress(OSError):
            if not (objects / (_keeper(keep) or ".")).exists():
                keep.unlink()


def environment(place: Path, objects: Path) -> Mapping[str, str]:
    """What makes a git write into the quarantine and read the store beside it. Quoted: a colon in the path would part it."""
    quoted = str(objects).replace("\\", "\\\\").replace('"', '\\"')
    return {"GIT_OBJECT_DIRECTORY": str(place), "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'}


def keep_option(place: Path) -> str:
    """For `index-pack`: no repack of a person's takes the pack away, until `let_go`."""
    return f"--keep={_KEEP}{place.name}"


def _keeper(keep: Path) -> str:
    """The name of the quarantine that a pack is kept for; "" when the mark is not ours."""
    with keep.open("rb") as file:
        text = os.fsdecode(file.read(256)).strip()
    return text.removeprefix(_KEEP) if text.startswith(_KEEP + _PREFIX) else ""


def let_go(place: Path, objects: Path) -> None:
    """Let git repack what came: it has a ref now, or none."""
    for keep in (place / "pack").glob("*.keep"):
        with contextlib.suppress(OSError):
            if _keeper(objects / "pack" / keep.name) == place.name:
                (objects / "pack" / keep.name).unlink()


def migrate(place: Path, objects: Path) -> None:
    """Give every file of the quarantine its name in the store. What is there already stays: the same name is the same object."""
    touched = set()
    for shard in _shards(place):
        for file in _files(shard):
            if _give(file, objects, shard.name):
                touched.add(objects)
            touched.add(objects / shard.name)
    for directory in sorted(touched):
        with contextlib.suppress(FileNotFoundError):  # a person's git packed what it held
            _sync(directory)


def is_migrated(place: Path, objects: Path) -> bool:
    """Whether the store has every file of the quarantine. What was packed since counts as missing."""
    return all((objects / shard.name / file.name).exists() for shard in _shards(place) for file in _files(shard))


def _shards(place: Path) -> list[Path]:
    """Its directories of objects; what a git that failed left beside them is no object."""
    return sorted(shard for shard in place.iterdir() if shard.is_dir() and (shard.name == "pack" or _FANOUT.fullmatch(shard.name)))


def _files(shard: Path) -> list[Path]:
    """In the order in which the store may get them."""
    if _FANOUT.fullmatch(shard.name):
        return [file for file in shard.iterdir() if _LOOSE.fullmatch(file.name)]
    parts = [file for file in shard.iterdir() if file.name.startswith("pack-") and file.suffix in _PACK_PARTS]
    return sorted(parts, key=lambda file: _PACK_PARTS.index(file.suffix))


def _give(file: Path, objects: Path, shard: str) -> bool:
    """Whether the directory was made for it. A person's `git gc` removes one that is empty, even one of a moment ago."""
    if file.suffix in {".idx", ".rev"}:
        _sync(file)  # not part of `core.fsync=committed`, but a pack whose index is empty after a power cut is none
    made, target = False, objects / shard / file.name
    for left in reversed(range(_GIVE_TRIES)):
        made |= _give_directory(objects, shard)
        try:
            _link_or_copy(file, target)
        except FileNotFoundError:
            if left and file.exists():
                continue
            raise
        break
    return made


def _give_directory(objects: Path, name: str) -> bool:
    """Whether it was made; with the mode of the store, which `core.sharedRepository` may have chosen."""
    try:
        (objects / name).mkdir()
    except FileExistsError:
        return False
    with contextlib.suppress(FileNotFoundError):
        (objects / name).chmod(objects.stat().st_mode & 0o7777)
    return True


def _link_or_copy(file: Path, target: Path) -> None:
    try:
        target.hardlink_to(file)
    except FileExistsError:
        return
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without links
        _copy_to(file, target)


def _copy_to(file: Path, target: Path) -> None:
    handle, name = tempfile.mkstemp(prefix="tmp_obj_", dir=target.parent)
    try:
        with file.open("rb") as data, os.fdopen(handle, "wb") as out:
            shutil.copyfileobj(data, out)
            os.fchmod(out.fileno(), file.stat().st_mode & 0o7777)
            out.flush()
            os.fsync(out.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Intake
# ------
# Takes commits out of a sandbox, as `git receive-pack` takes a stranger's push.
#
# Whoever sends may be the agent. So nothing of theirs is named, moved or kept before it is judged, in this order:
#
# 1. The pack is copied into a quarantine, a directory of ours in the repository's own `objects` that no other git reads: bounded in
# bytes and in time. 2. git unpacks it there, `--strict`: every object is parsed, every link leads to an object. Its memory and its
# files are bounded. 3. Each new tip is a commit, and all that it reaches is there, up to commits that the repository had. 4. The
# refs still stand where they are expected. 5. The files of the quarantine get their second names in the object store, in git's
# order (`tmp_objdir_migrate`). 6. All refs move, in one transaction.
#
# A process of ours that is killed leaves its quarantine, which the next `take` in this repository removes; after step 5 also
# objects that nothing names, which are git's to prune.
#
# A pack that stays one is protected from a person's `git repack` by a `.keep` until its ref has moved, as git does it. Loose
# objects are not: a `git gc --prune=now` that has read the refs before step 6, and deletes after step 5, takes them away. So while
# one runs every pack stays one; and when one came meanwhile, its end is waited for and what is missing gets its second name again.
# A bare `git prune --expire=now` says to nobody that it runs: what it takes in that moment is missing, as in any push, until the
# attempt is secured again.


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
    with _explained(repo), quarantine(repo.common_dir / "objects") as place:
        intake = _Intake(repo, place, time.monotonic() + deadline_s)
        intake.receive(pack, is_still)
        failpoint("intake.unpacked")
        intake.check_connected(updates, known)
        repository.compare_all(repo, updates)
        failpoint("intake.connected")
        try:
            migrate(place, intake.objects)
            failpoint("intake.migrated")
            repository.move_all(repo, updates, why)
            failpoint("intake.moved")
            intake.outlast_collection()
        finally:
            let_go(place, intake.objects)


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
        return self.repo.run(
            *argv,
            stdin=stdin,
            env=environment(self.place, self.objects),
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
            why = git.STILL if still else "the pack came to no end in time"
            raise ToolHung("taking commits out of a sandbox was stopped", on=str(self.repo.root), why=why)

    def _copy(self, pack: int, file: IO[bytes], is_still: Callable[[], bool]) -> int:
        room = max((free_bytes(self.place) - RESERVE) // 2, LOOSE_BYTES_MAX)  # git writes as much again
        size, poll = 0, select.poll()
        poll.register(pack, select.POLLIN)
        while True:
            while not poll.poll(git.LOOK_S * 1000):
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
        few = count < LOOSE_BELOW and size <= LOOSE_BYTES_MAX and not is_collecting(self.repo.common_dir)
        if few and self._unpack_loose(file, size, strict):
            return
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        keep = keep_option(self.place)
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
        outlast(self.repo.common_dir)
        with contextlib.suppress(FileNotFoundError):  # it took the quarantine too: the next `secure` brings what is missing
            if not is_migrated(self.place, self.objects):
                migrate(self.place, self.objects)

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


# Storing
# -------
# Writes the leftover files of a worktree, and our commits of them, as git objects.
#
# Files wait in a quarantine until git has stored all that it was given: a git that a full disk ends leaves the part of a file that it had
# written, and with it the disk as full as before.


STORE_S = 300.0
"""Seconds that leftover files may take in all. 50,000 small ones take a twentieth of it."""
FILE_MAX = 4 * 2**30
"""Bytes of a leftover file, holes among them. As much as comes out of a sandbox in one pack (`intake.BYTES_MAX`)."""
RAW_MAX = 16 * 2**20
"""Bytes of a file that git cannot convert as its attributes say, and that is stored as it is."""
HOLES_MAX = 256 * 2**20
"""Bytes of holes in all sparse files that are stored: git reads each of them as a zero, of which it takes 60 to 250 million a second."""
_SPARSE = 8
"""A file is sparse when it uses less than one byte in so many. One that its file system compresses uses more."""
REFUSED_MAX = 1000
"""Names of files that git does not take, of one attempt."""
_IGNORED = "Ignoring path "
"""What `update-index` says, and ends well, of names such as `git~1` or `.GIT`."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A worktree as found: through its own HEAD and index, or, when those are unusable, through the repository's store."""

    place: Place
    index: Path
    """A temporary copy; every verb of the rescue writes here."""
    changes: Changes
    own: bool
    """HEAD and index are the worktree's own."""


class Committer:
    """Writes trees and commits out of one scene."""

    def __init__(self, repo: Repository, scene: Scene, message: bytes) -> None:
        self.repo, self.git = repo, repo.git
        self.scene = scene
        self.refused: list[str] = []
        """Files below the top whose names git does not take, at most REFUSED_MAX."""
        self._message = message
        self._until = time.monotonic() + STORE_S
        self._holes = HOLES_MAX

    def tree(self, notes: list[str]) -> str | None:
        """Tree of the worktree's files as they are now; None when it is that of HEAD."""
        seen = self.scene.changes
        # Hidden files are taken out and put back: only so does git look at them again.
        self._drop((*seen.deleted, *seen.hidden))
        self._add((*seen.tracked, *seen.untracked, *seen.hidden), self.scene.place, self.scene.index, notes)
        tree = self._index("write-tree", "--missing-ok")
        return None if seen.head is not None and tree == self.repo.tree(seen.head) else tree

    def make(self, tree: str, parents: Iterable[str]) -> str:
        """Write a commit by the fixed identity, never signed, with each parent once."""
        return self.repo.write_commit(tree, parents, self._message)

    def with_nested(self, tree: str | None, stand: str, nested: Sequence[bytes], notes: list[str]) -> str | None:
        """`tree`, or that of `stand`, plus the files of nested repositories, which git itself would leave out."""
        if not nested:
            return tree
        self._index("read-tree", tree or self.repo.tree(stand))
        for path in nested:
            self._drop([path])
            self._graft(path, notes)
        return self._index("write-tree", "--missing-ok")

    def _graft(self, path: bytes, notes: list[str]) -> None:
        """Store the files below `path` as if it were an ordinary directory; its own `.git` is neither read nor kept."""
        top = self.scene.place.work_tree or self.scene.place.common_dir
        place = replace(self.scene.place, work_tree=top / os.fsdecode(path))
        index = self.scene.index.with_name("nested")
        index.unlink(missing_ok=True)
        env = {"GIT_INDEX_FILE": str(index)}
        found = self.git.run(place, "ls-files", "-z", "--others", "--exclude-standard", env=env, deadline_s=BULK_S).out
        names = [name for name in found.split(b"\0") if name]
        self._add([name for name in names if not name.endswith(b"/")], place, index, notes)
        tree = self.git.run(place, "write-tree", "--missing-ok", env=env).text
        self._index("read-tree", f"--prefix={os.fsdecode(path)}/", tree)
        is_linked = os.path.isfile(top / os.fsdecode(path) / ".git")  # noqa: PTH113 - a link to one is none
        what = "a worktree" if is_linked else "a repository"
        history = "the commits of its HEAD are too" if is_linked else "its history is not"
        notes.append(f"{_shown(path)} is {what} of its own: its files are on the rescue ref, {history}")
        for deeper in names:
            if deeper.endswith(b"/"):
                self._graft(path + b"/" + deeper.rstrip(b"/"), notes)

    def _add(self, paths: Sequence[bytes], place: Place, index: Path, notes: list[str]) -> None:
        """Put `paths` as they are on disk into `index`. What git does not take is noted, and lies where it was. Raises DiskFull."""
        if paths := self._storable(paths, place, notes):
            self._put(paths, place, index, notes)

    def _put(self, paths: Sequence[bytes], place: Place, index: Path, notes: list[str], *, again: bool = True) -> None:
        """When git refuses, halves find the file. What there is no time for is noted too."""
        if time.monotonic() > self._until:
            notes.append(f"{len(paths)} files from {_shown(paths[0])} on could not be stored in {duration(STORE_S)}")
            return
        try:
            self._note_refused(self._store(paths, place, index), place, notes)
        except (ToolFailed, DiskFull) as error:
            is_full = isinstance(error, DiskFull)
            if is_full and not _fits(paths, place):
                raise
            # There is room: somebody made it a moment ago, or git's words have a name in them that an agent chose.
            middle = len(paths) // 2
            if middle:
                self._put(paths[:middle], place, index, notes)
                self._put(paths[middle:], place, index, notes)
            elif is_full and again:
                self._put(paths, place, index, notes, again=False)
            elif not is_full and self._put_raw(paths[0], place, index):
                notes.append(f"{_shown(paths[0])} is stored byte for byte: git cannot convert it as its attributes say")
            else:
                notes.append(f"{_shown(paths[0])} could not be stored: {error.why}")

    def _put_raw(self, path: bytes, place: Place, index: Path) -> bool:
        """Put a file into `index` without any conversion. False when it cannot be read, is no plain file, is larger than
        RAW_MAX, or git does not take it either."""
        top = place.work_tree
        if top is None:
            return False
        try:
            with open_plain(top / os.fsdecode(path), top) as file:
                data, mode = file.read(RAW_MAX + 1), os.fstat(file.fileno()).st_mode
        except OSError:
            return False
        if len(data) > RAW_MAX:
            return False
        try:
            oid = self.git.run(place, "hash-object", "-w", "--no-filters", "--stdin", stdin=data).text
            entry = f"{'100755' if mode & 0o100 else '100644'} {oid}\t".encode() + path + b"\0"
            self.git.run(place, "update-index", "--add", "--replace", "-z", "--index-info", stdin=entry, env={"GIT_INDEX_FILE": str(index)})
        except ToolFailed:  # the rest of the work is stored all the same
            return False
        return True

    def _store(self, paths: Sequence[bytes], place: Place, index: Path) -> str:
        """What git says of it."""
        argv, objects = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin"), place.common_dir / "objects"
        with quarantine(objects) as held:
            env = {"GIT_INDEX_FILE": str(index), **environment(held, objects)}
            said = self.git.run(place, *argv, stdin=_joined(paths), env=env, deadline_s=BULK_S).err
            migrate(held, objects)
        return said

    def _note_refused(self, said: str, place: Place, notes: list[str]) -> None:
        names = [line.removeprefix(_IGNORED) for line in said.splitlines() if line.startswith(_IGNORED)]
        top = self.scene.place.work_tree
        below = place.work_tree.relative_to(top) if place.work_tree is not None and top is not None else Path()
        known = len(self.refused)
        self.refused += [str(below / name) for name in names[: REFUSED_MAX - known]]
        if (left := len(names) - (REFUSED_MAX - known)) > 0:
            notes.append(f"{left} more files were not stored, whose names git does not take; they lie where they were")

    def _storable(self, paths: Sequence[bytes], place: Place, notes: list[str]) -> list[bytes]:
        """All but what is larger than any repository should hold, and sparse files beyond HOLES_MAX: git would read every hole."""
        found, left = [], 0
        for path in paths:
            why = self._too_large(place.top / os.fsdecode(path))
            if not why:
                found.append(path)
            elif (left := left + 1) <= changes.SHOWN:
                notes.append(f"{_shown(path)} is {why}: it was not stored and lies where it was")
        notes += [f"{left - changes.SHOWN} more like these"] if left > changes.SHOWN else []
        return found

    def _too_large(self, path: Path) -> str:
        size, used = _sizes(path)
        if size > FILE_MAX:
            return f"of {size} bytes ({used} used), more than {FILE_MAX}"
        holes = size - used if used * _SPARSE < size else 0
        if holes > self._holes:
            return f"sparse, of {size} bytes ({used} used): all such files may have {HOLES_MAX} bytes of holes"
        self._holes -= holes
        return ""

    def _drop(self, paths: Sequence[bytes]) -> None:
        if paths:
            self._index("update-index", "-z", "--force-remove", "--stdin", stdin=_joined(paths))

    def _index(self, *argv: str, stdin: bytes = b"") -> str:
        env = {"GIT_INDEX_FILE": str(self.scene.index)}
        return self.git.run(self.scene.place, *argv, stdin=stdin, env=env, deadline_s=BULK_S).text


def _sizes(path: Path) -> tuple[int, int]:
    """Bytes that it has, and bytes that it uses on the disk."""
    try:
        seen = path.lstat()
    except OSError:  # gone, or closed to us: git says so too
        return 0, 0
    return seen.st_size, seen.st_blocks * 512


def _fits(paths: Sequence[bytes], place: Place) -> bool:
    """Whether there is room for as much as the files use, which is the most that git makes of them, and for what it writes beside."""
    used = sum(_sizes(place.top / os.fsdecode(path))[1] for path in paths)
    objects = place.common_dir / "objects"
    return not files.is_full(objects) and used + used // 64 + files.HARDLY_ANY < files.free_bytes(objects)


def _joined(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
