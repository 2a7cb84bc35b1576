"""The work branch of a task: made, moved, and judged.

A new one is written as git's files backend writes one: a process less, which is half of the time that a warm environment takes.

The name is linked to a finished file, so that every git that runs beside us sees the branch whole or not at all, and of two that make the
same branch one loses. git's own lock is respected and not taken: a kill would leave it. (A git that makes the very same branch between
our look at its lock and our link wins over us; the names are ours, so none does.) What this cannot do, because of how the repository is
kept or of what is there already, is left to git.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from pathlib import Path

from supervisor.core.errors import Refused, ToolFailed
from supervisor.core.records import branch_name
from supervisor.host import placement
from worktrees.git import wrap_os_errors
from worktrees.registration import is_unusual
from worktrees.repository import Repository

_PACKED_MAX = 64 * 2**20
_OURS = branch_name("").partition("/")[0]


def write_new(repo: Repository, branch: str, oid: str, why: str) -> bool:
    """Make `branch` (a short name that git allows) at commit `oid`; False when it must be left to git: nothing was done then.

    Hold the repository's lock. Raises DiskFull or HostError.
    """
    if is_unusual(repo):
        return False
    ref = f"refs/heads/{branch}"
    file = repo.common_dir / ref
    fresh = file.with_name(f".{file.name}.new")  # no ref: git passes over what begins with a dot
    with wrap_os_errors(file):
        if not _is_written(fresh, oid):
            return False
        try:
            if file.with_name(f"{file.name}.lock").exists() or os.path.lexists(file) or _is_packed(repo.common_dir / "packed-refs", ref):
                return False
            line = f"{'0' * len(oid)} {oid} nightcrew <nightcrew@localhost> {int(time.time())} +0000\t{why}\n"
            return _is_logged(repo.common_dir / "logs" / ref, line) and _is_linked(fresh, file)
        finally:
            fresh.unlink(missing_ok=True)


def _is_written(fresh: Path, oid: str) -> bool:
    """Not so when a ref stands where a directory must be, or git removed the empty directory meanwhile."""
    with contextlib.suppress(FileExistsError, NotADirectoryError, FileNotFoundError):
        _make_room(fresh.parent)
        fresh.write_text(f"{oid}\n")
        return True
    return False


def _make_room(directory: Path) -> None:
    """Make `.../nightcrew/RUN/TASK`. Runs come and go: each one's directory lies on its own (`placement.spread`)."""
    ours = directory.parents[1]
    if not directory.parent.is_dir() and ours.name == _OURS:
        ours.mkdir(parents=True, exist_ok=True)
        placement.spread(ours)
    directory.mkdir(parents=True, exist_ok=True)


def _is_linked(fresh: Path, file: Path) -> bool:
    """Not so when somebody was faster, or the file system has no links."""
    try:
        os.link(fresh, file)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            return False
        raise
    return True


def _is_packed(packed: Path, ref: str) -> bool:
    """Whether packed-refs has the ref, one below it, or one that is a directory of it; when in doubt it has."""
    try:
        if packed.stat().st_size > _PACKED_MAX:
            return True
        listed = packed.read_bytes()
    except FileNotFoundError:
        return False
    parts = ref.split("/")
    above = ["/".join(parts[:length]) for length in range(3, len(parts))]
    names = "|".join([re.escape(ref) + "(?:/.*)?", *map(re.escape, above)])
    return re.search(rf"^[0-9a-f]+ (?:{names})$".encode(), listed, re.MULTILINE) is not None


def _is_logged(log: Path, line: str) -> bool:
    """Whether the line could be added; not so when the log of another branch is in the way."""
    try:
        _make_room(log.parent)
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except (FileExistsError, NotADirectoryError, IsADirectoryError, FileNotFoundError):
        return False
    with os.fdopen(handle, "a") as out:
        out.write(line)
    return True


def find(repo: Repository, task: str) -> tuple[str, Path | None] | None:
    """Commit of the work branch and the worktree that has it checked out."""
    ref = f"refs/heads/{branch_name(task)}"
    answer = repo.git.run(repo.store, "for-each-ref", "--format=%(objectname) %(worktreepath)", ref)
    if not answer.text:
        return None
    tip, _, holder = answer.text.partition(" ")
    return tip, Path(holder) if holder else None


def move(repo: Repository, task: str, to: str, expected: str) -> None:
    """Compare and swap: `expected` "" means the branch must not exist, `to` "" means delete it."""
    ref = f"refs/heads/{branch_name(task)}"
    if to:
        repo.git.run(repo.store, "update-ref", "-m", f"nightcrew: {task}", ref, to, expected)
    else:
        repo.git.run(repo.store, "update-ref", "-d", ref, expected)


def is_safe(repo: Repository, task: str, tip: str, base: str) -> bool:
    """Whether moving the branch off `tip` loses nothing: a rescue ref of this task, or the base itself, reaches it."""
    if repo.git.run(repo.store, "for-each-ref", "--count=1", "--contains", tip, f"refs/nightcrew/rescue/{task}").text:
        return True
    return repo.git.run(repo.store, "merge-base", "--is-ancestor", tip, base, accept=(0, 1)).code == 0


def in_the_way(repo: Repository, task: str, error: ToolFailed) -> Refused | ToolFailed:
    """What to say when the branch could not be made. A branch called `nightcrew` or `nightcrew/<run>` leaves no room for ours below it."""
    parts = branch_name(task).split("/")
    for length in range(1, len(parts)):
        name = "/".join(parts[:length])
        if repo.git.run(repo.store, "for-each-ref", f"refs/heads/{name}", "--format=%(refname)").text == f"refs/heads/{name}":
            return Refused(
                "a branch of yours is in the way",
                on=name,
                why=f"git cannot hold {branch_name(task)} beside it",
                kept="the branch",
                hint=f"git branch -m {name} {name}-old",
            )
    return error
