"""Keep what an agent leaves behind, and bring it back."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import re
import shutil
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.host import files
from supervisor.host.scratch import locked_directory
from supervisor.host.untrusted_fs import Folder, entries, folder, open_plain
from supervisor.kernel.errors import DiskFull, NightcrewError, Tampered, ToolFailed, ToolHung, some_of
from supervisor.kernel.format import many
from supervisor.kernel.result import TAMPERING
from supervisor.sandbox.policy import SHARED_OBJECTS
from worktrees import changes, environments, private_repository, registration, repository
from worktrees.changes import Changes, observe
from worktrees.environments import Environment, check_admin, has_successor, shown
from worktrees.git import BULK_S, wrap_os_errors
from worktrees.pack_import import Committer, Scene

# Own refs
# --------
# Reads, in the sandbox, what refs and logs of an attempt's own repository name beside the work branch.
#
# The refs that were there at the start lie in `packed-refs` and have no log. So what the agent's git made since is in files of its
# own; only where it packed its refs is that list read too.


_FILE_MAX = 2**20
"""Bytes at the end of a log: some 6,000 entries."""
_PACKED_MAX = 2**28
_FILES_MAX = 20_000
_OID = re.compile(rb"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")
_LINE = re.compile(rb"^([0-9a-f]{40,64}) (refs/\S+)$", re.MULTILINE)
_FETCHED, _TAGS = "refs/remotes", "refs/tags"


@dataclass(frozen=True, slots=True)
class OwnRefs:
    """Names of objects, each once."""

    names: tuple[str, ...]
    tags: tuple[str, ...]
    fetched: tuple[str, ...]
    """Where branches of remotes stand."""


def read(common: Path, packed_at_start: str) -> OwnRefs:
    """What is named in the repository at `common`; `packed_at_start` as `private_repository` says. At most 20,000 files are opened."""
    found: dict[str, dict[str, None]] = {"": {}, _TAGS: {}, _FETCHED: {}}
    for name, oid in itertools.chain(_loose(common), _packed(common, packed_at_start)):
        kind = next((area for area in (_TAGS, _FETCHED) if name.startswith(f"{area}/")), "")
        found[kind].setdefault(oid)
    return OwnRefs(tuple(found[""]), tuple(found[_TAGS]), tuple(found[_FETCHED]))


def unlock(common: Path) -> None:
    """Remove the lock files that a killed git left in the repository at `common`. Only when nobody works there: its agent has ended."""
    for name, here, file in itertools.chain(*(_files(common, area) for area in ("refs", "worktrees"))):
        if name.endswith(".lock"):
            with contextlib.suppress(OSError):
                here.remove(file)
    with folder(common) as here:
        for file in here.names():
            if file.endswith(".lock"):
                with contextlib.suppress(OSError):
                    here.remove(file)


def _loose(common: Path) -> Iterator[tuple[str, str]]:
    """Refs, then the entries of logs, the newest of each first, then the HEADs of worktrees that the agent added."""
    files = itertools.chain(_files(common, "refs"), _files(common, "logs"), _files(common, "worktrees"))
    for name, here, file in itertools.islice(files, _FILES_MAX):
        if name.startswith("worktrees/") and file != "HEAD":
            continue
        for oid in reversed(_OID.findall(here.read(file, _FILE_MAX, linked=True, tail=True) or b"")):
            yield name.removeprefix("logs/"), oid.decode()


def _files(common: Path, area: str) -> Iterator[tuple[str, Folder, str]]:
    with contextlib.suppress(OSError):
        for below, here, entry in entries(common, area):
            if not entry.is_dir(follow_symlinks=False):
                yield f"{below}/{entry.name}", here, entry.name


def _packed(common: Path, at_start: str) -> Iterator[tuple[str, str]]:
    with folder(common) as here:
        data = here.read("packed-refs", _PACKED_MAX, linked=True) or b""
    if hashlib.sha256(data).hexdigest() != at_start:
        yield from ((name.decode("utf-8", "replace"), oid.decode()) for oid, name in _LINE.findall(data))


# Tips
# ----
# Finds the commits that an attempt made or had, and those among them that no rescue ref of its task holds yet.
#
# A commit that was amended, reset or rebased away is on no branch. What remembers it are files that the agent's own git wrote: the
# logs of HEAD and of the work branch, the worktree's own refs, the state of a rebase or a merge; and the same of worktrees that the
# agent added inside its own, since they go with it. The agent can write anything there. So they are read by handle, without
# following a link, the newest entries first and up to a bound; and a name counts only when the repository has a commit of that
# name, with its whole history, which the base does not hold.
#
# A commit of somebody else that an agent writes into its own log is kept like its own: that harms nobody, and no evidence tells
# them apart.


KEPT_MAX = 50
"""Tips that are taken when an attempt ends, the newest of them; its removal takes the rest. A commit of ours has no more parents."""
KEPT_AT_REMOVAL = 10_000
"""Tips that are taken at once when its worktree goes."""
_LOG_MAX = 4 * 2**20
"""Bytes at the end of a log: some 25,000 entries."""
_SEEN_MAX = 10_000
"""Names of one log that git is asked about."""
_OWN_REFS_MAX = 1000
_TRIES = 60
"""Walks of git to find the names that it cannot walk from: 4 of them among 10,000, more among fewer."""
_STATE_FILES = (
    "HEAD", "ORIG_HEAD", "MERGE_HEAD", "MERGE_AUTOSTASH", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "sequencer/head",
    "rebase-merge/orig-head", "rebase-merge/onto", "rebase-merge/stopped-sha", "rebase-merge/autostash",
    "rebase-apply/orig-head", "rebase-apply/autostash",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unkept:
    """Commits that the base, what the caller knows and the task's rescue refs do not reach, and that no other one of them reaches."""

    tips: tuple[str, ...] = ()
    """At most as many as were asked for, the newest first."""
    left_out: int = 0
    """How many more there are; those that git could not read count too, and a log that is too long counts as one."""
    notes: tuple[str, ...] = ()
    """One line each: what was left out."""


