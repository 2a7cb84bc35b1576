"""Removes a worktree: only when nothing could be lost, and only by git.

`inspect` names every reason to keep it; "could not look" is one. `remove` acts on that, first making everything reachable
from the rescue ref, and leaves the removal itself to `git worktree remove`, which has guards of its own. There is no fallback:
when git cannot remove a directory, it stays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from supervisor.kernel.errors import HostError, NotFound, Refused
from worktrees import changes, collect_work, commit_work, registration, repository
from worktrees.collect_work import HARD, Look, Reason, Why
from worktrees.commit_work import Secured
from worktrees.environments import Environment, check_admin, has_successor, is_locked, mend_link, open_env, take_away
from worktrees.git import wrap_os_errors
from worktrees.merge import Branches, Decision, Stand
from worktrees.private_repository import beside, is_removed, remove_beside
from worktrees.repository import Repository

_ROUNDS = 20
"""Times that a removal secures what one call left out."""


@dataclass(frozen=True, slots=True)
class Keep:
    """It stays; every reason that was found."""

    reasons: tuple[Reason, ...]
    commits: tuple[Stand, ...] = field(default=(), compare=False)
    """Of those that are not in the history of a branch of the person's: where their changes are."""
    head: str = field(default="", compare=False)
    """As of `Removable`, where it was looked at."""

    @property
    def hard(self) -> bool:
        return any(reason.why in HARD for reason in self.reasons)

    def __str__(self) -> str:
        return "; ".join(map(str, self.reasons))


@dataclass(frozen=True, slots=True)
class Removable:
    """Nothing would be lost. `head` is the commit that was looked at."""

    head: str
    is_untouched: bool = field(default=False, compare=False)
    """As `Look.is_untouched`."""
    why: str = field(default="", compare=False)
    """What makes it safe to remove."""
    commits: tuple[Stand, ...] = field(default=(), compare=False)
    """As `Keep.commits`."""


Alive = Callable[[Path], Sequence[int]]
"""Ids of the live processes that work inside a directory."""


def survey(repo: Repository, envs: Sequence[Environment]) -> Branches:
    """What looks at several worktrees of one repository have in common: asked once, and to be used within seconds. Raises as `Git.run`."""
    changes.disarm_objects(repo)
    listed = repository.over_all(repo, "for-each-ref", "--format=%(objectname)", *(env.branch_ref for env in envs)).text.split()
    return Branches(repo, [*listed, *(env.base for env in envs)])


def inspect(env: Environment, is_alive: Alive, known: Branches | None = None) -> Keep | Removable:
    """Decide whether `remove` may act; `known` comes from `survey`. Only reads, but sets aside files that would make git wait and restores
    a `.git` file that is gone. Raises nothing that a worktree's state can cause."""
    try:
        mend_link(env)
        with open_env(env) as seen:
            return _verdict(seen, is_alive, known)
    except NotFound as error:
        return Keep((Reason(Why.MISSING, error.line()),))
    except Refused as error:
        return Keep((Reason(Why.FOREIGN, error.line()),))
    except HostError as error:
        return Keep((Reason(Why.UNKNOWN, error.line()),))


def remove(
    env: Environment, is_alive: Alive, *, discard: bool = False, verdict: Keep | Removable | None = None, unwanted: str = ""
) -> Secured:
    """Remove the worktree, and the work branch when this worktree had it. Returns what was secured first.

    Raises Refused for every reason to keep it; what a person may throw away (`discard=True`: files, unmerged commits) is
    reachable from the rescue ref even then. Ignored files are the exception: they are listed, and gone with `discard`. `verdict` is what
    `inspect` found a moment ago; without it, this looks. `unwanted`: a commit that need not be merged, since a ref keeps it. What is
    returned counts nothing.
    """
    verdict = verdict or inspect(env, is_alive)
    if isinstance(verdict, Keep) and verdict.hard:
        raise _refused(env, verdict)
    secured = _secured_before(env, verdict) or _secured(env, f"nightcrew: {env.name} as it was before removal")
    if isinstance(verdict, Keep) and not discard:
        raise _refused(env, verdict, f"all but ignored files, also on {env.rescue_ref}")
    if not discard:
        _refuse_unkept(env, secured)
    with env.repo.git.lock(env.repo.common_dir):  # only now: looking and securing take as long as an agent likes
        _refuse_newcomers(env, is_alive)
        _refuse_moved(env, verdict, secured.tip, unwanted)
        take_away(env, force=isinstance(verdict, Keep))
        _delete_branch(env, secured.tip)
    return secured


