"""One attempt's worktree: made so that a crash at any step leaves nothing behind, opened only when nobody rewired it.

The order is what makes it safe. A worktree is locked from its first moment on, so a reason of ours in its `locked` file says whose
half-made worktree this is (see `registration`). The reason changes to its final text only when every file is in place:

    branch created (compare-and-swap) -> registered and locked -> layers noted -> files -> index -> own repository -> reason "owned"

Only the first two steps hold the repository's lock. A worktree whose reason still says "being made" was never handed out, so
no agent's work can be in it and `create` may clear it away; anything else is kept.

Without a template the files come from a checkout; with one, from a backend (see `backends`). `open_env` is the one way to the
files of an environment, whatever they are made of and whether they are mounted at this moment or not.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.core.errors import HostError, NotFound, Refused, Tampered, ToolFailed
from supervisor.core.records import attempt_name, branch_name
from supervisor.host import files, placement
from supervisor.host.foreign import folder
from worktrees import backends, branching, private_repository, refs, registration, templates, trees, untouched
from worktrees.backends.base import Backend
from worktrees.backends.overlay import UserOverlay
from worktrees.environment import Environment, environment_path
from worktrees.failures import wrap_os_errors
from worktrees.git import BULK_S, CHECKOUT_S
from worktrees.layers import Layers, beside, mark_removed, record, recorded, remove_beside
from worktrees.registration import Registration, lock_reason, read_link
from worktrees.repository import Repository, refuse_absent
from worktrees.templates import Template


@dataclass(frozen=True, slots=True)
class Warm:
    """What an environment starts from instead of a checkout."""

    template: Template
    backend: Backend


@dataclass(frozen=True, slots=True)
class Confined:
    """An environment whose agent will be in a sandbox: it gets a repository of its own."""

    also: tuple[str, ...] = ()
    """Short names of branches of nightcrew's that it sees there, beside its own."""


def create(
    repo: Repository, task: str, epoch: int, base: str, root: Path, *, warm: Warm | None = None, confined: Confined | None = None
) -> Environment:
    """The attempt's worktree on its own branch at commit `base`, populated, and locked until `release`.

    With `confined` it has a repository of its own. With `warm` its files come from the template, which may stand on another commit: what
    differs is checked out.
    Calling it again for the same attempt is safe: a finished worktree is returned as it is, a half-made one is made anew.
    A retry takes the branch over from the older attempt's worktree once its commits are reachable from a rescue ref.
    Raises Refused (branch or place belongs to something else: it names the holder; the template is of another repository, or the backend
    cannot serve it; a partial clone lacks files of `base`), DiskFull, HostError, ToolFailed; after an error neither branch, directory nor
    administration of this attempt is left.
    """
    path = environment_path(root, task, epoch)
    _refuse_inside(repo, path)
    layers = _planned(repo, path, warm) if warm else None
    env = Environment(repo, task, epoch, path, repo.common_dir / "worktrees" / path.name, branch_name(task), base, layers)
    with repo.git.lock(repo.common_dir):
        admin = registration.find(repo, path, _making(env))
        if admin is not None and not registration.is_being_made(admin, path, _making(env)):
            return _found(replace(env, admin_dir=admin))
        _clear(env, admin)
        for place in (path, beside(path)):
            _refuse_occupied(place)
        before = branching.take(repo, task, epoch, base, functools.partial(_detach_older, repo, task, epoch, root))
        with _undone_on_error(env, before):
            env = _add(env)
    with _undone_on_error(env, before, locked=False):
        try:
            _populate(env, warm)
        except ToolFailed:
            refuse_absent(repo, base)
            raise
        if warm is None and confined is None:
            untouched.remember(env)
        if confined is not None:
            private_repository.make(repo, path, env.admin_dir, env.branch, base, confined.also)
        with wrap_os_errors(env.admin_dir):
            files.atomic_write(env.admin_dir / "locked", _owned(env), durable=False)
    return env


def left(repo: Repository, task: str, epoch: int, base: str, root: Path) -> Environment | None:
    """What a `create` left whose caller died before it could write that down; a half-made one is cleared away. Raises as `open_env`."""
    path = environment_path(root, task, epoch)
    env = Environment(repo, task, epoch, path, repo.common_dir / "worktrees" / path.name, branch_name(task), base)
    with repo.git.lock(repo.common_dir):
        admin = registration.find(repo, path, _making(env))
        if admin is not None and not registration.is_being_made(admin, path, _making(env)):
            return _found(replace(env, admin_dir=admin))
        _clear(env, admin)
    return None


