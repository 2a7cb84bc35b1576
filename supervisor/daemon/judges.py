"""What a task that judges candidates is told. It sees what they changed under letters, and nothing else of them: neither what its
predecessors came to nor their branches, as other tasks do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from supervisor.core import judging
from supervisor.daemon.environments import Environments
from supervisor.ledger import choices, comparing, queries
from supervisor.ledger.ledger import Ledger
from supervisor.ledger.rows import LaunchRow
from worktrees import merge

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
    """What the judge of `row` sees: the candidates that are done now."""
    views = {view.id: view for view in queries.several(ledger.db, row.after)}
    group = next(iter(choices.standings(ledger.db, list(views)).values())).group
    known = judging.letters(list(views), comparing.shown(views.values()), group, row.spec.judge_round)
    first = next(iter(views))
    asked = ledger.launch_row(first).spec.prompt or queries.one(ledger.db, group).title
    return Judged(asked, {letter: (views[one].result or {}).get("tip") or "" for letter, one in known.items()})


def told(places: Environments, row: LaunchRow, seen: Judged) -> LaunchRow:
    """The row with the judge's whole prompt, and without what would tell it who is who. For a thread: git reads each change."""
    repository = places.repository(row)
    diffs = {letter: merge.patch(repository, row.base_oid, tip, PATCH_MAX) if tip else b"" for letter, tip in seen.tips.items()}
    prompt = judging.told(seen.prompt, row.spec.prompt or "", diffs)
    return replace(row, after=(), spec=replace(row.spec, prompt=prompt))
