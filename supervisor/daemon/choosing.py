"""Choosing one candidate of a group: what a person asks for, and what the ranking decides by itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from supervisor.core import candidate_ranking, records
from supervisor.core.candidates import Choice, Decider
from supervisor.core.errors import NotFound, Refused
from supervisor.core.events import Chosen
from supervisor.core.states import TaskState
from supervisor.host.failpoint import failpoint
from supervisor.ledger import choices, comparing, queries
from supervisor.ledger.comparing import Comparison
from supervisor.ledger.ledger import Ledger
from supervisor.ledger.queries import TaskView


def compared(ledger: Ledger, group: str) -> Comparison:
    """The candidates of a group by what the ledger has now. Raises NotFound for a task that is none."""
    found = choices.groups(ledger.db, [group]).get(group)
    if found is None:
        raise NotFound("no candidates of", on=group, why="it is a task of its own", hint=f"nightcrew status {group}")
    return comparing.compare(ledger.db, found)


def by_itself(ledger: Ledger, group: str) -> list[Chosen]:
    """The choice of the first by the ranking; nothing when no candidate may be chosen. The same once more, whoever died in between: the
    ledger has one choice of a group, and what is chosen of one that has ended changes nothing."""
    failpoint("choice.compare")
    found = compared(ledger, group)
    best = candidate_ranking.best(found.places)
    return [] if best is None or found.choice is not None else [Chosen(made(found, best.task, Decider.GATE, found.places[0].why))]


def made(found: Comparison, winner: str, by: Decider, why: str) -> Choice:
    """The choice of `winner`, a candidate of the comparison, with the ranking as it is now."""
    facts = next(place.facts for place in found.places if place.facts.task == winner)
    ranking = candidate_ranking.shape(found.places, found.notes)
    return Choice(found.group.id, winner, facts.epoch, facts.tip, by, why, ranking)


def of_group(db: sqlite3.Connection, view: TaskView) -> TaskView:
    """The task whose result counts as that of `view`: of a group of candidates the chosen one, else `view` itself. Raises Refused for a
    group of which none was chosen, and for one whose chosen candidate has run again since."""
    group = choices.groups(db, [view.id]).get(view.id)
    if group is None:
        return view
    made = choices.choice(db, view.id)
    if made is None:
        waits = view.state is TaskState.WAITING
        why = f"{len(group.candidates)} tasks try it and none was chosen" + ("" if waits else f": it is {view.state}")
        hint = f"nightcrew compare {view.id}" + (f", then nightcrew choose {view.id} CANDIDATE" if waits else "")
        raise Refused("nothing was chosen of", on=view.id, why=why, kept="every candidate, on its branch", hint=hint)
    winner = queries.one(db, made.winner)
    if winner.epoch != made.epoch:
        why = f"{made.winner} was chosen as attempt {made.epoch} left it, and has run again since"
        ref = records.rescue_ref(made.winner, made.epoch)
        raise Refused("not as it was chosen", on=view.id, why=why, kept=ref, hint=f"nightcrew diff {made.winner}")
    return winner


def members(ledger: Ledger, names: Sequence[str]) -> list[str]:
    """The tasks that a person means who names tasks to hold back or to let go on: for a group its candidates and judges."""
    found = choices.groups(ledger.db, names)
    every = (((*found[name].candidates, *found[name].judges) if name in found else (name,)) for name in names)
    return list(dict.fromkeys(task for tasks in every for task in tasks))


def to_retry(ledger: Ledger, names: Sequence[str]) -> list[str]:
    """The tasks that run again with these: for a group what of it is not done, and the group. Raises Refused for one that was decided."""
    found = choices.groups(ledger.db, names)
    made = choices.choices(ledger.db, list(found))
    wanted: list[str] = []
    for name in names:
        if name in made:
            why = f"{made[name].winner} was chosen of it, and that stays so"
            raise Refused("cannot retry", on=name, why=why, hint=f"nightcrew retry {made[name].winner}, or another candidate")
        views = queries.several(ledger.db, members(ledger, [name])) if name in found else []
        wanted += [*(view.id for view in views if view.state is not TaskState.DONE), name]
    return list(dict.fromkeys(wanted))
