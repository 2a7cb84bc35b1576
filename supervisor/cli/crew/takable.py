"""Results that can be taken: done, with something that the checkout of their project lacks, and not rejected as they are now."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence

from supervisor.core.errors import NightcrewError
from supervisor.core.reviews import Decision
from supervisor.host.paths import Home
from supervisor.ledger import branches, queries, reviews, store
from supervisor.ledger.queries import TaskView

LOOKED_AT = 200
"""Branches of one project."""
PROJECTS = 5
"""The newest runs' projects are looked at, this many."""


def find(where: Home) -> list[TaskView]:
    """Newest first in each project. By three gits a project; a repository that cannot be read has none."""
    with contextlib.closing(store.connect_readonly(where.ledger)) as db:
        found: list[TaskView] = []
        for run in _newest_of_projects(db):
            done = [one for one in branches.of_project(db, run.project, LOOKED_AT)[0] if not one.living]
            views = {view.id: view for view in queries.several(db, [one.task for one in done])}
            done = [one for one in done if (views[one.task].result or {}).get("commits")]
            with contextlib.suppress(NightcrewError):
                found += [views[task] for task in _lacking(where, done, views, reviews.decisions(db, list(views)))]
        return found


def _newest_of_projects(db: sqlite3.Connection) -> list[queries.RunView]:
    runs = queries.runs(db, 20, gates=False)
    return list({run.project: run for run in reversed(runs)}.values())[:PROJECTS]


def _lacking(where: Home, done: Sequence[branches.Branch], views: Mapping[str, TaskView], decided: Mapping[str, Decision]) -> Iterator[str]:
    if not done:
        return
    from supervisor.daemon import results
    from worktrees import conflicts

    stands = conflicts.standing(results.repository_of(where, views[done[0].task]), [one.name for one in done])
    for one in done:
        tip, decision = stands.tips.get(one.name), decided.get(one.task)
        if tip is None or one.name in stands.merged:
            continue
        if decision is None or not decision.rejects(tip):
            yield one.task