def sweep(env: Environment, is_alive: Alive) -> bool:
    """Remove worktree and work branch of an attempt that left nothing: no commit, no file, ignored ones included. False, with everything
    as it was, when there is any reason to keep it."""
    verdict = inspect(env, is_alive)
    if not isinstance(verdict, Removable) or verdict.head != env.base or not verdict.is_untouched:
        return False
    with env.repo.git.lock(env.repo.common_dir):
        _refuse_newcomers(env, is_alive)
        take_away(env, force=False)
        _delete_branch(env, env.base)
    return True


def is_gone(env: Environment) -> bool:
    """Whether somebody removed its files, wherever they were."""
    layered = env.layers is not None and bool(env.layers.upper)
    return not os.path.lexists(env.path) and not (layered and os.path.lexists(beside(env.path)) and not is_removed(env.path))


def forget(env: Environment) -> Secured | None:
    """Drop git's record of a worktree whose directory somebody removed; its branch stays, its commits stay. None when git has none, and
    then what lies beside the worktree goes, which a removal left that was cut off.

    Raises Refused when the directory exists or a person locked it, Tampered as `open_env`.
    """
    if registration.find(env.repo, env.path, b"") is None:
        if is_gone(env) and is_removed(env.path):
            with wrap_os_errors(beside(env.path)):
                remove_beside(env.path)
        return None
    _refuse_present(env)
    bare = replace(env, layers=None) if is_gone(env) else env  # what is in no layer any more cannot be brought in sight
    secured = _secured(bare, f"nightcrew: {env.name} after its directory was removed")
    _refuse_unkept(bare, secured)
    with env.repo.git.lock(env.repo.common_dir):
        check_admin(env)
        if is_locked(env):
            raise _still_there(env)
        take_away(bare, force=False)
    return secured


def finish(env: Environment, *, discard: bool = False) -> None:
    """Delete the work branch of a worktree that is gone, as `remove` and `sweep` do: one that was cut off had no time for it. It stays when
    it has commits that the rescue ref does not keep or, without `discard`, that are on no other branch; or when another worktree has it."""
    known = commit_work.refs_of(env)
    tip = known.get(env.branch_ref, "")
    if not tip or has_successor(env):
        return
    with env.repo.git.lock(env.repo.common_dir):
        if tip == env.base or (_keeps(env, known, tip) and (discard or not Branches(env.repo, [tip]).decide(tip).unmerged)):
            _delete_branch(env, tip)


def _keeps(env: Environment, known: Mapping[str, str], tip: str) -> bool:
    rescue = known.get(env.rescue_ref, "")
    return bool(rescue) and env.repo.has(rescue, tip)


def _refuse_present(env: Environment) -> None:
    check_admin(env)
    if os.path.lexists(env.path) or is_locked(env):
        raise _still_there(env)


def _still_there(env: Environment) -> Refused:
    return Refused("the worktree is not abandoned", on=str(env.path), why="it exists, or it is locked", kept="it")


def _verdict(env: Environment, is_alive: Alive, known: Branches | None) -> Keep | Removable:
    hard = _hard_reasons(env, is_alive)
    if hard:
        return Keep(tuple(hard))
    seen = collect_work.look_at_work(env, objects=known is None)
    unread, decided = _decided(env, seen, known)
    reasons = (*seen.reasons, *unread, *_unmerged(env, decided))
    if reasons or seen.head is None:
        return Keep(reasons or (Reason(Why.UNKNOWN, "HEAD has no commit"),), decided.commits, seen.head or "")
    why = "it has no commit of its own" if seen.head == env.base else decided.why
    return Removable(seen.head, seen.is_untouched, why, decided.commits)


def _hard_reasons(env: Environment, is_alive: Alive) -> list[Reason]:
    pids = is_alive(env.path)
    reasons = [Reason(Why.ALIVE, " ".join(map(str, pids)))] if pids else []
    if is_locked(env):
        reasons.append(Reason(Why.LOCKED, "an attempt or a person holds it"))
    return reasons


