"""A train of merges as people and programs see it. Read-only."""

from __future__ import annotations

import contextlib
import functools
import json
import shlex
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from supervisor.features.landing import rows as landing_rows
from supervisor.features.landing.rows import Outcome, TrainRow
from supervisor.features.landing.rules import (
    ASKED,
    Clashed,
    Entry,
    EntryState,
    Event,
    Gate,
    GateState,
    NothingNew,
    Put,
    ToMake,
    Train,
    TrainState,
)
from supervisor.host.untrusted_fs import open_plain
from supervisor.kernel.errors import one_line
from supervisor.kernel.format import many
from supervisor.kernel.records import TAKEN
from supervisor.kernel.train_orders import GATE_KIND, Orders
from supervisor.store.queries import TaskView
from supervisor.views import places

_FILES = 5
_TAKEN_MAX = 4096
"""Bytes of the file that says where a result was taken."""
_OVER = (TrainState.LANDED, TrainState.EMPTY)


def shape(row: TrainRow) -> dict[str, Any]:
    """For programs."""
    train, orders = row.train, Orders.from_json(row.orders)
    return {
        "train": train.id, "into": train.branch, "state": train.state, "base": train.base, "tip": train.tip or None,
        "method": orders.terms.method, "gates": list(train.commands), "restages": train.restages, "reason": train.reason or None,
        "by_hand": train.by_hand or None, "began": row.began, "changed": row.changed,
        "entries": [_entry_shape(train, entry) for entry in train.entries], "ran": [_gate_shape(gate) for gate in train.gates],
    }  # fmt: skip


def _entry_shape(train: Train, entry: Entry) -> dict[str, Any]:
    log = failed(train, entry)
    return {
        "position": entry.position, "task": entry.task, "epoch": entry.epoch, "commit": entry.tip, "state": entry.state,
        "staged": entry.staged or None, "reason": entry.reason or None, "files": list(entry.files), "repair": entry.repair or None,
        "gates": [train.gates[number - 1].task for number in entry.gates], "log": log.task if log is not None else None,
    }  # fmt: skip


def _gate_shape(gate: Gate) -> dict[str, Any]:
    return {"task": gate.task or None, "command": gate.command, "commit": gate.commit, "restored": gate.restored, "state": gate.state}


def failed(train: Train, entry: Entry) -> Gate | None:
    """The gate for which a result was left out."""
    if entry.state not in (EntryState.EJECTED, EntryState.REPAIRING):
        return None
    return next((train.gates[number - 1] for number in entry.gates if train.gates[number - 1].state is GateState.FAILED), None)


def line(train: Train, entry: Entry) -> str:
    """One result."""
    said = one_line(entry.reason) if entry.state is not EntryState.PASSED else ""
    log, repair = commands(train, entry)
    return "  ".join(filter(None, (f"{entry.state:<9}", entry.task, one_line(entry.title), said, log, repair)))


def commands(train: Train, entry: Entry) -> tuple[str, str]:
    """What shows why a result was left out, and what shows how it is mended; empty where there is nothing of it."""
    gate = failed(train, entry)
    log = f"nightcrew logs {gate.task}" if gate is not None else ""
    repair = f"nightcrew attach {entry.repair}" if entry.state is EntryState.REPAIRING and entry.repair else ""
    return log, repair


def next_command(train: Train) -> str:
    """What a person can do about a train now; empty when nothing is left to do."""
    into = shlex.quote(train.branch)
    match train.state:
        case TrainState.RUNNING | TrainState.MOVING:
            return f"nightcrew land --follow --into {into}"
        case TrainState.STOPPED:
            return f"nightcrew land --resume --into {into}"
        case _:
            left = [entry.task for entry in train.entries if entry.state is EntryState.EJECTED]
            return f"nightcrew review {left[0]}" if left else ""


def lines(row: TrainRow) -> Iterator[str]:
    """All of it."""
    train = row.train
    yield summary(train)
    for entry in train.entries:
        yield f"  {line(train, entry)}"


def summary(train: Train) -> str:
    """One line."""
    count = {state: sum(entry.state is state for entry in train.entries) for state in EntryState}
    running = sum(gate.state in ASKED for gate in train.gates)
    words = [f"{number} {state}" for state, number in count.items() if number]
    words += [f"{many(running, 'gate')} under way"] if running and train.state is TrainState.RUNNING else []
    why = f": {one_line(train.reason)}" if train.reason else ""
    return f"{train.id} into {one_line(train.branch)} is {train.state}{why}; {', '.join(words) or 'no results'}"


