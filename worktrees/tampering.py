"""Notices changes of what git obeys in a repository (configuration, hooks and attributes), and of rescue refs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from supervisor.host.foreign import open_plain
from worktrees import refs
from worktrees.repository import Repository

_READ_MAX = 2**20
_RESCUE = "refs/nightcrew/"
_PAUSE = 19
"""The pause between two looks, as a multiple of how long a look takes."""
_FEW = 1_000
"""Rescue refs that are looked at each time: git lists so many loose ones in 20 ms of processor time."""
_RACY_NS = 2 * 10**9
"""A file that changed so short ago may change again without another stamp."""
_DIGESTS_MAX = 10_000
_UNREADABLE = "unreadable"
_digests: dict[str, tuple[tuple[int, ...], str]] = {}
_FILES = ("config", "config.worktree", "info/attributes", "info/exclude", "info/grafts", "objects/info/alternates")


def config_guard(repo: Repository) -> dict[str, str]:
    """A fingerprint: name of each file that steers git (relative to the common directory) -> digest of its kind, mode and text.

    Symbolic links count by where they point and are not followed; of a file beyond 1 MiB the size and time count as well.
    """
    common, found = repo.common_dir, dict[str, str]()
    for name in (*_FILES, *_hooks(common)):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found[name] = _digest(f"{common}/{name}")
    return found


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Names that were added, removed or altered between two fingerprints, sorted."""
    return tuple(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))


def _hooks(common: Path) -> Iterator[str]:
    hooks = common / "hooks"
    if hooks.is_symlink():
        yield "hooks"
        return
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(hooks) as entries:
        yield from sorted(f"hooks/{entry.name}" for entry in entries)


def _digest(file: str) -> str:
    """A file that stands as it stood is not read again: whoever writes to one changes its times. Raises OSError when there is none."""
    seen, now = os.lstat(file), time.time_ns()
    stamp = (seen.st_dev, seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    known = _digests.get(file)
    if known is not None and known[0] == stamp:
        return known[1]
    digest = _read_digest(Path(file), seen)
    _digests.pop(file, None)
    if 0 < seen.st_ctime_ns < now - _RACY_NS and not digest.startswith(_UNREADABLE):
        _digests[file] = stamp, digest
        while len(_digests) > _DIGESTS_MAX:
            _digests.pop(next(iter(_digests)), None)
    return digest


def _read_digest(file: Path, seen: os.stat_result) -> str:
    facts = f"{seen.st_mode:o}"
    if stat.S_ISLNK(seen.st_mode):
        return _hash(facts, os.fsencode(file.readlink()))
    if not stat.S_ISREG(seen.st_mode):
        return _hash(facts, b"")
    if seen.st_size > _READ_MAX:
        facts += f" {seen.st_size} {seen.st_mtime_ns}"
    try:
        with open_plain(file) as data:
            return _hash(facts, data.read(_READ_MAX))
    except OSError as error:
        return f"{_UNREADABLE}: {error.strerror}"


def _hash(facts: str, data: bytes) -> str:
    return hashlib.sha256(facts.encode() + b"\0" + data).hexdigest()


class RefGuard:
    """Notices that a rescue ref was moved or removed, and not by us. Safe to use from several threads.

    A look costs as much as there are rescue refs. Where these are many and looking would take more than a twentieth of the time, it is
    left to a later one, which then may say it of a later attempt.
    A repository whose git hangs keeps no other's refs from being moved.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._watched: dict[Path, _Watched] = {}

    def _of(self, common_dir: Path) -> _Watched:
        return self._watched.setdefault(common_dir, _Watched())

    @contextlib.contextmanager
    def moving(self, common_dir: Path, updates: list[tuple[str, str]]) -> Iterator[None]:
        """For `Git.moving`."""
        watched = self._of(common_dir)
        with watched.lock:
            watched.moving.append(updates)
        try:
            yield
            watched.learn(updates)
        except BaseException:
            watched.learn([(ref, "") for ref, _ in updates])  # nobody knows which moved
            raise
        finally:
            with watched.lock:
                watched.moving.remove(updates)

    def begin(self, repo: Repository) -> None:
        """From now on, at the latest, changes in this repository are noticed. Raises as `Git.run`."""
        watched = self._of(repo.common_dir)
        with watched.lock:
            if watched.known is None:
                watched.known = _rescue_refs(repo)

    def changed(self, repo: Repository) -> tuple[str, ...]:
        """Rescue refs that somebody else changed since the last look, sorted. Raises as `Git.run`."""
        watched = self._of(repo.common_dir)
        with watched.lock:
            before, began = watched.known, self._monotonic()
            if before is None or began < watched.not_before:
                return ()
            now = watched.known = _rescue_refs(repo)
            ended = self._monotonic()
            watched.not_before = ended + _PAUSE * (ended - began) if len(now) > _FEW else ended
            ours = {ref for updates in watched.moving for ref, _ in updates}
            return tuple(sorted(ref for ref, oid in before.items() if now.get(ref) != oid and ref not in ours))


class _Watched:
    """What is known of one repository."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.known: dict[str, str] | None = None
        """Its rescue refs; None before anybody asked."""
        self.moving: list[list[tuple[str, str]]] = []
        self.not_before = 0.0

    def learn(self, updates: list[tuple[str, str]]) -> None:
        """Note moves that we made ourselves; "" is a ref that is gone, or one whose place nobody knows."""
        with self.lock:
            if self.known is not None:
                for ref, new in updates:
                    self.known.pop(ref, None)
                    if new and ref.startswith(_RESCUE):
                        self.known[ref] = new


def _rescue_refs(repo: Repository) -> dict[str, str]:
    listed = refs.over_all(repo, "for-each-ref", "--format=%(refname) %(objectname)", _RESCUE)
    return dict(line.rsplit(" ", 1) for line in os.fsdecode(listed.out).splitlines())
