"""Trains of merges in the ledger. What each is, and what its rows mean: `core.landing`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass, fields

from supervisor.contract import Tables
from supervisor.features.landing.rules import OUT, Entry, EntryState, Gate, Train, TrainState
from supervisor.kernel import codec
from supervisor.kernel.errors import NotFound, Refused
from supervisor.kernel.names import GATE_KEYS, train_of

_ENTRY = tuple(one.name for one in fields(Entry))
_GATE = tuple("revision" if one.name == "commit" else one.name for one in fields(Gate))
_TRAIN = ("base", "state", "restages", "tip", "reason", "by_hand")
"""What of a train changes."""
_SAID = frozenset({EntryState.PASSED, EntryState.LANDED, *OUT})


@dataclass(frozen=True, slots=True)
class TrainRow:
    """A train with what else there is of it."""

    train: Train
    number: int
    orders: str
    """JSON of `train_orders.Orders`."""
    began: float
    changed: float


class Trains(Tables):
    """The writer's door to them; `Ledger.trains`."""

    def begin(self, train: Train, orders: str) -> None:
        """Commit a train that begins. Raises Refused while another one is under way into the branch."""
        with self._desk.writing():
            refuse_open(self._desk.db, train.project, train.branch)
            number = self._desk.db.execute("SELECT coalesce(max(number), 0) + 1 FROM train WHERE project = ?", (train.project,)).fetchone()
            now = self._desk.wall()
            facts = {
                "id": train.id, "project": train.project, "number": number[0], "branch": train.branch,
                "commands": json.dumps(train.commands), "width": train.width,
                "repairs": train.repairs, "orders": orders, "began": now, "changed": now,
                **{name: getattr(train, name) for name in _TRAIN},
            }  # fmt: skip
            self._insert("train", facts)
            self._write(train, None)
            self._desk.journal(None, None, "train began", {"train": train.id, "into": train.branch, "commit": train.base})
            for entry in train.entries:
                self._desk.journal(entry.task, entry.epoch, "train takes", {"train": train.id, "into": train.branch, "commit": entry.tip})

    def save(self, old: Train, new: Train) -> None:
        """Commit what became of a train. Raises Refused when it is to go on and another one is under way into its branch."""
        if old == new:
            return
        with self._desk.writing():
            if _is_open(new) and not _is_open(old):
                refuse_open(self._desk.db, new.project, new.branch)
            changes = ", ".join(f"{name} = ?" for name in (*_TRAIN, "changed"))
            values = [*(getattr(new, name) for name in _TRAIN), self._desk.wall()]
            self._desk.db.execute(f"UPDATE train SET {changes} WHERE id = ?", (*values, new.id))  # noqa: S608 - our own columns
            self._write(new, old)
            self._say(old, new)

    def _write(self, new: Train, old: Train | None) -> None:
        for entry in new.entries:
            if old is None or entry.position > len(old.entries) or old.entries[entry.position - 1] != entry:
                self._insert("train_entry", {"train": new.id, **dict(zip(_ENTRY, map(_plain, astuple(entry)), strict=True))})
        for gate in new.gates:
            if old is None or gate.number > len(old.gates) or old.gates[gate.number - 1] != gate:
                self._insert("train_gate", {"train": new.id, **dict(zip(_GATE, map(_plain, astuple(gate)), strict=True))})

    def _insert(self, table: str, facts: Mapping[str, object]) -> None:
        names, marks = ", ".join(facts), ", ".join("?" * len(facts))
        self._desk.db.execute(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", tuple(facts.values()))  # noqa: S608 - our own columns

    def _say(self, old: Train, new: Train) -> None:
        """Into the journal: what was decided of each result, and of the train."""
        before = {entry.position: entry.state for entry in old.entries}
        for entry in new.entries:
            if entry.state in _SAID and entry.state is not before.get(entry.position):
                data = {"train": new.id, "into": new.branch, "commit": entry.staged, "why": entry.reason}
                self._desk.journal(entry.task, entry.epoch, f"train {entry.state}", {key: text for key, text in data.items() if text})
        if new.state is not old.state:
            data = {"train": new.id, "into": new.branch, "from": new.base, "commit": new.tip, "why": new.reason}
            self._desk.journal(None, None, f"train is {new.state}", {key: text for key, text in data.items() if text})


def _plain(value: object) -> object:
    if isinstance(value, bool):
        return int(value)
    return json.dumps(value) if isinstance(value, tuple) else value


def _is_open(train: Train) -> bool:
    return train.state in (TrainState.RUNNING, TrainState.MOVING)


def refuse_open(db: sqlite3.Connection, project: str, branch: str) -> None:
    """Raises Refused while a train is under way into the branch."""
    sql = "SELECT id FROM train WHERE project = ? AND branch = ? AND state IN ('running', 'moving')"
    found = db.execute(sql, (project, branch)).fetchone()
    if found is not None:
        why = f"train {found['id']} is under way into it"
        raise Refused(
            "no train begins into", on=branch, why=why, kept="that train", hint="nightcrew land --follow, or nightcrew land --stop"
        )


def under_way(db: sqlite3.Connection) -> list[str]:
    """The ids of the trains for which something is to be done: those that are open, and those of which a gate still has to be ended."""
    sql = """SELECT id FROM train WHERE state IN ('running', 'moving')
             UNION SELECT train FROM train_gate WHERE state = 'unwanted' ORDER BY 1"""
    return [str(row[0]) for row in db.execute(sql)]


def one(db: sqlite3.Connection, train: str) -> TrainRow:
    """Raises NotFound when there is none of that id."""
    row = db.execute("SELECT * FROM train WHERE id = ?", (train,)).fetchone()
    if row is None:
        raise NotFound("no train", on=train, hint="nightcrew land --status")
    return _row(db, row)


def newest(db: sqlite3.Connection, project: str, branch: str = "", at_most: int = 1, before: int = 2**62) -> list[TrainRow]:
    """The trains of a project, or those into one branch of it, newest first; those before the number `before`."""
    where, values = ("AND branch = ?", (project, before, branch)) if branch else ("", (project, before))
    sql = f"SELECT * FROM train WHERE project = ? AND number < ? {where} ORDER BY number DESC LIMIT {at_most:d}"  # noqa: S608 - literals of ours
    return [_row(db, row) for row in db.execute(sql, values).fetchall()]


def task_of_key(db: sqlite3.Connection, key: str) -> str:
    """The one task of the run that was submitted with a key, or ""."""
    row = db.execute("SELECT t.id FROM run r JOIN task t ON t.run = r.id WHERE r.key = ?", (key,)).fetchone()
    return "" if row is None else str(row[0])


def _row(db: sqlite3.Connection, row: sqlite3.Row) -> TrainRow:
    entries = db.execute("SELECT * FROM train_entry WHERE train = ? ORDER BY position", (row["id"],)).fetchall()
    gates = db.execute('SELECT *, revision AS "commit" FROM train_gate WHERE train = ? ORDER BY number', (row["id"],)).fetchall()
    train = codec.load(Train, {**dict(row), "entries": [*map(dict, entries)], "gates": [*map(dict, gates)]})
    return TrainRow(train, row["number"], row["orders"], row["began"], row["changed"])


def landed(db: sqlite3.Connection, project: str, branch: str) -> set[tuple[str, str]]:
    """Task and commit of the results that earlier trains brought into the branch, or found there; also of those that came in mended."""
    sql = """SELECT e.task, e.tip FROM train t JOIN train_entry e ON e.train = t.id
             LEFT JOIN train_entry more ON more.train = e.train AND more.task = e.repair AND more.state = 'landed'
             WHERE t.project = ? AND t.branch = ? AND t.state IN ('landed', 'empty')
               AND (e.state IN ('landed', 'contained') OR more.task IS NOT NULL)"""
    return _results(db, sql, project, branch)


def asked(db: sqlite3.Connection, project: str) -> set[tuple[str, str]]:
    """Task and commit of the results that an agent was asked to mend."""
    sql = "SELECT e.task, e.tip FROM train t JOIN train_entry e ON e.train = t.id WHERE t.project = ? AND e.repair <> ''"
    return _results(db, sql, project)


def _results(db: sqlite3.Connection, sql: str, *values: object) -> set[tuple[str, str]]:
    return {(str(row[0]), str(row[1])) for row in db.execute(sql, values)}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the newest train that had a result made of it."""

    train: str
    branch: str
    train_state: TrainState
    state: EntryState
    reason: str


def outcomes(db: sqlite3.Connection, tasks: Collection[str]) -> dict[str, Outcome]:
    """Of those of these tasks whose newest attempt's result was in a train."""
    rows = db.execute(
        """SELECT e.task, t.id, t.branch, t.state AS train_state, e.state, e.reason FROM json_each(?) j JOIN task k ON k.id = j.value
           JOIN train_entry e ON e.task = k.id AND e.epoch = k.epoch JOIN train t ON t.id = e.train ORDER BY t.began""",
        (json.dumps(list(tasks)),),
    )
    return {str(task): Outcome(train, branch, TrainState(of), EntryState(state), why) for task, train, branch, of, state, why in rows}


def of_gates(db: sqlite3.Connection, tasks: Collection[str]) -> dict[str, str]:
    """The train of each of these tasks that is a gate of one."""
    sql = "SELECT t.id, r.key FROM json_each(?) j JOIN task t ON t.id = j.value JOIN run r ON r.id = t.run WHERE r.key GLOB ?"
    return {str(task): train_of(str(key)) for task, key in db.execute(sql, (json.dumps(list(tasks)), GATE_KEYS))}


def needs(db: sqlite3.Connection, tasks: Collection[str]) -> dict[str, frozenset[str]]:
    """Of each of these tasks those among them that it comes after by its plan, directly or not."""
    asked, sql = (
        json.dumps(list(tasks)),
        """
        WITH RECURSIVE above (task, needs) AS (
            SELECT d.task, d.needs FROM dependency d JOIN json_each(?) j ON j.value = d.task
            UNION SELECT a.task, d.needs FROM above a JOIN dependency d ON d.task = a.needs)
        SELECT task, needs FROM above WHERE needs IN (SELECT value FROM json_each(?))""",
    )
    found: dict[str, set[str]] = {task: set() for task in tasks}
    for row in db.execute(sql, (asked, asked)):
        found[str(row[0])].add(str(row[1]))
    return {task: frozenset(some) for task, some in found.items()}