@contextlib.contextmanager
def open_env(env: Environment) -> Iterator[Environment]:
    """`env` with its files in sight for the time of the `with`, once its three links are what we wrote. Use what it gives, not `env`.

    Files that are mounted nowhere, as after a reboot, are mounted: for everybody where root does it, else as a read-only view for this
    process alone, but not those of a confined agent, which only a sandbox shows. Raises NotFound when the directory, the layers or git's
    record is gone, Tampered when a link points elsewhere: git would then read a repository that somebody else prepared; HostError when it
    could not be mounted.
    """
    with shown(env) as seen:
        _check(seen)
        yield seen


@contextlib.contextmanager
def shown(env: Environment) -> Iterator[Environment]:
    """The half of `open_env` that brings the files in sight, for who must look at a worktree that somebody rewired."""
    if env.layers is None or env.inside is not None:
        yield env
        return
    backend = backends.named(env.layers.backend)
    if env.layers.upper and not Path(env.layers.upper).is_dir():
        raise NotFound(
            "the files of the worktree are missing", on=env.layers.upper, why="somebody removed them", kept=f"branch {env.branch}"
        )
    if env.private is not None and isinstance(backend, UserOverlay):
        yield env
        return
    with backend.open(env) as inside:
        yield replace(env, inside=inside)


def _check(env: Environment) -> None:
    if not env.place.top.is_dir():
        raise NotFound("the worktree is missing", on=str(env.path), why="somebody removed it", kept=f"branch {env.branch}")
    check_admin(env)
    if read_link(env.place.top / ".git") != b"gitdir: " + os.fsencode(env.admin_dir) + b"\n":
        raise _tampered(env, env.path / ".git")


def mend_link(env: Environment) -> None:
    """Write the `.git` file of the worktree anew where its agent removed it: it holds nothing but the place of git's directory, and without
    it nothing could be looked at or removed. What stands in its place is left there. Raises as `check_admin`; HostError."""
    with shown(env) as seen:
        if env.private is not None or seen.inside is not None or not seen.place.top.is_dir():
            return
        check_admin(seen)
        with wrap_os_errors(seen.place.top), folder(seen.place.top) as here:
            if here.look(".git") is None:
                here.replace(".git", b"gitdir: " + os.fsencode(env.admin_dir) + b"\n")


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
    if read_link(env.admin_dir / "commondir") != registration.COMMONDIR:
        raise _tampered(env, env.admin_dir / "commondir")
    if read_link(env.admin_dir / "gitdir") != os.fsencode(env.path) + b"/.git\n":
        raise _tampered(env, env.admin_dir / "gitdir")


def release(env: Environment) -> None:
    """The attempt no longer owns the worktree: unlock it. Does nothing when it is not locked by this attempt."""
    if lock_reason(env.admin_dir) == _owned(env):
        (env.admin_dir / "locked").unlink(missing_ok=True)


def is_locked(env: Environment) -> bool:
    """Whether anybody, an attempt or a person, locked the worktree."""
    return os.path.lexists(env.admin_dir / "locked")


def take_away(env: Environment, *, force: bool) -> None:
    """Remove the worktree by `git worktree remove`, and its layers. Only for `removal`, which has looked and secured everything.

    Layers are unmounted first, so that nothing is deleted through a mount, and what a confined agent left is deleted by handle; in the
    bare directory git finds no file but its own link, hence its `--force`. Raises Refused when a process stands in the mount, ToolFailed,
    HostError.
    """
    layered = env.layers is not None and bool(env.layers.upper)
    if env.layers is not None and layered:
        backends.named(env.layers.backend).close(env)
        if not (env.path / ".git").exists():  # somebody removed the bare directory: git forgets one that is missing, not one without a link
            with contextlib.suppress(OSError):
                env.path.rmdir()
    elif env.private is not None and env.path.is_dir():
        with wrap_os_errors(env.path):
            trees.remove(env.path, keep=(".git",))
    with wrap_os_errors(beside(env.path)):
        mark_removed(env.path)
    flags = ("--force",) if force or layered or env.private is not None else ()
    refs.over_all(env.repo, "worktree", "remove", *flags, str(env.path), deadline_s=BULK_S)
    with wrap_os_errors(beside(env.path)):
        remove_beside(env.path)


