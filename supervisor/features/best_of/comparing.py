"""The candidates of a group as the ledger knows them, ranked: read-only, standard library only."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from supervisor.features.best_of import rows as best_of_rows
from supervisor.features.best_of import rules as best_of_rules
from supervisor.features.best_of.rows import Group
from supervisor.features.best_of.rules import Place, Verdict
from supervisor.kernel.candidates import Choice
from supervisor.kernel.states import TaskState
from supervisor.store import queries
from supervisor.store.queries import TaskView


@dataclass(frozen=True, slots=True)
class Comparison:
    """A group, its candidates in order, and what was chosen."""

    group: Group
    places: tuple[Place, ...]
    notes: tuple[str, ...]
    """What is to be said of the comparison beside the places, such as what judges said."""
    choice: Choice | None
    """Then places and notes are those by which it was made."""

    @property
    def open(self) -> list[str]:
        """The candidates that have not ended."""
        return [place.facts.task for place in self.places if place.facts.state in _OPEN]


_OPEN = (TaskState.WAITING, TaskState.READY, TaskState.RUNNING, TaskState.PAUSED, TaskState.PARKED)


def compare(db: sqlite3.Connection, group: Group) -> Comparison:
    """By what the ledger has now; once one was chosen, as it was then."""
    made = best_of_rows.choice(db, group.id)
    if made is not None:
        return Comparison(group, *best_of_rules.of_shape(made.ranking), choice=made)
    candidates = {view.id: view for view in queries.several(db, group.candidates)}
    verdicts, said = _verdicts(queries.several(db, group.judges), group, shown(candidates.values()))
    judged, notes = _judged(verdicts)
    found = [best_of_rules.of_result(one.id, one.state, one.epoch, one.result, judged.get(one.id)) for one in candidates.values()]
    return Comparison(group, best_of_rules.rank(found), (*said, *notes), choice=None)


def shown(candidates: Iterable[TaskView]) -> list[str]:
    """Those of the candidates that a judge sees: the others cannot be chosen."""
    return [view.id for view in candidates if view.state is TaskState.DONE]


def _verdicts(judges: Sequence[TaskView], group: Group, seen: Sequence[str]) -> tuple[list[Verdict], list[str]]:
    found: list[Verdict] = []
    notes: list[str] = []
    for judge_round, view in enumerate(judges, start=1):
        if not view.final:
            notes.append(f"{view.id} has not judged yet: it is {view.state}")
            continue
        known = best_of_rules.letters(group.candidates, seen, group.id, judge_round)
        said = _said(view, known) if view.state is TaskState.DONE else f"it is {view.state}"
        if isinstance(said, Verdict):
            found.append(said)
        elif view.state is not TaskState.SKIPPED:
            notes.append(f"{view.id} judged nothing: {said}")
    return found, notes


def _said(view: TaskView, known: Mapping[str, str]) -> Verdict | str:
    result = view.result or {}
    agent = result.get("agent")
    answer = result.get("output") if agent is None else best_of_rules.answer_in(str(agent.get("message") or ""))
    return best_of_rules.read(answer, known)


def _judged(verdicts: Sequence[Verdict]) -> tuple[Mapping[str, int], list[str]]:
    """Places by two rounds over the same candidates. One alone says nothing: how often it would have said the same is not known."""
    if len(verdicts) < 2:
        return {}, ["the judge was heard once, which does not count"] if verdicts else []
    first, second = verdicts[0], verdicts[1]
    return best_of_rules.places(first.ranking, second.ranking), list(_reasons(first, second))


def _reasons(first: Verdict, second: Verdict) -> Iterator[str]:
    placed = best_of_rules.places(first.ranking, second.ranking)
    ties: dict[int, list[str]] = {}
    for task, place in placed.items():
        ties.setdefault(place, []).append(task)
    for tied in ties.values():
        if len(tied) > 1:
            yield f"the judge does not tell {', '.join(sorted(tied))} apart: their order changed when it saw them the other way round"
    for task in first.ranking:
        for verdict in (first, second):
            if text := verdict.reasons.get(task):
                yield f"the judge of {task}: {text}"