def _decided(env: Environment, seen: Look, known: Branches | None) -> tuple[list[Reason], Decision]:
    """Of HEAD, and of the work branch where HEAD is not on it: removal takes that along. The one that has most to lose decides."""
    tip = None if has_successor(env) else seen.tip
    stand = {commit for commit in (seen.head, tip) if commit}
    if env.private is not None and not all((known is not None and commit in known) or env.repo.commit(commit) for commit in stand):
        return [Reason(Why.UNMERGED, "they were not taken out of its own repository yet")], Decision(0, "")
    known = known or Branches(env.repo, stand)
    return [], max((known.decide(commit) for commit in stand), key=lambda each: each.unmerged, default=Decision(0, ""))


def _unmerged(env: Environment, decided: Decision) -> list[Reason]:
    if not decided.unmerged:
        return []
    more = f"; {decided.why}" if decided.why else ""
    return [Reason(Why.UNMERGED, f"{decided.unmerged} of them on {env.branch}{more}")]


def _refuse_moved(env: Environment, verdict: Keep | Removable, tip: str, unwanted: str) -> None:
    """A branch that held the work may have moved since it was looked at: asked again, unless a person said that the commits may go."""
    if isinstance(verdict, Keep) and any(reason.why is Why.UNMERGED for reason in verdict.reasons):
        return
    stand = {commit for commit in (verdict.head, "" if has_successor(env) else tip) if commit} - {unwanted}
    known = Branches(env.repo, stand)
    reasons = [reason for commit in stand for reason in _unmerged(env, known.decide(commit))]
    if reasons:
        raise _refused(env, Keep(tuple(reasons)))


def _refused(env: Environment, verdict: Keep, kept: str = "the worktree as it is") -> Refused:
    soft = not verdict.hard
    hint = "merge the branch, or nightcrew clean --yes --discard NAME" if soft else ""
    return Refused("the worktree is not removed", on=str(env.path), why=str(verdict), kept=kept, hint=hint)


def _secured(env: Environment, message: str) -> Secured:
    """`snapshot`, again as long as there are more commits than one call takes; what is left out then could not be read."""
    secured = collect_work.snapshot(env, message)
    for _ in range(_ROUNDS):
        before, secured = secured, collect_work.snapshot(env, message) if secured.unkept else secured
        if secured.unkept in (0, before.unkept):
            return secured
    raise _refused(env, _unkept(secured), "the worktree with its logs")


def _secured_before(env: Environment, verdict: Keep | Removable) -> Secured | None:
    """Return what `snapshot` would, without its look at the files: of a plain worktree where `inspect` saw no file that would be lost,
    whose rescue ref keeps HEAD, and whose logs remember nothing else. git itself looks for files once more as it removes such a worktree.
    None where `snapshot` must look."""
    if isinstance(verdict, Keep) or env.layers is not None or env.private is not None:
        return None
    found = commit_work.refs_of(env)
    if found.get(env.rescue_ref) != verdict.head or commit_work.unkept(env, found, {verdict.head}) != commit_work.Unkept():
        return None
    return Secured(found.get(env.branch_ref, env.base), 0, 0, 0, 0, verdict.head)


def _unkept(secured: Secured) -> Keep:
    return Keep((Reason(Why.UNKEPT, f"{secured.unkept} that only its logs remember"),))


def _refuse_unkept(env: Environment, secured: Secured) -> None:
    if secured.unkept:
        raise _refused(env, _unkept(secured), "the worktree with its logs")


def _refuse_newcomers(env: Environment, is_alive: Alive) -> None:
    """Securing took time: a process that came meanwhile keeps the worktree, and so does a link that was rewired."""
    with open_env(env):
        hard = _hard_reasons(env, is_alive)
    if hard:
        raise _refused(env, Keep(tuple(hard)))


def _delete_branch(env: Environment, tip: str) -> None:
    """Delete the work branch when it still stands where it was secured and no other checkout, as of a retry, has it."""
    repository.clear(env.repo, env.branch_ref)
    stands = commit_work.refs_of(env).get(env.branch_ref, "")
    if stands == tip and not registration.has_checkout(env.repo, env.branch_ref):
        repository.move(env.repo, env.branch_ref, "", tip, "")
    elif not stands:
        repository.forget_asides(env.repo, env.branch_ref)
