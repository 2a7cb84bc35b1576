"""Groups of candidates in the ledger, and which candidate was chosen."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from supervisor.contract import Tables
from supervisor.kernel import names
from supervisor.kernel.errors import Refused
from supervisor.kernel.states import Choice, Decider, TaskState
from supervisor.store import queries
from supervisor.store.queries import OPEN, TaskView

if TYPE_CHECKING:
    from supervisor.kernel.decision import Command


class Choices(Tables):
    """The writer's door to them."""

    def decided(self, command: Command) -> None:
        """Write the choice of a group. A second choice of a group fails."""
        from supervisor.kernel.decision import Choose  # here: short commands read candidates and decide nothing

        if not isinstance(command, Choose):
            return
        choice = command.choice
        self._desk.db.execute(
            "INSERT INTO choice (task, winner, epoch, tip, decider, why, ranking, decided) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (choice.group, choice.winner, choice.epoch, choice.tip, choice.by, choice.why, choice.ranking, self._desk.wall()),
        )
        data = {"winner": choice.winner, "epoch": choice.epoch, "commit": choice.tip, "by": choice.by, "why": choice.why}
        self._desk.journal(choice.group, None, "chosen", data)
        self._desk.journal(choice.winner, choice.epoch, "chosen", {"of": choice.group, "by": choice.by})


def choice(db: sqlite3.Connection, group: str) -> Choice | None:
    """What was chosen of a group; None: nothing yet, or it is no group."""
    return choices(db, [group]).get(group)


def choices(db: sqlite3.Connection, groups: Collection[str]) -> dict[str, Choice]:
    """The same of several."""
    rows = db.execute("SELECT c.* FROM json_each(?) j JOIN choice c ON c.task = j.value", (json.dumps(list(groups)),)).fetchall()
    return {row["task"]: _choice(row) for row in rows}


@dataclass(frozen=True, slots=True)
class Standing:
    """What a task is to the group whose candidate it is."""

    group: str
    """Full id."""
    decided: bool
    """The group has ended: a candidate was chosen, or none can be any more."""
    chosen: bool
    """It is this one, by the attempt that is its newest."""

    @property
    def open(self) -> bool:
        """Nobody has chosen yet."""
        return not self.decided

    @property
    def lost(self) -> bool:
        """Another one was chosen, or none."""
        return self.decided and not self.chosen


def standings(db: sqlite3.Connection, tasks: Collection[str]) -> Mapping[str, Standing]:
    """Of those of the tasks (full ids) that are candidates, what each is to its group; all others are left out, and so may be landed by
    themselves. A candidate that is `open` waits for a person or for the ranking, one that is `lost` was not chosen: neither is to be
    merged but by a person who names it. A group itself is no candidate and has no branch: its result is that of `choice(db, group).winner`.
    """
    rows = db.execute(
        """SELECT t.id, t.epoch, g.id AS grp, g.state FROM json_each(?) j JOIN task t ON t.id = j.value
           JOIN task g ON g.run = t.run AND g.name = json_extract(t.spec, '$.candidate_of')
           WHERE coalesce(json_extract(t.spec, '$.candidate_of'), '') <> ''""",
        (json.dumps(list(tasks)),),
    ).fetchall()
    made = choices(db, {row["grp"] for row in rows})
    return {row["id"]: _standing(row, made.get(row["grp"])) for row in rows}


def lost(db: sqlite3.Connection, tasks: Collection[str]) -> dict[str, tuple[int, str]]:
    """Of those of the tasks that are candidates which were not chosen, the newest attempt and the commit that it left."""
    names = [task for task, one in standings(db, tasks).items() if one.lost]
    rows = db.execute(
        """SELECT a.task, a.epoch, json_extract(a.result, '$.tip') AS tip FROM json_each(?) j JOIN task t ON t.id = j.value
           JOIN attempt a ON a.task = t.id AND a.epoch = t.epoch WHERE tip IS NOT NULL""",
        (json.dumps(names),),
    ).fetchall()
    return {row["task"]: (row["epoch"], row["tip"]) for row in rows}


def _standing(row: sqlite3.Row, made: Choice | None) -> Standing:
    chosen = made is not None and (made.winner, made.epoch) == (row["id"], row["epoch"])
    return Standing(row["grp"], made is not None or row["state"] != TaskState.WAITING, chosen)


