"""Nothing an agent leaves behind is lost: every non-ignored file and every commit becomes reachable from a ref.

Leftover files go onto the work branch when HEAD is on it. What has no place there goes to the attempt's rescue ref: work on a
detached HEAD or on another branch, files inside nested repositories. Every other commit that the attempt came by (amended, reset,
rebased away, see `tips`) goes to a ref beside it: who merges the rescue ref gets nothing back that the agent took back. Commits are
built by plumbing in a temporary index, so locks, hooks, merges in progress and signing of the worktree do not matter. Symbolic links
are stored as links: nothing outside the worktree is ever read.

The steps in order: objects are written, then refs move by compare-and-swap, then the worktree's index follows. A crash
between any two loses nothing, and calling again finishes the work.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.core.errors import DiskFull, NightcrewError, Tampered, ToolFailed, one_line
from supervisor.core.result import TAMPERING
from supervisor.host import files
from supervisor.host.foreign import folder, open_plain
from supervisor.host.scratch import locked_directory
from worktrees import blocking_files, branching, refs, registration, tips, untouched
from worktrees.changes import Changes, observe
from worktrees.environment import Environment, has_successor
from worktrees.environments import check_admin, shown
from worktrees.failures import wrap_os_errors
from worktrees.git import BULK_S, Git
from worktrees.hardening import IDENTITY
from worktrees.storing import Committer, Scene

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
    notes = blocking_files.disarm(asked)
    with contextlib.ExitStack() as stack:
        env = stack.enter_context(shown(asked))
        stack.enter_context(wrap_os_errors(_scratch(env)))
        scratch = stack.enter_context(locked_directory(_scratch(env), "nightcrew."))
        found = tips.refs_of(env)
        gone = [refs.set_aside(env.repo, ref, f"commit {found.pop(ref)[:12]}, which is gone") for ref in _gone(env, found)]
        notes += gone[: blocking_files.SHOWN]
        tip = found.get(env.branch_ref)
        scene = _look(env, Path(scratch), found, notes)
        commit = Committer(env.repo.git, scene, message)
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
    notes = blocking_files.disarm(asked)
    with contextlib.ExitStack() as stack:
        env = stack.enter_context(shown(asked))
        stack.enter_context(wrap_os_errors(_scratch(env)))
        scratch = stack.enter_context(locked_directory(_scratch(env), "nightcrew."))
        found = tips.refs_of(env)
        scene = _look(env, Path(scratch), found, notes)
        commit = Committer(env.repo.git, scene, message)
        stand = scene.changes.head or tip
        tree = commit.tree(notes) if scene.changes.files else None
        apart, branch = commit.make(tree, [stand]) if tree else stand, found.get(env.branch_ref, "")
        if news := [one for one in (branch, apart) if one and not _contains(env.repo.git, env, tip, one)]:
            _keep_beside(env, news, found.get(env.tips_ref))
            what = _changed_files(env, tip, news[-1])
            notes.append(f"its gate changed {what}: that is no part of the result, and {env.tips_ref} keeps it")
        if branch != tip:
            refs.move(env.repo, env.branch_ref, tip, branch, _APART)
        if apart != tip and scene.own and scene.changes.branch == env.branch_ref:
            env.repo.git.run(scene.place, "read-tree", "--reset", "-u", tip, env={"GIT_INDEX_FILE": str(scene.index)}, deadline_s=BULK_S)
            scene.index.replace(env.admin_dir / "index")
    return Secured(tip, 0, 0, 0, 0, found.get(env.rescue_ref), tuple(notes), refused=tuple(commit.refused))


def _keep_beside(env: Environment, news: Sequence[str], old: str | None) -> None:
    """Let the ref beside the rescue ref, which stands at `old`, reach these commits too."""
    new = old
    for one in news:
        if new is None or not _contains(env.repo.git, env, new, one):
            new = joined_tips(env, one, new if new is None or not _contains(env.repo.git, env, one, new) else None)
    if new is not None and new != old:
        refs.move(env.repo, env.tips_ref, new, old or "", _APART)


def _changed_files(env: Environment, tip: str, apart: str) -> str:
    """Return the number of files that differ, and the first names, in words."""
    argv = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", tip, apart)
    names = [name for name in env.repo.git.run(env.repo.store, *argv, deadline_s=BULK_S).out.split(b"\0") if name]
    shown_names = ", ".join(name.decode("utf-8", "backslashreplace") for name in names[: blocking_files.SHOWN])
    more = f" and {len(names) - blocking_files.SHOWN} more" if len(names) > blocking_files.SHOWN else ""
    return one_line(f"{len(names)} file{'' if len(names) == 1 else 's'} ({shown_names}{more})")


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
    more = tips.unkept(env, left.found, {stand}, left.most)
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
    git, message = env.repo.git, full_message("nightcrew: amended or rebased", {})
    tree = git.run(env.repo.store, "rev-parse", "--verify", f"{tip}^{{tree}}").text
    return git.run(env.repo.store, "commit-tree", tree, "-p", tip, "-p", old, "-F", "-", stdin=message, env=IDENTITY).text


def _keep_tips(env: Environment, commit: Committer, found: Sequence[str], old: str | None) -> None:
    """One move of the ref, whatever their number: commits of ours hold so many of them each, and the one before."""
    new = old
    for at in range(0, len(found), tips.KEPT_MAX):
        parents = [*found[at : at + tips.KEPT_MAX], *([new] if new else [])]
        new = parents[0] if len(parents) == 1 else commit.make(commit.tree_of(parents[0]), parents)
    refs.move(env.repo, env.tips_ref, new or "", old or "", "nightcrew: rescue")


def _keep_result(env: Environment, commit: Committer, old: str | None, stand: str, tree: str | None) -> str:
    """The rescue ref, so that it reaches `stand` with the files of `tree`, and what it reached before."""
    git = env.repo.git
    if old is not None and _contains(git, env, old, stand) and (tree is None or tree == commit.tree_of(old)):
        return old
    new = stand if tree is None else commit.make(tree, [stand])
    if old is not None and not _contains(git, env, new, old):
        new = commit.make(commit.tree_of(new), [new, old])
    if old is None and new == env.base and branching.write_rescue(env.repo, env.rescue_ref, new):
        return new
    refs.move(env.repo, env.rescue_ref, new, old or "", "nightcrew: rescue")
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
        is_untouched = found.get(env.branch_ref) == env.base and untouched.is_untouched(env)
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


def _scratch(env: Environment) -> Path:
    """On the disk of the worktree's own index, so that the temporary one can replace it by rename."""
    return env.admin_dir if env.admin_dir.is_dir() else env.repo.git.scratch()


