"""Results by where they are: those that can be taken, done with something that the checkout of their project lacks and not rejected as they
are now, and those that it has."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from supervisor.core.errors import NightcrewError
from supervisor.core.landing import EntryState
from supervisor.core.reviews import Decision
from supervisor.faces import conflicts as conflict_words
from supervisor.host.paths import Home
from supervisor.ledger import branches, queries, reviews, store, trains
from supervisor.ledger.queries import TaskView
from supervisor.ledger.trains import Outcome

if TYPE_CHECKING:
    from worktrees.conflicts import Standing

LOOKED_AT = 200
"""Branches of one project."""
PROJECTS = 5
"""The newest runs' projects are looked at, this many."""


@dataclass(frozen=True, slots=True)
class Results:
    """What a look found."""

    to_take: list[TaskView] = field(default_factory=list)
    """Newest first in each project."""
    merged: dict[str, str] = field(default_factory=dict)
    """By task, the branch that is checked out and has its result."""
    conflicts: dict[str, str] = field(default_factory=dict)
    """Of those that can be taken with whom they conflict, as the supervisor found it last and as far as that still holds."""


def find(where: Home) -> Results:
    """By three gits a project; a repository that cannot be read has none."""
    found = Results()
    with contextlib.closing(store.connect_readonly(where.ledger)) as db:
        for run in _newest_of_projects(db):
            every = branches.of_project(db, run.project, LOOKED_AT)[0]
            ended = [one.task for one in every if not one.living]
            views = {view.id: view for view in queries.several(db, ended) if (view.result or {}).get("commits")}
            if views:
                known = _Known(every, views, reviews.decisions(db, list(views)), trains.outcomes(db, views))
                with contextlib.suppress(NightcrewError):
                    _look(where, found, known)
    return found


@dataclass(frozen=True, slots=True)
class _Known:
    """Of one project, by task."""

    every: Sequence[branches.Branch]
    done: Mapping[str, TaskView]
    decided: Mapping[str, Decision]
    outcomes: Mapping[str, Outcome]


def _newest_of_projects(db: sqlite3.Connection) -> list[queries.RunView]:
    runs = queries.runs(db, 20, gates=False)
    return list({run.project: run for run in reversed(runs)}.values())[:PROJECTS]


def _look(where: Home, found: Results, known: _Known) -> None:
    from supervisor.daemon import results
    from worktrees import conflicts

    view = next(iter(known.done.values()))
    stands = conflicts.standing(results.repository_of(where, view), [one.name for one in known.every])
    done = [one for one in known.every if one.task in known.done]
    merged = {one.task for one in done if one.name in stands.merged or _has_landed(known.outcomes.get(one.task), stands.on)}
    lacking = [one.task for one in done if one.task not in merged and _is_whole(one, stands, known.decided.get(one.task))]
    found.to_take.extend(known.done[task] for task in lacking)
    found.merged.update(dict.fromkeys(merged, stands.on))
    tips = {one.task: stands.tips[one.name] for one in known.every if one.name in stands.tips and one.task not in merged}
    found.conflicts.update(_conflicts(where, view.project, stands, tips, lacking))


def _has_landed(outcome: Outcome | None, on: str) -> bool:
    """Also as other commits than its own."""
    return outcome is not None and outcome.branch == on and outcome.state in (EntryState.LANDED, EntryState.CONTAINED)


def _is_whole(one: branches.Branch, stands: Standing, decision: Decision | None) -> bool:
    """Whether its branch is there, and was not rejected as it is."""
    tip = stands.tips.get(one.name)
    return tip is not None and (decision is None or not decision.rejects(tip))


def _conflicts(where: Home, project: str, stands: Standing, tips: Mapping[str, str], wanted: Collection[str]) -> Iterator[tuple[str, str]]:
    """Of commits that have moved since nothing is said."""
    matrix = conflict_words.known(where, project)
    still = {side.task for side in matrix.sides if tips.get(side.task) == side.tip}
    holds = [one for one in matrix.conflicts() if still.issuperset(one.tasks) and (one.two or matrix.base == stands.head)]
    yield from ((task, words) for task, words in conflict_words.beside(holds, matrix.on).items() if task in wanted)