@dataclass(frozen=True, slots=True)
class Group:
    """A group as it was submitted. Full ids, in the plan's order."""

    id: str
    state: TaskState
    decide: Decider
    candidates: tuple[str, ...]
    judges: tuple[str, ...]


def groups(db: sqlite3.Connection, tasks: Collection[str]) -> dict[str, Group]:
    """Those of these tasks that are groups, by their full ids."""
    rows = db.execute(
        """SELECT g.id, g.state, json_extract(g.spec, '$.decide') AS decide, n.id AS needs,
                  coalesce(json_extract(n.spec, '$.candidate_of'), '') AS candidate_of
           FROM json_each(?) j JOIN task g ON g.id = j.value JOIN dependency d ON d.task = g.id JOIN task n ON n.id = d.needs
           WHERE coalesce(json_extract(g.spec, '$.decide'), '') <> '' ORDER BY n.ord""",
        (json.dumps(list(tasks)),),
    ).fetchall()
    found: dict[str, Group] = {}
    for row in rows:
        one = found.get(row["id"]) or Group(row["id"], TaskState(row["state"]), Decider(row["decide"]), (), ())
        candidates, judges = (*one.candidates, row["needs"]), (*one.judges, row["needs"])
        found[one.id] = (
            Group(one.id, one.state, one.decide, candidates, one.judges)
            if row["candidate_of"]
            else Group(one.id, one.state, one.decide, one.candidates, judges)
        )
    return found


def undecided(db: sqlite3.Connection, tasks: Collection[str]) -> set[str]:
    """Those of these waiting tasks that are groups of which a person is to choose a candidate, and everything else has ended."""
    rows = db.execute(
        f"""SELECT g.id FROM json_each(?) j JOIN task g ON g.id = j.value WHERE json_extract(g.spec, '$.decide') = ? AND NOT EXISTS
            (SELECT 1 FROM dependency d JOIN task n ON n.id = d.needs WHERE d.task = g.id AND n.state IN ({OPEN}))""",  # noqa: S608 - ours
        (json.dumps(list(tasks)), Decider.PERSON),
    )
    return {str(row[0]) for row in rows}


def since(db: sqlite3.Connection, groups: Collection[str]) -> dict[str, float]:
    """Since when (wall-clock seconds) nothing has changed in what each of these groups comes after, longest first."""
    rows = db.execute(
        """SELECT d.task, max(n.changed) AS at FROM json_each(?) j JOIN dependency d ON d.task = j.value JOIN task n ON n.id = d.needs
           GROUP BY d.task ORDER BY at""",
        (json.dumps(list(groups)),),
    )
    return {str(row["task"]): float(row["at"]) for row in rows}


def group_of(db: sqlite3.Connection, task: str) -> Group | None:
    """The group that a task is, or whose candidate it is; None for any other."""
    found = groups(db, [task]).get(task)
    if found is not None or (standing := standings(db, [task]).get(task)) is None:
        return found
    return groups(db, [standing.group]).get(standing.group)


def of_group(db: sqlite3.Connection, view: TaskView) -> TaskView:
    """The task whose result counts as that of `view`: of a group of candidates the chosen one, else `view` itself. Raises Refused for a
    group of which none was chosen, and for one whose chosen candidate has run again since."""
    group = groups(db, [view.id]).get(view.id)
    if group is None:
        return view
    made = choice(db, view.id)
    if made is None:
        waits = view.state is TaskState.WAITING
        why = f"{len(group.candidates)} tasks try it and none was chosen" + ("" if waits else f": it is {view.state}")
        hint = f"nightcrew compare {view.id}" + (f", then nightcrew choose {view.id} CANDIDATE" if waits else "")
        raise Refused("nothing was chosen of", on=view.id, why=why, kept="every candidate, on its branch", hint=hint)
    winner = queries.one(db, made.winner)
    if winner.epoch != made.epoch:
        why = f"{made.winner} was chosen as attempt {made.epoch} left it, and has run again since"
        ref = names.rescue_ref(made.winner, made.epoch)
        raise Refused("not as it was chosen", on=view.id, why=why, kept=ref, hint=f"nightcrew diff {made.winner}")
    return winner


def _choice(row: sqlite3.Row) -> Choice:
    return Choice(row["task"], row["winner"], row["epoch"], row["tip"], Decider(row["decider"]), row["why"], row["ranking"])
