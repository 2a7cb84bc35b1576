"""One attempt's worktree: made so that a crash at any step leaves nothing behind, opened only when nobody rewired it.

The order is what makes it safe. git writes the worktree's `locked` file before anything else of it, so a reason of ours in
that file says whose half-made worktree this is. The reason changes to its final text only when every file is in place:

    branch created (compare-and-swap) -> `worktree add --no-checkout --lock` -> files -> reason "owned"

Only the first two steps hold the repository's lock. A worktree whose reason still says "being made" was never handed out, so
no agent's work can be in it and `create` may clear it away; anything else is kept.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.errors import HostError, NotFound, Refused, Tampered, ToolFailed
from supervisor.core.records import attempt_name, branch_name, rescue_ref
from supervisor.host import placement
from worktrees.git import BULK_S, Place, open_plain, wrap_os_errors, write_atomically
from worktrees.repository import Repository

_COMMONDIR = b"../..\n"
_LINK_MAX = 8192


@dataclass(frozen=True, slots=True)
class Environment:
    """One attempt's files. Everything but `repo` is a line in the ledger; the whole is rebuilt from there."""

    repo: Repository
    task: str
    epoch: int
    path: Path
    """`<root>/<run>/<slug>.<epoch>`"""
    admin_dir: Path
    """git's own directory for this worktree, below the repository's common directory."""
    branch: str
    """Short name of the work branch."""
    base: str
    """Commit it started from."""

    @property
    def name(self) -> str:
        return attempt_name(self.task, self.epoch)

    @property
    def branch_ref(self) -> str:
        return f"refs/heads/{self.branch}"

    @property
    def rescue_ref(self) -> str:
        return rescue_ref(self.task, self.epoch)

    @property
    def place(self) -> Place:
        """For verbs in the worktree; call `open_env` first."""
        return Place(self.admin_dir, self.repo.common_dir, self.path)


def environment_path(root: Path, task: str, epoch: int) -> Path:
    """Where the worktree of an attempt lies; two attempts never share it."""
    run, _, slug = task.partition("/")
    return Path(os.path.realpath(root)) / run / f"{slug}.{epoch}"


def create(repo: Repository, task: str, epoch: int, base: str, root: Path) -> Environment:
    """The attempt's worktree on its own branch at commit `base`, populated, and locked until `release`.

    Calling it again for the same attempt is safe: a finished worktree is returned as it is, a half-made one is made anew.
    A retry takes the branch over from the older attempt's worktree once its commits are reachable from a rescue ref.
    Raises Refused (branch or place belongs to something else: it names the holder), DiskFull, ToolFailed; after an error
    neither branch, directory nor administration of this attempt is left.
    """
    path = environment_path(root, task, epoch)
    _refuse_inside(repo, path)
    with repo.git.lock(repo.common_dir):
        admin = _find(repo, path, task, epoch)
        if admin is not None and not _is_half_made(admin, task, epoch):
            return open_env(Environment(repo, task, epoch, path, admin, branch_name(task), base))
        _clear(path, admin)
        _refuse_occupied(path)
        before = _take_branch(repo, task, epoch, base, root)
        with _undone_on_error(repo, task, epoch, base, path, before):
            env = _add(repo, task, epoch, base, path)
    with _undone_on_error(repo, task, epoch, base, path, before, locked=False):
        repo.git.run(env.place, "read-tree", "-m", "-u", "--end-of-options", base, deadline_s=BULK_S)
        with wrap_os_errors(env.admin_dir):
            write_atomically(env.admin_dir / "locked", _owned(task, epoch))
    return env


def open_env(env: Environment) -> Environment:
    """`env`, once its three links are what git wrote when we made it.

    Raises NotFound when the directory or git's record of it is gone, Tampered when a link points elsewhere: git would then
    read a repository that somebody else prepared.
    """
    if not env.path.is_dir():
        raise NotFound("the worktree is missing", on=str(env.path), why="somebody removed it", kept=f"branch {env.branch}")
    check_admin(env)
    if _read_link(env.path / ".git") != b"gitdir: " + os.fsencode(env.admin_dir) + b"\n":
        raise _tampered(env, env.path / ".git")
    return env


