"""One attempt's worktree and files: made, opened, and its branch."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.host import files, scratch
from supervisor.host.untrusted_fs import Folder, entries, folder, remove_tree
from supervisor.kernel.errors import HostError, NotFound, Refused, Tampered, ToolFailed
from supervisor.kernel.names import attempt_name, branch_name, rescue_ref, tips_ref
from worktrees import backends, private_repository, registration, repository, templates
from worktrees.backends import Backend, UserOverlay
from worktrees.git import BULK_S, CHECKOUT_S, Place, wrap_os_errors
from worktrees.locks import MountNamespace
from worktrees.private_repository import Layers, beside, mark_removed, record, recorded, remove_beside
from worktrees.registration import Registration, is_unusual, lock_reason, read_link
from worktrees.repository import Repository, refuse_absent
from worktrees.templates import Template

if TYPE_CHECKING:
    from worktrees.repository import Repository


# Branching
# ---------
# The work branch of a task: made, moved, and judged; and the first rescue ref of an attempt, made in the same way.
#
# A new one is written as git's files backend writes one: a process less, which is half of the time that a warm environment takes.
#
# The name is linked to a finished file, so that every git that runs beside us sees the branch whole or not at all, and of two that
# make the same branch one loses. git's own lock is respected and not taken: a kill would leave it. (A git that makes the very same
# branch between our look at its lock and our link wins over us; the names are ours, so none does.) What this cannot do, because of
# how the repository is kept or of what is there already, is left to git.


_PACKED_MAX = 64 * 2**20
_OURS = branch_name("").partition("/")[0]


def write_new(repo: Repository, branch: str, oid: str, why: str) -> bool:
    """Make `branch` (a short name that git allows) at commit `oid`; False when it must be left to git: nothing was done then.

    Hold the repository's lock. Raises DiskFull or HostError.
    """
    if is_unusual(repo):
        return False
    ref = f"{repository.HEADS}/{branch}"
    with wrap_os_errors(repo.common_dir / ref):
        repository.clear(repo, ref)
        # Not so when a ref stands where a directory must be, or git removed the empty directory meanwhile.
        with contextlib.suppress(FileExistsError, NotADirectoryError, FileNotFoundError), _room(repo, repository.HEADS, branch) as here:
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
        with _room(repo, f"logs/{repository.HEADS}", ref.removeprefix(f"{repository.HEADS}/")) as logs:
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
            scratch.spread(top / ours)
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
    old = repo.commit(ref)
    if old:
        tip = repo.write_commit(repo.tree(tip), (tip, old), b"nightcrew: left by an attempt that was not secured\n")
    repository.move(repo, ref, tip, old, "nightcrew: the next attempt takes the branch")


def find(repo: Repository, task: str) -> tuple[str, Path | None] | None:
    """Commit of the work branch and the worktree that has it checked out."""
    ref = f"refs/heads/{branch_name(task)}"
    answer = repository.over_all(repo, "for-each-ref", "--format=%(objectname) %(worktreepath)", ref)
    if not answer.text:
        return None
    tip, _, holder = answer.text.partition(" ")
    return tip, Path(holder) if holder else None


def move(repo: Repository, task: str, to: str, expected: str) -> None:
    """Compare and swap: `expected` "" means the branch must not exist, `to` "" means delete it."""
    repository.move(repo, f"{repository.HEADS}/{branch_name(task)}", to, expected, f"nightcrew: {task}")


def is_safe(repo: Repository, task: str, tip: str, base: str) -> bool:
    """Whether moving the branch off `tip` loses nothing: a rescue ref of this task, or the base itself, reaches it."""
    if repo.run("for-each-ref", "--count=1", "--contains", tip, f"refs/nightcrew/rescue/{task}").text:
        return True
    return repo.has(base, tip)


def in_the_way(repo: Repository, task: str, error: ToolFailed) -> Refused | ToolFailed:
    """What to say when the branch could not be made. A branch called `nightcrew` or `nightcrew/<run>` leaves no room for ours below it."""
    parts = branch_name(task).split("/")
    for length in range(1, len(parts)):
        name = "/".join(parts[:length])
        if repo.run("for-each-ref", f"refs/heads/{name}", "--format=%(refname)").text == f"refs/heads/{name}":
            return Refused(
                "a branch of yours is in the way",
                on=name,
                why=f"git cannot hold {branch_name(task)} beside it",
                kept="the branch",
                hint=f"git branch -m {name} {name}-old",
            )
    return error


# Environment
# -----------
# One attempt's files: where they lie, what they are made of, and how its refs are called.


_LATER = 65
"""Attempts looked ahead: more than a task has in a row whose worktrees were all removed."""


@dataclass(frozen=True, slots=True)
class Alone:
    """An attempt's own repository, seen from inside its sandbox."""

    packed: str
    """As `private_repository.packed_at_start`."""