def _gone(env: Environment, found: Mapping[str, str]) -> list[str]:
    """The work branch, or one beside it, that names a commit which is not there: no verb that reads all branches would work any more."""
    ours = [] if has_successor(env) else [ref for ref in found if ref.startswith(f"{refs.HEADS}/")]
    asked = [ref for ref in ours if found[ref] != env.base and not _is_loose(env, found[ref])]
    if not asked:
        return []
    names = "".join(f"{found[ref]}^{{commit}}\n" for ref in asked).encode()
    answers = env.repo.git.run(env.repo.store, "cat-file", "--batch-check", stdin=names).text.splitlines()
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
    refs.move(env.repo, env.branch_ref, new, old, "nightcrew: leftover work")
    scene.index.replace(env.admin_dir / "index")
    return new


def _contains(git: Git, env: Environment, new: str, old: str) -> bool:
    return new == old or git.run(env.repo.store, "merge-base", "--is-ancestor", old, new, accept=(0, 1)).code == 0


def _counted(env: Environment, tip: str, kept: _Kept, notes: tuple[str, ...]) -> Secured:
    if tip == env.base:
        return Secured(tip, 0, 0, 0, 0, kept.rescue, notes, kept.unkept)
    git, store = env.repo.git, env.repo.store
    commits = int(git.run(store, "rev-list", "--count", f"{env.base}..{tip}").text)
    flags = ("-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv")
    rows = git.run(store, "diff-tree", *flags, env.base, tip, deadline_s=BULK_S).out.split(b"\0")
    counts = [row.split(b"\t")[:2] for row in rows if row]
    plus, minus = (sum(int(row[side]) for row in counts if row[side] != b"-") for side in (0, 1))
    return Secured(tip, commits, len(counts), plus, minus, kept.rescue, notes, kept.unkept)


def full_message(message: str, trailers: Mapping[str, str]) -> bytes:
    """The message of a commit of ours."""
    lines = [f"{key}: {' '.join(value.split())}" for key, value in trailers.items()]
    text = "\n\n".join(part for part in (message.strip(), "\n".join(lines)) if part) + "\n"
    return text.replace("\0", "").encode("utf-8", "replace")