def refs_of(env: Environment) -> dict[str, str]:
    """Every ref of the task, by its full name: its work branch and what lies beside it, its rescue refs of all attempts."""
    return private_repository.below(env.repo, env.branch_ref.rpartition("/")[0], env.rescue_ref.rpartition("/")[0])


def unkept(env: Environment, found: Mapping[str, str], known: Iterable[str], most: int = KEPT_MAX) -> Unkept:
    """What a rescue ref must take besides `known` (commits); `found` is what `refs_of` gave. No process when there is nothing to ask.

    A branch that a later attempt took over is not asked. Raises ToolHung. What git cannot read is left out and said.
    """
    notes: list[str] = []
    rescued = {oid for ref, oid in found.items() if not ref.startswith(f"{repository.HEADS}/")}
    settled = {env.base, *known, *rescued, "0" * len(env.base)}
    branches = [] if has_successor(env) else [oid for ref, oid in found.items() if ref.startswith(f"{repository.HEADS}/")]
    reached = [f"^{oid}" for oid in sorted({env.base, *known, *rescued})]
    others = _others(env, settled, reached) if env.alone is not None else ()
    seen = [oid for oid in dict.fromkeys([*branches, *remembered(env, notes), *others]) if oid not in settled]
    heads, unread = _heads(env, seen, reached)
    if unread:
        notes.append(f"{len(unread)} commits could not be read and are on no rescue ref: {_named(unread)}")
    if more := heads[most:]:
        notes.append(f"{len(more)} older commits that only its logs remember are on no rescue ref yet: {_named(more)}")
    return Unkept(tuple(heads[:most]), len(notes) and max(1, len(unread) + len(more)), tuple(notes))


def all_kept(env: Environment) -> bool:
    """Whether nothing that its logs remember would go with them. No process where they remember nothing but the base. Raises ToolHung."""
    notes: list[str] = []
    if env.alone is None and set(remembered(env, notes)) <= {env.base, "0" * len(env.base)} and not notes:
        return True
    return unkept(env, refs_of(env), ()) == Unkept()