@dataclass(frozen=True, slots=True)
class Environment:
    """One attempt's files. Everything but `repo` and `inside` is a line in the ledger; the whole is rebuilt from there."""

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
    layers: Layers | None = None
    """What its files are made of; None is a checkout of its own."""
    inside: MountNamespace | None = field(default=None, repr=False, compare=False)
    """Within `open_env`: the namespace that shows the files. Never in the ledger."""
    alone: Alone | None = None
    """`repo` is the attempt's own, whose refs and logs are all its agent's: so it is in the sandbox, for `securing_helper`."""

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
    def tips_ref(self) -> str:
        return tips_ref(self.task, self.epoch)

    @property
    def private(self) -> Path | None:
        """The repository of its own, when its agent is confined: outside a sandbox no git may run in its worktree then, see
        `worktrees.collect_work`. No agent can make or remove that directory."""
        own = private_repository.place(self.path)
        return own if own.is_dir() else None

    @property
    def place(self) -> Place:
        """For verbs in the worktree; of what `open_env` gave."""
        return Place(self.admin_dir, self.repo.common_dir, self.path, self.inside, is_ours=True)


def environment_path(root: Path, task: str, epoch: int) -> Path:
    """Where the worktree of an attempt lies; two attempts never share it."""
    run, _, slug = task.partition("/")
    return Path(os.path.realpath(root)) / run / f"{slug}.{epoch}"


def has_successor(env: Environment) -> bool:
    """Whether a worktree of a later attempt is there: the work branch, and its log, are that one's then."""
    stem = str(env.path).rpartition(".")[0]
    return any(os.path.lexists(f"{stem}.{epoch}") for epoch in range(env.epoch + 1, env.epoch + _LATER))


# Untouched
# ---------
# Whether a checkout is still what we made of it, without asking git: as after a task that only looked, or failed at once.
#
# git noted the times, the inode and the size of each file as it wrote it, in the index. That index is known again by its digest,
# which we keep in memory and no agent can write; so each file that still fits is as it was made, and a file that the index does not
# name is new. git is asked whenever anything differs, and when there is no digest: after a restart, for a checkout by anybody else,
# and where an agent could have begun so soon after a file was written that its time does not tell the two apart.


FILES_MAX = 2000
"""git is faster with more."""
TICK_NS = 12 * 10**6
"""Longer than the time of a file stands still on any kernel: its clock for files ticks at least 100 times a second."""
_INDEX_MAX = 2**20
_KEPT_MAX = 10_000
_digests: dict[Path, bytes] = {}
_lock = threading.Lock()


def remember(env: Environment) -> None:
    """Of a checkout that was just made; nobody has worked there."""
    data = _index(env)
    with _lock:
        if data is not None:
            _digests[env.path] = hashlib.sha256(data).digest()
        while len(_digests) > _KEPT_MAX:
            del _digests[next(iter(_digests))]


