"""Remove worktrees whose work is safe; say why the rest stays."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.host import processes
from supervisor.kernel.errors import NightcrewError, Refused
from supervisor.kernel.names import Identity
from supervisor.results.verdicts import NO_CLAIMS, Claims
from supervisor.server.attempts.worktree_records import Environments
from supervisor.store.rows import AttemptRow, LaunchRow
from worktrees import commit_work, environments, removal, repository
from worktrees.collect_work import Why
from worktrees.environments import Environment
from worktrees.merge import Branches, Stand

if TYPE_CHECKING:
    from supervisor.server.loop import Loop


# Cleaning
# --------
# Worktrees of ended attempts are removed, or only looked at, some at a time: what git and the kernel say of all of them is asked
# once.
#
# Everything here runs in worker threads, and nothing touches the ledger. A removal that was interrupted is found as a worktree that
# is gone.


@dataclass(frozen=True, slots=True)
class Cleaning:
    """What a person allows `clean` to do."""

    remove: bool
    """Act, or only look."""
    ignored: bool
    """Ignored files (caches, build output) are no reason to stay."""
    discard: bool
    """Nor is work that only its rescue ref would keep."""
    forget: bool = False
    """Its rescue ref goes too, where that holds nothing beside the base: what was only tried out leaves no refs."""

    def overrules(self, verdict: removal.Keep) -> bool:
        """Whether this is enough to remove the worktree all the same. What is alive, locked or not ours always stays."""
        if self.discard:
            return not verdict.hard
        return self.ignored and all(reason.why is Why.IGNORED for reason in verdict.reasons)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worktree that may be removed, with what was asked once for several of them."""

    made: Environment | None
    """None: its launch did not come so far."""
    is_alive: Callable[[Path], Sequence[int]]
    """Who worked there when the look began."""
    known: Branches | None
    """Of its repository. None: that could not be asked for all together, so it is asked for each."""
    failed: str = ""
    """Why its environment cannot be known."""
    claims: Claims = NO_CLAIMS


@dataclass(frozen=True, slots=True)
class Decided:
    """What becomes of a worktree."""

    stays: bool
    why: str
    commits: tuple[Stand, ...] = ()
    """Where the changes are of its commits that no branch of the person's has in its history."""


class Cleaner:
    """Safe to use from several threads."""

    def __init__(self, places: Environments) -> None:
        self._environments = places

    def candidates(self, attempts: Sequence[tuple[AttemptRow, LaunchRow]], claims: Mapping[str, Claims]) -> list[Candidate]:
        """One for each attempt, to be used within seconds. `claims` by task."""
        occupied = processes.occupied()
        found = [self._made(row, launch) for row, launch in attempts]
        known = _surveyed([made for made, _ in found if made is not None and not removal.is_gone(made)])
        return [
            Candidate(
                made, lambda path: _pids(occupied(path)), known.get(made.repo.root) if made is not None else None, why,
                claims.get(row.task, NO_CLAIMS),
            )
            for (made, why), (row, _) in zip(found, attempts, strict=True)
        ]  # fmt: skip

    def _made(self, row: AttemptRow, launch: LaunchRow) -> tuple[Environment | None, str]:
        try:
            return self._environments.of(row, launch.root), ""
        except NightcrewError as error:
            return None, error.why or error.line()

    def clean(self, candidate: Candidate, how: Cleaning) -> Decided:
        """Remove the worktree of an ended attempt, or only look."""
        made = candidate.made
        if made is None:
            return Decided(stays=True, why=candidate.failed or "it was never finished")
        try:
            try:
                return self._clean(made, candidate, how)
            except Refused:  # the branch that had its commits may be another attempt's, and have gone since all were looked at
                return self._clean(made, replace(candidate, known=None), how)
        except NightcrewError as error:
            return Decided(stays=True, why=error.why or error.line())

    @staticmethod
    def _clean(made: Environment, candidate: Candidate, how: Cleaning) -> Decided:
        if removal.is_gone(made):
            if how.remove:
                removal.forget(made)
                if how.discard or not candidate.claims.held:
                    removal.finish(made, discard=how.discard)
            _forget(made, how)
            return Decided(stays=False, why="its files were removed already")
        environments.release(made)  # it is locked where its work could not be secured: no attempt owns it any more
        seen = removal.inspect(made, candidate.is_alive, candidate.known)
        verdict = _let_go(made, seen, candidate.claims)
        if candidate.claims.held and not how.discard:
            return Decided(stays=True, why=candidate.claims.held, commits=verdict.commits)
        if isinstance(verdict, removal.Keep) and not how.overrules(verdict):
            return Decided(stays=True, why=str(verdict), commits=verdict.commits)
        if how.remove:
            given = verdict.head if verdict is not seen else ""
            removal.remove(made, alive_inside, discard=isinstance(verdict, removal.Keep), verdict=verdict, unwanted=given)
            _forget(made, how)
        why = f"you allowed it: {verdict}" if isinstance(verdict, removal.Keep) else verdict.why
        return Decided(stays=False, why=why, commits=verdict.commits)


