"""How the results of a project stand to each other and to the person's branch: looked at anew where something moved."""

from __future__ import annotations

import math
from collections.abc import Mapping

from supervisor.core import conflicts as rules
from supervisor.core.conflicts import Matrix, Pair, Side, Verdict
from supervisor.ledger.branches import Branch
from worktrees import conflicts
from worktrees.conflicts import Standing
from worktrees.repository import Repository


def look(
    repo: Repository,
    branches: tuple[list[Branch], int],
    known: Mapping[Pair, Verdict],
    until: float = math.inf,
    only: str = "",
    now: Standing | None = None,
) -> Matrix:
    """As it stands now; what `known` says is not compared again. `branches` as `ledger.branches.of_project` gives them. `until`, on the
    monotonic clock, ends the comparing, and with `only` nothing is compared but what concerns that task: `Matrix.missing` says what was
    not. `now` is what the branches stand on, where the caller has just looked. Raises as `Git.run`."""
    found, beyond = branches
    now = now or conflicts.standing(repo, [branch.name for branch in found])
    merged = tuple(branch.task for branch in found if branch.name in now.merged)
    there = [branch for branch in found if branch.name in now.tips and branch.name not in now.merged]
    sides, left_out = rules.chosen(Side(branch.task, now.tips[branch.name], branch.living) for branch in there)
    kept = rules.still(known, sides, now.head)
    asked = rules.wanted(sides, now.head, kept)
    if only:
        mine = {side.tip for side in sides if side.task == only}
        asked = [pair for pair in asked if not mine.isdisjoint(pair)]
    kept |= conflicts.compare(repo, asked, until, {now.tips[branch.name]: branch.base for branch in there}, now.head)
    return Matrix(now.head, now.on, sides, kept, left_out + beyond, merged)