def _planned(repo: Repository, path: Path, warm: Warm) -> Layers:
    why = warm.backend.refuses(warm.template)
    if warm.template.project != repo.project:
        why = "it is of another repository"
    if why:
        raise Refused("the template cannot be used here", on=str(warm.template.place), why=f"{warm.backend.name}: {why}", kept="it")
    return warm.backend.plan(path, warm.template)


def _found(env: Environment) -> Environment:
    """One that `create` finished earlier: its layers are those it got then."""
    with wrap_os_errors(env.path):
        found = replace(env, layers=recorded(env.path))
    with open_env(found):
        return found


def _add(env: Environment) -> Environment:
    with wrap_os_errors(env.path.parent):
        env.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        placement.spread(env.path.parent)
    # The branch exists already, so nothing is tracked and no configuration is written: see `_take_branch`.
    admin = registration.add(env.repo, Registration(env.path, _making(env), env.base, env.branch))
    added = replace(env, admin_dir=admin)
    _check(added)
    return added


def _populate(env: Environment, warm: Warm | None) -> None:
    if warm is None or env.layers is None:
        env.repo.git.run(env.place, "read-tree", "-m", "-u", "--end-of-options", env.base, deadline_s=CHECKOUT_S)
        return
    with templates.leased(warm.template, env.path), wrap_os_errors(env.path):
        record(env.path, env.layers)
    warm.backend.populate(env, warm.template)


@contextlib.contextmanager
def _undone_on_error(env: Environment, before: str, *, locked: bool = True) -> Iterator[None]:
    """When the body fails, even by an interrupt: remove what this attempt made and put the branch back to `before`."""
    try:
        yield
    except BaseException:
        with contextlib.nullcontext() if locked else env.repo.git.lock(env.repo.common_dir):
            admin = registration.find(env.repo, env.path, _making(env))
            if admin is None or registration.is_being_made(admin, env.path, _making(env)):
                _clear(env, admin)
                with contextlib.suppress(OSError):
                    env.path.parent.rmdir()  # the run's directory, when this was its only worktree
                with contextlib.suppress(HostError):  # the body's error is the one to tell; `create` takes such a branch over
                    branching.move(env.repo, env.task, before, env.base)
        raise


def _clear(env: Environment, admin: Path | None) -> None:
    """Remove a half-made worktree. Never reached for one that `create` returned: nobody but us ever wrote in it."""
    if admin is None:
        return
    with wrap_os_errors(env.path):
        layers = recorded(env.path)
        if layers is not None:
            backends.named(layers.backend).close(replace(env, layers=layers))
        remove_beside(env.path)
        registration.clear(env.path, admin)


def _detach_older(repo: Repository, task: str, epoch: int, root: Path, tip: str, holder: Path) -> None:
    """Take the branch away from an older attempt's worktree, which then stands on the same commit. Raises Refused for others."""
    older = next((number for number in range(1, epoch) if environment_path(root, task, number) == holder), None)
    admin = None if older is None else registration.find(repo, holder, _making_name(attempt_name(task, older)))
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
    if registration.is_unusual(repo):
        repo.git.run(env.place, "update-ref", "--no-deref", "-m", f"nightcrew: attempt {epoch} goes on", "HEAD", tip)
        return
    with wrap_os_errors(admin), folder(admin) as here:  # an agent wrote there: git would open what lies in place of HEAD and of its log
        here.replace("HEAD", f"{tip}\n".encode())


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


def _making(env: Environment) -> bytes:
    return _making_name(env.name)


def _making_name(name: str) -> bytes:
    return f"nightcrew is making {name}".encode()


def _owned(env: Environment) -> bytes:
    return f"nightcrew: {env.name} works here".encode()


def _tampered(env: Environment, file: Path) -> Tampered:
    is_link = file == env.path / ".git"
    aside = file.with_name("git-of-its-agent")
    return Tampered(
        "a file that only git and nightcrew write was changed",
        on=str(file),
        why=f"the worktree of {env.name} would lead to another repository",
        kept="everything: nothing was run there",
        hint=f"mv {shlex.quote(str(file))} {shlex.quote(str(aside))}; then again" if is_link else f"look at {file}",
    )