def _let_go(made: Environment, seen: removal.Keep | removal.Removable, claims: Claims) -> removal.Keep | removal.Removable:
    """What a person rejected, or did not choose, need not be merged, as long as its ref keeps it."""
    if not claims.unwanted or not isinstance(seen, removal.Keep) or seen.head != claims.unwanted:
        return seen
    if any(reason.why is not Why.UNMERGED for reason in seen.reasons):
        return seen
    stands = repository.over_all(made.repo, "for-each-ref", "--format=%(objectname)", claims.ref).text
    if stands != claims.unwanted:
        return seen
    return removal.Removable(seen.head, why=f"{claims.why}; {claims.ref} keeps it", commits=seen.commits)


def _forget(made: Environment, how: Cleaning) -> None:
    """Drop a rescue ref that stands at the base, as `Cleaning.forget` says. Raises ToolFailed when it moved meanwhile."""
    if how.remove and how.forget and commit_work.refs_of(made).get(made.rescue_ref) == made.base:
        repository.move(made.repo, made.rescue_ref, "", made.base, "")


def alive_inside(path: Path) -> list[int]:
    """Ids of the processes that work in a directory now."""
    return _pids(processes.occupied()(path))


def _pids(found: Sequence[Identity]) -> list[int]:
    return [who.pid for who in found]


def _surveyed(found: Sequence[Environment]) -> dict[Path, Branches]:
    """By the checkout whose repository could be asked."""
    known: dict[Path, Branches] = {}
    for repo in {env.repo.root: env.repo for env in found}.values():
        with contextlib.suppress(NightcrewError):  # the look at each worktree meets it again, and says so
            known[repo.root] = removal.survey(repo, [env for env in found if env.repo.root == repo.root])
    return known


async def handle(
    loop: Loop, *, attempts: Sequence[tuple[str, int]], remove: bool, ignored: bool, discard: bool, forget: bool = False
) -> dict[str, Any]:
    """`attempts`: pairs of a task's full id and an epoch; whoever has many asks for some at a time. `remove`: act, or only look. `ignored`:
    also those that hold ignored files. `discard`: also what is only on a rescue ref. `forget`:
    drop rescue refs that hold nothing beside the base.

    Returns `removable` (removed, when asked to) and `kept`, each item with `attempt`, `path`, `why` and `commits`: those that no branch of
    the person's has in its history (`commit`, `subject`, `state`, `by`). One whose worktree is removed already is in neither.
    """
    wanted, how = set(attempts), Cleaning(remove=remove, ignored=ignored, discard=discard, forget=forget)
    async with loop.jobs.cleaning if how.remove else contextlib.nullcontext():
        rows = [row for row in loop.ledger.worktrees({task for task, _ in wanted}) if (row.task, row.epoch) in wanted]
        decided = await loop.jobs.clean(rows, how)
    answer: dict[str, Any] = {"removable": [], "kept": []}
    for row, each in zip(rows, decided, strict=True):
        item = {
            "attempt": f"{row.task}:{row.epoch}",
            "path": row.worktree,
            "why": each.why,
            "commits": [asdict(one) for one in each.commits],
        }
        answer["kept" if each.stays else "removable"].append(item)
    return answer
