"""Tell a judge which candidates it compares, measure a candidate when it ends, and find the tasks of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from supervisor.kernel.errors import HostError, Refused
from supervisor.kernel.gate_files import flags
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import TaskState
from supervisor.results import candidates, comparison, ranking
from supervisor.store import queries
from worktrees import merge, tree_merge

if TYPE_CHECKING:
    from supervisor.store.ledger import Ledger
    from supervisor.store.rows import LaunchRow
    from worktrees.repository import Repository


def members(ledger: Ledger, names: Sequence[str]) -> list[str]:
    """Return the tasks to hold back or to let go on where a person names these: for a group its candidates and judges."""
    found = candidates.groups(ledger.db, names)
    every = (((*found[name].candidates, *found[name].judges) if name in found else (name,)) for name in names)
    return list(dict.fromkeys(task for tasks in every for task in tasks))


def to_retry(ledger: Ledger, names: Sequence[str]) -> list[str]:
    """Return the tasks that run again with these: for a group its tasks that are not done, and the group. Raises Refused for a group that
    has its choice."""
    found = candidates.groups(ledger.db, names)
    made = candidates.choices(ledger.db, list(found))
    wanted: list[str] = []
    for name in names:
        if name in made:
            why = f"{made[name].winner} was chosen of it, and that stays so"
            raise Refused("cannot retry", on=name, why=why, hint=f"nightcrew retry {made[name].winner}, or another candidate")
        views = queries.several(ledger.db, members(ledger, [name])) if name in found else []
        wanted += [*(view.id for view in views if view.state is not TaskState.DONE), name]
    return list(dict.fromkeys(wanted))


PATCH_MAX = 8 * 2**20
"""Bytes of one change that are read at most: what is larger is not shown at all."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What one judge is to see."""

    prompt: str
    """Of the task that the candidates had."""
    tips: Mapping[str, str]
    """By letter the commit that holds what a candidate left; empty: it left nothing."""


def judged(ledger: Ledger, row: LaunchRow) -> Judged:
    """Return what the judge of `row` sees: the candidates that are done now."""
    views = {view.id: view for view in queries.several(ledger.db, row.after)}
    group = next(iter(candidates.standings(ledger.db, list(views)).values())).group
    known = ranking.letters(list(views), comparison.shown(views.values()), group, row.spec.judge_round)
    first = next(iter(views))
    asked = ledger.launch_row(first).spec.prompt or queries.one(ledger.db, group).title
    return Judged(asked, {letter: (views[one].result or {}).get("tip") or "" for letter, one in known.items()})


def told(repository: Repository, row: LaunchRow, seen: Judged) -> LaunchRow:
    """Return the row with the judge's whole prompt, and without the words that name the candidates. Git reads each change: call it in a
    thread."""
    diffs = {letter: merge.patch(repository, row.base_oid, tip, PATCH_MAX) if tip else b"" for letter, tip in seen.tips.items()}
    prompt = ranking.told(seen.prompt, row.spec.prompt or "", diffs)
    return replace(row, after=(), spec=replace(row.spec, prompt=prompt))


NAMED = 20
"""Changes that weaken a gate, of those that are found."""


def measures(repository: Repository, spec: TaskSpec, base: str | None, tip: str | None) -> Mapping[str, Any]:
    """Return by what a candidate is compared with the others of its group, beside its gate and its size: `weakens`, its changes that may
    make its gate say less; None where git could not tell. `base` and `tip`: the commits at the two ends of its work, which is secured."""
    return {"weakens": _weakens(repository, spec, base, tip)}


def _weakens(repository: Repository, spec: TaskSpec, base: str | None, tip: str | None) -> list[str] | None:
    if tip is None or base is None:
        return None
    try:
        diffs = tuple(tree_merge.read_patch(repository, base, tip)) if tip != base else ()
        found = flags(tree_merge.of_diffs(repository, base, diffs), spec.gate_words if spec.gate else "")
    except HostError:
        return None
    return [f"{flag.path}: {flag.why}" for flag in found if flag.weakens][:NAMED]