def check_admin(env: Environment) -> None:
    """The half of `open_env` that an agent's own repository in the same directory does not concern. Raises as `open_env`."""
    if not env.admin_dir.is_dir():
        raise NotFound(
            "git no longer knows the worktree",
            on=str(env.path),
            why="the repository was moved, or the worktree was pruned",
            kept="its files",
            hint="git worktree repair (in the repository, at its new place)",
        )
    if _read_link(env.admin_dir / "commondir") != _COMMONDIR:
        raise _tampered(env, env.admin_dir / "commondir")
    if _read_link(env.admin_dir / "gitdir") != os.fsencode(env.path) + b"/.git\n":
        raise _tampered(env, env.admin_dir / "gitdir")


def release(env: Environment) -> None:
    """The attempt no longer owns the worktree: unlock it. Does nothing when it is not locked by this attempt."""
    if _lock_reason(env.admin_dir) == _owned(env.task, env.epoch):
        (env.admin_dir / "locked").unlink(missing_ok=True)


def is_locked(env: Environment) -> bool:
    """Whether anybody, an attempt or a person, locked the worktree."""
    return os.path.lexists(env.admin_dir / "locked")


def _add(repo: Repository, task: str, epoch: int, base: str, path: Path) -> Environment:
    branch = branch_name(task)
    reason = os.fsdecode(_making(task, epoch))
    with wrap_os_errors(path.parent):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        placement.spread(path.parent)
    # The branch exists already, so nothing is tracked and no configuration is written: see `_take_branch`.
    repo.git.run(repo.store, "worktree", "add", "--no-checkout", "--lock", "--reason", reason, str(path), branch)
    link = _read_link(path / ".git")
    admin = Path(os.fsdecode(link.removeprefix(b"gitdir: ").removesuffix(b"\n")))
    return open_env(Environment(repo, task, epoch, path, admin, branch, base))


@contextlib.contextmanager
def _undone_on_error(repo: Repository, task: str, epoch: int, base: str, path: Path, before: str, *, locked: bool = True) -> Iterator[None]:
    """When the body fails, even by an interrupt: remove what this attempt made and put the branch back to `before`."""
    try:
        yield
    except BaseException:
        with contextlib.nullcontext() if locked else repo.git.lock(repo.common_dir):
            admin = _find(repo, path, task, epoch)
            if admin is None or _is_half_made(admin, task, epoch):
                _clear(path, admin)
                with contextlib.suppress(OSError):
                    path.parent.rmdir()  # the run's directory, when this was its only worktree
                with contextlib.suppress(HostError):  # the body's error is the one to tell; `create` takes such a branch over
                    _move_branch(repo, task, before, base)
        raise


def _find(repo: Repository, path: Path, task: str, epoch: int) -> Path | None:
    """git's directory for the worktree at `path`: the one that names it, or that we were making for it when we died."""
    link = os.fsencode(path) + b"/.git\n"
    for admin in (repo.common_dir / "worktrees").glob(f"{path.name}*"):
        if _read_link(admin / "gitdir") == link:
            return admin
        if _is_half_made(admin, task, epoch) and not (admin / "gitdir").exists():
            return admin
    return None


def _clear(path: Path, admin: Path | None) -> None:
    """Remove a half-made worktree. Never reached for one that `create` returned: nobody but us ever wrote in it."""
    if admin is None:
        return
    if _read_link(admin / "gitdir") and path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    with contextlib.suppress(OSError):
        path.rmdir()  # git makes the directory a moment before it records it
    shutil.rmtree(admin)


def _take_branch(repo: Repository, task: str, epoch: int, base: str, root: Path) -> str:
    """Let the work branch stand at `base`, free for a new worktree. Returns the oid it had before, or "" when it is new."""
    try:
        _move_branch(repo, task, base, "")
    except ToolFailed as error:
        found = _branch(repo, task)
        if found is None:
            raise _refuse_name(repo, task, error) from error
        tip, holder = found
    else:
        return ""
    if holder is not None:
        _detach_older(repo, task, epoch, root, tip, holder)
    if tip == base:
        return "" if epoch == 1 else tip
    if epoch == 1 or not _is_safe(repo, task, tip, base):
        raise Refused(
            "the branch of this task already holds other work",
            on=branch_name(task),
            why=f"it stands at {tip[:12]}, which no rescue ref of this task keeps",
            kept="the branch",
            hint=f"git branch -m {branch_name(task)} kept/{task}",
        )
    _move_branch(repo, task, base, tip)
    return tip