def _others(env: Environment, settled: Container[str], reached: Sequence[str]) -> list[str]:
    """Commits that the agent's other branches, tags, stashes, notes and worktrees name, and that the person's repository does not have.
    What it fetched is not its work: tags on fetched branches are left out with them. No process when there is nothing of the kind."""
    own = read(env.repo.common_dir, env.alone.packed if env.alone is not None else "")
    work = _commits(env, [oid for oid in own.names if oid not in settled])
    tags = _commits(env, [oid for oid in own.tags if oid not in settled])
    fetched = [f"^{oid}" for oid in _commits(env, own.fetched)[0]] if tags[0] else []
    heads, unread = _heads(env, tags[0], [*reached, *fetched])
    return [*itertools.chain.from_iterable(work), *heads, *unread, *tags[1]]


def _commits(env: Environment, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """What of `names` leads to a commit that is not among the person's objects, and the names that git cannot read."""
    argv = ("cat-file", "--batch-check=%(objectname) %(objecttype)")

    def ask(part: list[str]) -> Iterable[str]:
        asked = "".join(f"{name}^{{commit}}\n" for name in part).encode()
        rows = env.repo.run(*argv, stdin=asked).text.splitlines()
        return [row.removesuffix(" commit") for row in rows if row.endswith(" commit")]

    found, unread = _by_halves(names[:_SEEN_MAX], ask)
    theirs = {"GIT_OBJECT_DIRECTORY": str(env.repo.common_dir / SHARED_OBJECTS)}
    rows = env.repo.run(*argv, stdin="\n".join([*found, ""]).encode(), env=theirs).text.splitlines() if found else []
    return [oid for oid, row in zip(found, rows, strict=True) if row.endswith(" missing")], unread


def _by_halves(names: Sequence[str], ask: Callable[[list[str]], Iterable[str]]) -> tuple[list[str], list[str]]:
    """What `ask` gives for all of `names`, each once, and the names for which git fails; halves find these. Raises ToolHung."""
    found: dict[str, None] = {}
    todo, unread = [list(names)] if names else [], list[str]()
    for _ in range(_TRIES):
        if not todo:
            break
        part = todo.pop()
        try:
            found |= dict.fromkeys(ask(part))
        except ToolHung:
            raise
        except ToolFailed:
            middle = len(part) // 2
            if middle:
                todo += [part[middle:], part[:middle]]
            else:
                unread += part
    return list(found), [*unread, *itertools.chain.from_iterable(todo)]


def _heads(env: Environment, seen: list[str], settled: list[str]) -> tuple[list[str], list[str]]:
    """The commits in `seen` that no other one of them reaches, in order; and those that git cannot walk from."""
    heads, unread = _by_halves(seen, lambda part: _walked(env, part, settled))
    known = set(heads)
    return [oid for oid in seen if oid in known], unread


def _walked(env: Environment, part: list[str], settled: list[str]) -> set[str]:
    argv = ("rev-list", "--ignore-missing", "--topo-order", "--parents", "--stdin")
    asked = "\n".join([*part, *settled, ""]).encode()
    lost = [line.split() for line in env.repo.run(*argv, stdin=asked, deadline_s=BULK_S).text.splitlines()]
    inner = {parent for _, *parents in lost for parent in parents}
    return {oid for oid, *_ in lost if oid not in inner}


def remembered(env: Environment, notes: list[str]) -> Iterator[str]:
    """Names of objects, the newest of each source first. What is read is bounded; a line in `notes` says where that was not enough."""
    below = registration.inside(env.repo.common_dir, env.path)
    for each in (env, *(replace(env, admin_dir=admin) for admin in below.values())):
        yield from _of_worktree(each, notes)
    if not has_successor(env):
        yield from _logged(env, env.branch_ref, notes)


def _of_worktree(env: Environment, notes: list[str]) -> Iterator[str]:
    """Return what git's directory `env.admin_dir` for a worktree names."""
    size = len(env.base)
    for data in _own_refs(env):
        yield from _names(data, size)
    there = _own_files(env)
    for name in _STATE_FILES:
        if name.partition("/")[0] in there:
            yield from _names(_tail(env, name, notes), size)
    yield from _logged(env, "logs/HEAD", notes)


def _logged(env: Environment, name: str, notes: list[str]) -> Iterator[str]:
    names = dict.fromkeys(reversed(_names(_tail(env, name, notes), len(env.base))))
    if len(names) > _SEEN_MAX:
        notes.append(f"{name} names {len(names)} commits, of which the newest {_SEEN_MAX} were looked at")
    yield from itertools.islice(names, _SEEN_MAX)


def _own_files(env: Environment) -> list[str]:
    """What git's directory for the worktree holds."""
    try:
        with folder(env.admin_dir) as here:
            return here.names()
    except OSError:
        return []


def _names(data: bytes, size: int) -> list[str]:
    return [os.fsdecode(oid) for oid in _OID.findall(data) if len(oid) == size]


def _tail(env: Environment, name: str, notes: list[str]) -> bytes:
    """The end of a file of git's: of the worktree's own, or of a branch's log. Nothing when it is not there or cannot be opened so."""
    is_branch = name.startswith(f"{repository.HEADS}/")
    top, below = (
        (env.repo.common_dir / "logs" / repository.HEADS, name.removeprefix(f"{repository.HEADS}/")) if is_branch else (env.admin_dir, name)
    )
    above, _, last = below.rpartition("/")
    try:
        with folder(top, above) as here:
            seen = here.look(last)
            data = here.read(last, _LOG_MAX, linked=True, tail=True)
    except OSError:
        return b""
    if data is None and seen is not None:
        notes.append(f"{name} is no file: what it may remember was not looked at")
    if seen is not None and data is not None and seen.st_size > _LOG_MAX:
        notes.append(f"{name} is of {seen.st_size} bytes, of which the last {_LOG_MAX} were looked at")
    return data or b""


def _own_refs(env: Environment) -> Iterator[bytes]:
    """Refs that belong to this worktree alone, such as `refs/worktree/...` and `refs/bisect/...`; they go with it."""
    todo, looked = ["refs"], 0
    while todo:
        below = todo.pop()
        try:
            with folder(env.admin_dir, below) as here:
                names = here.names()[: max(0, _OWN_REFS_MAX - looked)]
                looked += len(names)
                kinds = {name: seen.st_mode for name in names if (seen := here.look(name)) is not None}
                todo += [f"{below}/{name}" for name, mode in kinds.items() if stat.S_ISDIR(mode)]
                yield from [here.read(name, 128, linked=True) or b"" for name, mode in kinds.items() if stat.S_ISREG(mode)]
        except OSError:
            continue


def _named(oids: Sequence[str]) -> str:
    return some_of([oid[:12] for oid in oids])


# Rescue
# ------
# Nothing an agent leaves behind is lost: every non-ignored file and every commit becomes reachable from a ref.
#
# Leftover files go onto the work branch when HEAD is on it. What has no place there goes to the attempt's rescue ref: work on a
# detached HEAD or on another branch, files inside nested repositories. Every other commit that the attempt came by (amended, reset,
# rebased away, see `tips`) goes to a ref beside it: who merges the rescue ref gets nothing back that the agent took back. Commits
# are built by plumbing in a temporary index, so locks, hooks, merges in progress and signing of the worktree do not matter.
# Symbolic links are stored as links: nothing outside the worktree is ever read.
#
# The steps in order: objects are written, then refs move by compare-and-swap, then the worktree's index follows. A crash between
# any two loses nothing, and calling again finishes the work.


_INDEX_MAX = 2**30
_APART = "nightcrew: what a gate changed"


@dataclass(frozen=True, slots=True)
class Secured:
    """What an attempt left, all of it reachable from `tip`, `rescue` or the ref beside that."""

    tip: str
    """Commit of the work branch; the base when the agent deleted the branch."""
    commits: int
    """From the base to `tip`."""
    files: int
    plus: int
    minus: int
    rescue: str | None
    """Commit of the attempt's rescue ref, or None when it has none."""
    notes: tuple[str, ...] = ()
    """One line each: what is unusual and where it was kept."""
    unkept: int = 0
    """Commits that were seen and are on no rescue ref: more than one call takes, or what git could not read. `notes` name them."""
    refused: tuple[str, ...] = ()
    """Leftover files below the top whose names git does not take, at most `storing.REFUSED_MAX`: they are on no ref."""


def secure_here(asked: Environment, message: bytes, *, onto_branch: bool, always: bool, most: int) -> Secured:
    """Make everything the attempt left reachable; call it when the attempt's processes have ended. Safe to call again.

    `message` is that of commits made for leftover work, see `full_message`. The rescue ref reaches it too; `always` creates that ref even
    when nothing was left. Without `onto_branch` the branch, the index and the worktree stay as they are: only the rescue ref moves, and
    commits, files and lines are not counted. Of the tips that nothing but its logs remembers, the newest `most` are kept.
    Raises DiskFull or ToolFailed; the files and refs are then as before. When nothing changed it costs one process or none.
    """
    notes = changes.disarm(asked)
    with _opened(asked) as (env, scratch):
        found = refs_of(env)
        gone = [repository.set_aside(env.repo, ref, f"commit {found.pop(ref)[:12]}, which is gone") for ref in _gone(env, found)]
        notes += gone[: changes.SHOWN]
        tip = found.get(env.branch_ref)
        scene = _look(env, scratch, found, notes)
        commit = Committer(env.repo, scene, message)
        tree = commit.tree(notes) if scene.changes.files else None
        on_branch = scene.own and scene.changes.branch == env.branch_ref and tip is not None and tip == scene.changes.head
        if tree and on_branch and onto_branch and tip:
            try:
                tip = _advance(env, scene, tip, commit.make(tree, [tip]))
                tree = None
            except ToolFailed as error:  # a lock that a killed git left behind, for example
                notes.append(f"{env.branch} could not be moved, so leftover work is on {env.rescue_ref}: {error.why}")
        elif tree and not on_branch:
            notes.append(f"HEAD was not on {env.branch}: leftover work is on {env.rescue_ref}")
        kept = _rescue(env, commit, _Left(tip, found, tree, on_branch, always, most), notes)
        if not scene.own:
            _mend_head(env, tip or env.base)
    said, stands = (*notes, *scene.changes.warnings), tip or env.base
    secured = _counted(env, stands, kept, said) if onto_branch else Secured(stands, 0, 0, 0, 0, kept.rescue, said, kept.unkept)
    return replace(secured, refused=tuple(commit.refused))


def set_apart(asked: Environment, message: bytes, tip: str) -> Secured:
    """Put the branch, the index and the files back to `tip`, and keep what was changed since on the ref beside the rescue ref.

    This is for changes that a gate made to work secured at `tip`, which are not the agent's. Call it when no process of the gate is left,
    and where HEAD was on the work branch before the gate. `notes` say what was set apart. Safe to call again. Raises as `secure_here`.
    """
    notes = changes.disarm(asked)
    with _opened(asked) as (env, scratch):
        found = refs_of(env)
        scene = _look(env, scratch, found, notes)
        commit = Committer(env.repo, scene, message)
        stand = scene.changes.head or tip
        tree = commit.tree(notes) if scene.changes.files else None
        apart, branch = commit.make(tree, [stand]) if tree else stand, found.get(env.branch_ref, "")
        if news := [one for one in (branch, apart) if one and not env.repo.has(tip, one)]:
            _keep_beside(env, news, found.get(env.tips_ref))
            what = _changed_files(env, tip, news[-1])
            notes.append(f"its gate changed {what}: that is no part of the result, and {env.tips_ref} keeps it")
        if branch != tip:
            repository.move(env.repo, env.branch_ref, tip, branch, _APART)
        if apart != tip and scene.own and scene.changes.branch == env.branch_ref:
            env.repo.git.run(scene.place, "read-tree", "--reset", "-u", tip, env={"GIT_INDEX_FILE": str(scene.index)}, deadline_s=BULK_S)
            scene.index.replace(env.admin_dir / "index")
    return Secured(tip, 0, 0, 0, 0, found.get(env.rescue_ref), tuple(notes), refused=tuple(commit.refused))


def _keep_beside(env: Environment, news: Sequence[str], old: str | None) -> None:
    """Let the ref beside the rescue ref, which stands at `old`, reach these commits too."""
    new = old
    for one in news:
        if new is None or not env.repo.has(new, one):
            new = joined_tips(env, one, new if new is None or not env.repo.has(one, new) else None)
    if new is not None and new != old:
        repository.move(env.repo, env.tips_ref, new, old or "", _APART)


def _changed_files(env: Environment, tip: str, apart: str) -> str:
    """Return the number of files that differ, and the first names, in words."""
    names = env.repo.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", tip, apart, deadline_s=BULK_S).text.split("\0")[:-1]
    return f"{many(len(names), 'file')} ({some_of(names, changes.SHOWN)})"


@dataclass(frozen=True, slots=True)
class _Left:
    """What remains to be kept after the work branch got its share."""

    tip: str | None
    found: Mapping[str, str]
    """The task's refs, as they were found."""
    tree: str | None
    on_branch: bool
    always: bool
    most: int


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the rescue refs of the attempt hold now."""

    rescue: str | None
    unkept: int
    """Commits that were seen and are on no rescue ref."""


def _rescue(env: Environment, commit: Committer, left: _Left, notes: list[str]) -> _Kept:
    """Move the rescue ref to what was left last, where HEAD is, and the ref beside it to every other commit that was seen."""
    scene = commit.scene
    stand = (left.tip if left.on_branch else scene.changes.head) or left.tip or env.base
    more = unkept(env, left.found, {stand}, left.most)
    notes += more.notes
    if more.tips:
        _keep_tips(env, commit, more.tips, left.found.get(env.tips_ref))
    if more.tips or env.tips_ref in left.found:
        notes.append(f"{env.tips_ref} keeps what it amended, reset or rebased away, or committed beside its result")
    rescue = left.found.get(env.rescue_ref)
    tree = commit.with_nested(left.tree, stand, scene.changes.nested, notes)
    if left.always or more.tips or tree or stand != env.base:
        rescue = _keep_result(env, commit, rescue, stand, tree)
    return _Kept(rescue, more.left_out)


def joined_tips(env: Environment, tip: str, old: str | None) -> str:
    """What the ref beside the rescue ref must stand at, which stands at `old`, to reach `tip` too. Raises ToolFailed."""
    if old is None:
        return tip
    return env.repo.write_commit(env.repo.tree(tip), (tip, old), full_message("nightcrew: amended or rebased", {}))


def _keep_tips(env: Environment, commit: Committer, found: Sequence[str], old: str | None) -> None:
    """One move of the ref, whatever their number: commits of ours hold so many of them each, and the one before."""
    new = old
    for at in range(0, len(found), KEPT_MAX):
        parents = [*found[at : at + KEPT_MAX], *([new] if new else [])]
        new = parents[0] if len(parents) == 1 else commit.make(env.repo.tree(parents[0]), parents)
    repository.move(env.repo, env.tips_ref, new or "", old or "", "nightcrew: rescue")


def _keep_result(env: Environment, commit: Committer, old: str | None, stand: str, tree: str | None) -> str:
    """The rescue ref, so that it reaches `stand` with the files of `tree`, and what it reached before."""
    if old is not None and env.repo.has(old, stand) and (tree is None or tree == env.repo.tree(old)):
        return old
    new = stand if tree is None else commit.make(tree, [stand])
    if old is not None and not env.repo.has(new, old):
        new = commit.make(env.repo.tree(new), [new, old])
    if old is None and new == env.base and environments.write_rescue(env.repo, env.rescue_ref, new):
        return new
    repository.move(env.repo, env.rescue_ref, new, old or "", "nightcrew: rescue")
    return new


def _look(env: Environment, scratch: Path, found: Mapping[str, str], notes: list[str]) -> Scene:
    """See the worktree through its own HEAD and index; when those are gone or rewired, through the repository alone."""
    git, index, tip = env.repo.git, scratch / "index", found.get(env.branch_ref, env.base)
    try:
        check_admin(env)
        if (env.place.top / ".git").is_dir():
            notes.append("the agent put a repository of its own in place of the worktree: only its files were kept, not its history")
        with open_plain(env.admin_dir / "index") as source, index.open("xb") as copy:
            stood = os.fstat(source.fileno())
            if stood.st_size > _INDEX_MAX:
                raise OSError(errno.EFBIG, "the index is too large", str(env.admin_dir / "index"))
            shutil.copyfileobj(source, copy)
        # git reads a file again whose time, in seconds, is that of the index or later: a newer copy would hide what changed in that second.
        os.utime(index, ns=(stood.st_mtime_ns, stood.st_mtime_ns))
        is_untouched = found.get(env.branch_ref) == env.base and environments.is_untouched(env)
        changes = Changes(env.base, env.branch_ref) if is_untouched else observe(git, env.place)
        return Scene(env.place, index, changes, own=True)
    except (NightcrewError, OSError) as error:
        if isinstance(error, DiskFull) or (isinstance(error, OSError) and files.is_no_space(error)):
            raise
        why = error.line() if isinstance(error, NightcrewError) else str(error)
        mark = TAMPERING if isinstance(error, Tampered) and env.alone is None else ""
    notes.append(f"{mark}HEAD or index of the worktree could not be used, so its files were compared with the branch: {why}")
    place = replace(env.place, git_dir=env.repo.common_dir)
    index.unlink(missing_ok=True)
    git.run(env.repo.store, "read-tree", tip, env={"GIT_INDEX_FILE": str(index)})
    if not env.place.top.is_dir():
        return Scene(env.repo.store, index, Changes(head=tip, branch=None), own=False)
    seen = observe(git, place, index=index)
    return Scene(place, index, replace(seen, head=tip, branch=None), own=False)


def _mend_head(env: Environment, tip: str) -> None:
    """Where HEAD is gone, let the worktree stand on `tip`: without one git does not know the worktree, and could not even remove it."""
    with contextlib.suppress(FileNotFoundError), folder(env.admin_dir) as here:
        if here.look("HEAD") is None and not registration.is_unusual(env.repo):
            here.replace("HEAD", f"{tip}\n".encode())


@contextlib.contextmanager
def _opened(asked: Environment) -> Iterator[tuple[Environment, Path]]:
    """Bring the files in sight, and give a directory for the temporary index: on the disk of the worktree's own index where there is one,
    so that the temporary one can replace it by rename."""
    with shown(asked) as env:
        place = env.admin_dir if env.admin_dir.is_dir() else env.repo.git.scratch()
        with wrap_os_errors(place), locked_directory(place, "nightcrew.") as scratch:
            yield env, Path(scratch)


def _gone(env: Environment, found: Mapping[str, str]) -> list[str]:
    """The work branch, or one beside it, that names a commit which is not there: no verb that reads all branches would work any more."""
    ours = [] if has_successor(env) else [ref for ref in found if ref.startswith(f"{repository.HEADS}/")]
    asked = [ref for ref in ours if found[ref] != env.base and not _is_loose(env, found[ref])]
    if not asked:
        return []
    names = "".join(f"{found[ref]}^{{commit}}\n" for ref in asked).encode()
    answers = env.repo.run("cat-file", "--batch-check", stdin=names).text.splitlines()
    return [ref for ref, answer in zip(asked, answers, strict=True) if answer.endswith(" missing")]


def _is_loose(env: Environment, oid: str) -> bool:
    try:
        with folder(env.repo.common_dir / "objects", oid[:2]) as here:
            loose = here.look(oid[2:])
    except OSError:
        return False
    return loose is not None and loose.st_size > 0


def _advance(env: Environment, scene: Scene, old: str, new: str) -> str:
    """Move the work branch to `new`, then the worktree's index, so that `git status` there is clean."""
    repository.move(env.repo, env.branch_ref, new, old, "nightcrew: leftover work")
    scene.index.replace(env.admin_dir / "index")
    return new


def _counted(env: Environment, tip: str, kept: _Kept, notes: tuple[str, ...]) -> Secured:
    if tip == env.base:
        return Secured(tip, 0, 0, 0, 0, kept.rescue, notes, kept.unkept)
    commits = int(env.repo.run("rev-list", "--count", f"{env.base}..{tip}").text)
    flags = ("-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv")
    rows = env.repo.run("diff-tree", *flags, env.base, tip, deadline_s=BULK_S).out.split(b"\0")
    counts = [row.split(b"\t")[:2] for row in rows if row]
    plus, minus = (sum(int(row[side]) for row in counts if row[side] != b"-") for side in (0, 1))
    return Secured(tip, commits, len(counts), plus, minus, kept.rescue, notes, kept.unkept)


def left_message(task: str) -> str:
    """Return the subject of the commit of what an agent left uncommitted."""
    return f"nightcrew: work left by {task}"


def full_message(message: str, trailers: Mapping[str, str]) -> bytes:
    """The message of a commit of ours."""
    lines = [f"{key}: {' '.join(value.split())}" for key, value in trailers.items()]
    text = "\n\n".join(part for part in (message.strip(), "\n".join(lines)) if part) + "\n"
    return text.replace("\0", "").encode("utf-8", "replace")