def begin(env: Environment) -> None:
    """Its agent may begin now. Where that is too soon after the checkout to tell later, the checkout is forgotten."""
    data = _index(env) if env.path in _digests else None
    files = None if data is None else _files(data, len(env.base) // 2)
    if files is None or time.time_ns() - max((facts[0] for facts in files.values()), default=0) < TICK_NS:
        forget(env)


def forget(env: Environment) -> None:
    """What is there is no more what we made."""
    with _lock:
        _digests.pop(env.path, None)


def is_untouched(env: Environment) -> bool:
    """Whether its HEAD, its index and all files are as they were made. Its branch is not looked at."""
    digest = _digests.get(env.path)
    try:
        data = _index(env) if digest is not None else None
        if data is None or hashlib.sha256(data).digest() != digest or not _has_head(env):
            return False
        files = _files(data, len(env.base) // 2)
        return files is not None and _are_all_there(env.path, files)
    except OSError:
        return False


def _index(env: Environment) -> bytes | None:
    try:
        with folder(env.admin_dir) as here:
            data = here.read("index", _INDEX_MAX + 1)
    except OSError:
        return None
    return data if data is not None and len(data) <= _INDEX_MAX else None


def _has_head(env: Environment) -> bool:
    with folder(env.admin_dir) as here:
        return here.read("HEAD", len(env.branch_ref) + 10) == f"ref: {env.branch_ref}\n".encode()


def _files(data: bytes, oid_size: int) -> Mapping[bytes, tuple[int, ...]] | None:
    """What git noted of each file; None where it takes git to tell."""
    try:
        found = list(backends.entries(data, oid_size))
    except ValueError:
        return None
    if len(found) > FILES_MAX or any(entry.is_valid or entry.is_skipped or entry.mode == backends.GITLINK for entry in found):
        return None
    return {entry.path: backends.noted(data, entry) for entry in found}


def _are_all_there(top: Path, files: Mapping[bytes, tuple[int, ...]]) -> bool:
    """Whether the files below `top` are these and no others, each as git wrote it."""
    left = len(files)
    for below, _, entry in entries(top):
        if entry.is_dir(follow_symlinks=False) or (not below and entry.name == ".git"):
            continue
        name = os.fsencode(f"{below}/{entry.name}" if below else entry.name)
        if name not in files or files[name] != backends.now(entry.stat(follow_symlinks=False)):
            return False
        left -= 1
    return left == 0


# Environments
# ------------
# One attempt's worktree: made so that a crash at any step leaves nothing behind, opened only when nobody rewired it.
#
# The order is what makes it safe. A worktree is locked from its first moment on, so a reason of ours in its `locked` file says
# whose half-made worktree this is (see `registration`). The reason changes to its final text only when every file is in place:
#
#     branch created (compare-and-swap) -> registered and locked -> layers noted -> files -> index -> own repository -> reason "owned"
#
# Only the first two steps hold the repository's lock. A worktree whose reason still says "being made" was never handed out, so no
# agent's work can be in it and `create` may clear it away; anything else is kept.
#
# Without a template the files come from a checkout; with one, from a backend (see `backends`). `open_env` is the one way to the
# files of an environment, whatever they are made of and whether they are mounted at this moment or not.


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
        before = take(repo, task, epoch, base, functools.partial(_detach_older, repo, task, epoch, root))
        with _undone_on_error(env, before):
            env = _add(env)
    with _undone_on_error(env, before, locked=False):
        try:
            _populate(env, warm)
        except ToolFailed:
            refuse_absent(repo, base)
            raise
        if warm is None and confined is None:
            remember(env)
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
            remove_tree(env.path, keep=(".git",))
    with wrap_os_errors(beside(env.path)):
        mark_removed(env.path)
    flags = ("--force",) if force or layered or env.private is not None else ()
    repository.over_all(env.repo, "worktree", "remove", *flags, str(env.path), deadline_s=BULK_S)
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
        scratch.spread(env.path.parent)
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
                    move(env.repo, env.task, before, env.base)
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
