"""Writes the leftover files of a worktree, and our commits of them, as git objects.

Files wait in a quarantine until git has stored all that it was given: a git that a full disk ends leaves the part of a file that it had
written, and with it the disk as full as before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.host import files
from supervisor.host.untrusted_fs import open_plain
from supervisor.kernel.errors import DiskFull, ToolFailed
from supervisor.kernel.format import duration
from worktrees import changes, pack_import
from worktrees.changes import Changes
from worktrees.git import BULK_S, Place
from worktrees.repository import Repository

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
        with pack_import.quarantine(objects) as held:
            env = {"GIT_INDEX_FILE": str(index), **pack_import.environment(held, objects)}
            said = self.git.run(place, *argv, stdin=_joined(paths), env=env, deadline_s=BULK_S).err
            pack_import.migrate(held, objects)
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