def _branch(repo: Repository, task: str) -> tuple[str, Path | None] | None:
    """Commit of the work branch and the worktree that has it checked out."""
    ref = f"refs/heads/{branch_name(task)}"
    answer = repo.git.run(repo.store, "for-each-ref", "--format=%(objectname) %(worktreepath)", ref)
    if not answer.text:
        return None
    tip, _, holder = answer.text.partition(" ")
    return tip, Path(holder) if holder else None


def _move_branch(repo: Repository, task: str, to: str, expected: str) -> None:
    """Compare and swap: `expected` "" means the branch must not exist, `to` "" means delete it."""
    ref = f"refs/heads/{branch_name(task)}"
    if to:
        repo.git.run(repo.store, "update-ref", "-m", f"nightcrew: {task}", ref, to, expected)
    else:
        repo.git.run(repo.store, "update-ref", "-d", ref, expected)


def _detach_older(repo: Repository, task: str, epoch: int, root: Path, tip: str, holder: Path) -> None:
    """Take the branch away from an older attempt's worktree, which then stands on the same commit. Raises Refused for others."""
    older = next((number for number in range(1, epoch) if environment_path(root, task, number) == holder), None)
    admin = None if older is None else _find(repo, holder, task, older)
    if older is None or admin is None:
        raise Refused(
            "the branch of this task is checked out elsewhere",
            on=branch_name(task),
            why=f"{holder} has it",
            kept="that checkout",
            hint=f"git -C {holder} switch --detach",
        )
    env = Environment(repo, task, older, holder, admin, branch_name(task), tip)
    check_admin(env)
    repo.git.run(env.place, "update-ref", "--no-deref", "-m", f"nightcrew: attempt {epoch} goes on", "HEAD", tip)


def _is_safe(repo: Repository, task: str, tip: str, base: str) -> bool:
    """Whether moving the branch off `tip` loses nothing: a rescue ref of this task, or the base itself, reaches it."""
    if repo.git.run(repo.store, "for-each-ref", "--count=1", "--contains", tip, f"refs/nightcrew/rescue/{task}").text:
        return True
    return repo.git.run(repo.store, "merge-base", "--is-ancestor", tip, base, accept=(0, 1)).code == 0


def _refuse_name(repo: Repository, task: str, error: ToolFailed) -> Refused | ToolFailed:
    """A branch called `nightcrew` or `nightcrew/<run>` leaves no room for ours below it."""
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


def _refuse_inside(repo: Repository, path: Path) -> None:
    for owner in (repo.root, repo.common_dir):
        if path.is_relative_to(owner):
            raise Refused(
                "agents' worktrees must not lie inside your repository",
                on=str(path),
                why=f"it is below {owner}",
                hint="set NIGHTCREW_HOME to a directory outside of it",
            )


def _refuse_occupied(path: Path) -> None:
    if os.path.lexists(path):
        raise Refused(
            "something else is in the place of this worktree",
            on=str(path),
            why="it was not made for this attempt",
            kept="it",
            hint=f"look at it, then move it away: ls -la {path}",
        )


def _is_half_made(admin: Path, task: str, epoch: int) -> bool:
    return _lock_reason(admin) == _making(task, epoch)


def _lock_reason(admin: Path) -> bytes:
    return _read_link(admin / "locked").removesuffix(b"\n")


def _making(task: str, epoch: int) -> bytes:
    return f"nightcrew is making {attempt_name(task, epoch)}".encode()


def _owned(task: str, epoch: int) -> bytes:
    return f"nightcrew: {attempt_name(task, epoch)} works here".encode()


def _read_link(file: Path) -> bytes:
    """A small regular file; b"" when it is anything else."""
    try:
        with open_plain(file) as data:
            return data.read(_LINK_MAX)
    except OSError:
        return b""


def _tampered(env: Environment, file: Path) -> Tampered:
    return Tampered(
        "a file that only git and nightcrew write was changed",
        on=str(file),
        why=f"the worktree of {env.name} would lead to another repository",
        kept="everything: nothing was run there",
        hint=f"look at {file}",
    )
