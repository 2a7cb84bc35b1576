"""The work branch of a task: made, moved, and judged; and the first rescue ref of an attempt, made in the same way.

A new one is written as git's files backend writes one: a process less, which is half of the time that a warm environment takes.

The name is linked to a finished file, so that every git that runs beside us sees the branch whole or not at all, and of two that make the
same branch one loses. git's own lock is respected and not taken: a kill would leave it. (A git that makes the very same branch between
our look at its lock and our link wins over us; the names are ours, so none does.) What this cannot do, because of how the repository is
kept or of what is there already, is left to git.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from supervisor.core.errors import Refused, ToolFailed
from supervisor.core.records import branch_name, tips_ref
from supervisor.host import placement
from supervisor.host.foreign import Folder, folder
from worktrees import refs
from worktrees.failures import wrap_os_errors
from worktrees.hardening import IDENTITY
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
    ref = f"{refs.HEADS}/{branch}"
    with wrap_os_errors(repo.common_dir / ref):
        refs.clear(repo, ref)
        # Not so when a ref stands where a directory must be, or git removed the empty directory meanwhile.
        with contextlib.suppress(FileExistsError, NotADirectoryError, FileNotFoundError), _room(repo, refs.HEADS, branch) as here:
            return _is_written(repo, here, ref, oid, why)
    return False


def write_rescue(repo: Repository, ref: str, oid: str) -> bool:
    """Make the rescue ref `ref` at commit `oid`, which is there; it is on the disk then, and in no log, as git would have it. False as
    `write_new`. Raises DiskFull or HostError."""
    if is_unusual(repo):
        return False
    above, _, name = ref.rpartition("/")
    with (
        wrap_os_errors(repo.common_dir / ref),
        contextlib.suppress(FileExistsError, NotADirectoryError, FileNotFoundError),
        repo.git.moving(repo.common_dir, [(ref, oid)]),
        folder(repo.common_dir, above, make=True) as here,
    ):
        if _is_taken(repo, here, ref):
            return False
        fresh = here.draft(name, f"{oid}\n".encode(), sync=True)
        try:
            return here.link(fresh, name)
        finally:
            here.remove(fresh)
    return False


def _is_taken(repo: Repository, here: Folder, ref: str) -> bool:
    name = ref.rpartition("/")[2]
    return bool(here.look(f"{name}.lock") or here.look(name)) or _is_packed(repo, ref)


def _is_written(repo: Repository, here: Folder, ref: str, oid: str, why: str) -> bool:
    if _is_taken(repo, here, ref):
        return False
    name = ref.rpartition("/")[2]
    fresh = here.draft(name, f"{oid}\n".encode())  # no ref: git passes over what begins with a dot
    line = f"{'0' * len(oid)} {oid} nightcrew <nightcrew@localhost> {int(time.time())} +0000\t{why}\n"
    try:
        with _room(repo, f"logs/{refs.HEADS}", ref.removeprefix(f"{refs.HEADS}/")) as logs:
            # Not so when the log of another branch is in the way, when somebody was faster, or where the file system has no links.
            return logs.append(name, line.encode()) and here.link(fresh, name)
    finally:
        here.remove(fresh)


@contextlib.contextmanager
def _room(repo: Repository, area: str, branch: str) -> Iterator[Folder]:
    """The directory `.../nightcrew/RUN/TASK` of a branch. Runs come and go: each one's directory lies on its own (`placement.spread`)."""
    top, above = repo.common_dir / area, branch.rpartition("/")[0]
    ours = above.partition("/")[0]
    top.mkdir(parents=True, exist_ok=True)
    if ours == _OURS and not (top / above).parent.is_dir():
        with folder(top, ours, make=True):
            placement.spread(top / ours)
    with folder(top, above, make=True) as here:
        yield here


def _is_packed(repo: Repository, ref: str) -> bool:
    """Whether packed-refs has the ref, one below it, or one that is a directory of it; when in doubt it has."""
    with folder(repo.common_dir) as here:
        if here.look("packed-refs") is None:
            return False
        listed = here.read("packed-refs", _PACKED_MAX + 1, linked=True)
    if listed is None or len(listed) > _PACKED_MAX:
        return True
    parts = ref.split("/")
    above = ["/".join(parts[:length]) for length in range(3, len(parts))]
    names = "|".join([re.escape(ref) + "(?:/.*)?", *map(re.escape, above)])
    return re.search(rf"^[0-9a-f]+ (?:{names})$".encode(), listed, re.MULTILINE) is not None


def take(repo: Repository, task: str, epoch: int, base: str, detach: Callable[[str, Path], None]) -> str:
    """Set the work branch to `base`, free for a new worktree. Returns the oid it had before, or "" when it is new.

    `detach(tip, holder)` takes it away from the worktree at `holder`, or refuses. Raises Refused when it holds other work, ToolFailed.
    """
    if write_new(repo, branch_name(task), base, f"nightcrew: {task}"):
        return ""
    try:
        move(repo, task, base, "")
    except ToolFailed as error:
        found = find(repo, task)
        if found is None:
            raise in_the_way(repo, task, error) from error
        tip, holder = found
    else:
        return ""
    if holder is not None:
        detach(tip, holder)
    if tip == base:
        return "" if epoch == 1 else tip
    if epoch == 1 or not is_safe(repo, task, tip, base):
        if epoch > 1 and holder is not None:  # an older attempt's own, which could not be secured
            _keep(repo, tips_ref(task, epoch - 1), tip)
            move(repo, task, base, tip)
            return tip
        raise Refused(
            "the branch of this task already holds other work",
            on=branch_name(task),
            why=f"it stands at {tip[:12]}, which no rescue ref of this task keeps",
            kept="the branch",
            hint=f"git branch -m {branch_name(task)} kept/{task}",
        )
    move(repo, task, base, tip)
    return tip


def _keep(repo: Repository, ref: str, tip: str) -> None:
    """Let `ref` reach `tip`, which an attempt that could not be secured left on the branch."""
    old = repo.git.run(repo.store, "for-each-ref", "--format=%(objectname)", ref).text
    if old:
        argv = ("commit-tree", f"{tip}^{{tree}}", "-p", tip, "-p", old, "-m", "nightcrew: left by an attempt that was not secured")
        tip = repo.git.run(repo.store, *argv, env=IDENTITY).text
    refs.move(repo, ref, tip, old, "nightcrew: the next attempt takes the branch")


def find(repo: Repository, task: str) -> tuple[str, Path | None] | None:
    """Commit of the work branch and the worktree that has it checked out."""
    ref = f"refs/heads/{branch_name(task)}"
    answer = refs.over_all(repo, "for-each-ref", "--format=%(objectname) %(worktreepath)", ref)
    if not answer.text:
        return None
    tip, _, holder = answer.text.partition(" ")
    return tip, Path(holder) if holder else None


def move(repo: Repository, task: str, to: str, expected: str) -> None:
    """Compare and swap: `expected` "" means the branch must not exist, `to` "" means delete it."""
    refs.move(repo, f"{refs.HEADS}/{branch_name(task)}", to, expected, f"nightcrew: {task}")


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