def outcomes(root: Path, db: sqlite3.Connection, views: Sequence[TaskView]) -> dict[str, Outcome]:
    """Return, by task, what became of each result that was in a train, or that a person took: then `train` is empty. A result that has
    changed since it was taken is not among them. `root`: the state directory."""
    found = landing_rows.outcomes(db, [view.id for view in views])
    for view in views:
        if view.final and view.branch and (into := _taken_into(root, view)):
            in_train = found.get(view.id)
            if in_train is None or in_train.state not in (EntryState.LANDED, EntryState.CONTAINED):
                found[view.id] = Outcome("", into, TrainState.LANDED, EntryState.LANDED, "")
    return found


def _taken_into(root: Path, view: TaskView) -> str:
    """Return the branch into which a person merged all of what an attempt left; "" if no person did."""
    place = root / "runs" / view.id / str(view.epoch) / TAKEN
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open_plain(place) as file:
        said = json.loads(file.read(_TAKEN_MAX))
        return str(said["into"]) if said["tip"] == (view.result or {}).get("tip") else ""
    return ""


def outcome(one: Outcome) -> str:
    """Return what became of a result, in few words."""
    match one.state:
        case EntryState.LANDED:
            return f"{'landed in' if one.train else 'taken into'} {one_line(one.branch)}"
        case EntryState.CONTAINED:
            return f"{one_line(one.branch)} has it"
        case EntryState.EJECTED:
            return f"left out of {one.train}: {one_line(one.reason)}"
        case EntryState.REPAIRING:
            return f"its agent mends it for {one.train}: {one_line(one.reason)}"
    return f"in {one.train}, which is {one.train_state}" if one.train_state not in _OVER else ""


def outcome_shape(one: Outcome) -> dict[str, Any]:
    """The same for programs."""
    return {
        "train": one.train or None, "into": one.branch, "state": str(one.state) if one.train else "taken", "reason": one.reason or None,
    }  # fmt: skip


def of_results(root: Path, db: sqlite3.Connection, views: Iterable[TaskView]) -> dict[str, str]:
    """Return `outcomes` in words, of the tasks that ended."""
    ended = [view for view in views if view.final]
    return {task: words for task, one in outcomes(root, db, ended).items() if (words := outcome(one))}


def of_gates(db: sqlite3.Connection, views: Iterable[TaskView]) -> dict[str, places.Train]:
    """Return, by task, the train of each gate among them, with its state in words."""
    of = landing_rows.of_gates(db, [view.id for view in views if view.kind == GATE_KIND])
    words = {train: summary(landing_rows.one(db, train).train).partition(" ")[2] for train in set(of.values())}
    return {task: places.Train(train, words[train]) for task, train in of.items()}


def under_way(db: sqlite3.Connection) -> list[str]:
    """A line for each train that is under way."""
    return [summary(row.train) for row in map(functools.partial(landing_rows.one, db), landing_rows.under_way(db))]


def trains_under_way(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """The same for programs."""
    rows = map(functools.partial(landing_rows.one, db), landing_rows.under_way(db))
    return [{"train": row.train.id, "into": row.train.branch, "state": row.train.state} for row in rows]


def trial(train: Train, event: Event) -> str:
    """What would come of one result."""
    match event:
        case Put(position, _, _, tried):
            gates = [f"{one.command}{' (its own gate as it was before, too)' if one.restored else ''}" for one in tried]
            said = ("merges", "", *gates)
        case ToMake(position, _, _, command):
            said = ("merges", f"once its generated files are made by {command}")
        case Clashed(position, _, why, files):
            said = ("conflicts", why, *(() if any(file in why for file in files) else files[:_FILES]))
        case NothingNew(position, _, why):
            said = ("has nothing new", why)
        case _:
            raise ValueError(event)
    entry = train.entries[position - 1]
    return "  ".join(filter(None, (f"{said[0]:<9}", entry.task, one_line(entry.title), *map(one_line, said[1:]))))


def trial_shape(train: Train, event: Event) -> dict[str, Any]:
    """The same for programs."""
    position = getattr(event, "position", 0)
    entry = train.entries[position - 1]
    merges = isinstance(event, Put | ToMake)
    return {
        "position": position, "task": entry.task, "commit": entry.tip,
        "would": "merge" if merges else "conflict" if isinstance(event, Clashed) else "nothing",
        "reason": getattr(event, "why", "") or None, "files": list(getattr(event, "files", ())),
        "generate": getattr(event, "command", None),
        "gates": [{"command": one.command, "restored": one.restored} for one in getattr(event, "tried", ())],
    }  # fmt: skip
