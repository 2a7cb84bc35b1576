"""The workers of a map as one line: 200 of them, all alike, say nothing that one line does not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from supervisor.faces import status
from supervisor.ledger.branches import MAP_KINDS as KINDS
from supervisor.ledger.queries import TaskView


def as_one(views: Iterable[TaskView]) -> list[tuple[TaskView, str]]:
    """The tasks in their order, those of one map together in the place of the first, with the run's id; and what to say of it: how many
    are in which state. Of all others nothing is said here."""
    crews: dict[str, list[TaskView]] = {}
    lines: list[TaskView] = []
    for view in views:
        if view.kind not in KINDS or view.run not in crews:
            lines.append(view)
        if view.kind in KINDS:
            crews.setdefault(view.run, []).append(view)
    return [(_one(view, crews[view.run]) if view.kind in KINDS else (view, "")) for view in lines]


def _one(view: TaskView, crew: list[TaskView]) -> tuple[TaskView, str]:
    if len(crew) == 1:
        return view, ""
    return replace(view, id=view.run, reason=""), status.tally(status.counted(crew))
