"""The tasks of a train: its gates, each a run of its own at the commit that it is about, and the agents that mend their own results."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from supervisor.core import train_orders, train_rules
from supervisor.core.errors import NightcrewError
from supervisor.core.events import CancelAsked
from supervisor.core.gate_keys import gate_key
from supervisor.core.landing import (
    AskAgent,
    Asked,
    Entry,
    EntryState,
    Event,
    Gate,
    GateBegun,
    GateDropped,
    GateEnded,
    GateState,
    Mended,
    Train,
)
from supervisor.core.result import NOT_SECURED
from supervisor.core.spec import RunSpec, Submission
from supervisor.core.states import FINAL, TaskState
from supervisor.core.train_orders import Orders
from supervisor.daemon import follow_up
from supervisor.daemon.loop import Loop
from supervisor.host.failpoint import failpoint
from supervisor.host.paths import Home
from supervisor.ledger import queries, store, trains
from supervisor.ledger.queries import TaskView

REPAIR_S = 3600.0
"""What an agent has to mend its result, at most."""

Submit = Callable[[Submission], Awaitable[dict[str, Any]]]
"""Takes a run into the ledger, once for each key; as the handler of that verb answers."""


class TrainTasks:
    """The trains' door to the crew; it belongs to the event loop."""

    def __init__(self, loop: Loop, home: Home, submit: Submit) -> None:
        self._loop, self._home, self._submit = loop, home, submit

    def watched(self, train: Train) -> bool:
        """Whether a task of it is under way, whose end decides something."""
        return any(_gates(train)) or any(_repairs(train))

    def look(self, train: Train) -> list[Event]:
        """What ended of its tasks."""
        found: list[Event] = []
        for gate in _gates(train):
            if (view := self._ended(gate.task)) is not None:
                found.append(_verdict(gate, view))
        for entry in _repairs(train):
            if (view := self._ended(entry.repair)) is not None:
                found.append(_mended(entry, view))
        return found

    def _ended(self, task: str) -> TaskView | None:
        known = self._loop.crew.tasks.get(task)
        if known is not None and known.state not in FINAL:
            return None
        view = queries.one(self._loop.ledger.db, task)
        return view if view.final else None

    async def run_gate(self, train: Train, orders: Orders, number: int) -> list[Event]:
        """Have a gate run, once."""
        gate = train.gates[number - 1]
        making = train_rules.is_making(gate)
        where = (
            "its generated files"
            if making
            else "as the branch is"
            if gate.tree == train.base
            else "with its own gate as it was"
            if gate.restored
            else "merged"
        )
        title = f"{gate.command} ({where}, for {train.branch})"
        task = replace(orders.gate, name="generate" if making else "gate", title=title, argv=("/bin/sh", "-c", gate.command))
        answer = await self._submit(_submission(train, orders, gate_key(train.id, gate.number), RunSpec(title, (task,), gate.commit)))
        failpoint("train.gate-submitted")
        return [GateBegun(number, str(answer["tasks"][0]))]

    def left_behind(self, train: Train, before: Sequence[Train]) -> list[tuple[str, int]]:
        """The attempts of gates whose worktrees nobody will look at: they passed or were not needed any more, or are of a train `before`
        this one."""
        tasks = [gate.task for gate in train.gates if gate.task and gate.state in (GateState.PASSED, GateState.DROPPED)]
        tasks += [gate.task for one in before for gate in one.gates if gate.task]
        return [(view.id, view.epoch) for view in queries.several(self._loop.ledger.db, tasks) if view.final]

    def left_by(self, task: str) -> str:
        """The commit that a task left."""
        return str((queries.one(self._loop.ledger.db, task).result or {}).get("tip") or "")

    def drop_gate(self, train: Train, number: int) -> Event:
        """End the task of a gate, if it has begun and not ended."""
        gate = train.gates[number - 1]
        task = gate.task or trains.task_of_key(self._loop.ledger.db, gate_key(train.id, gate.number))
        known = self._loop.crew.tasks.get(task)
        if known is not None and known.state not in FINAL:
            self._loop.ask(CancelAsked(task))
        return GateDropped(number)

    async def ask_agent(self, asked: AskAgent, made: Submission | str) -> list[Event]:
        """Hand over what `repair` made. A reason in its place is why nobody was asked."""
        if isinstance(made, str):
            return [Mended(asked.position, why=made)]
        answer = await self._submit(made)
        failpoint("train.repair-submitted")
        return [Asked(asked.position, str(answer["tasks"][0]))]


def repair(home: Home, train: Train, orders: Orders, asked: AskAgent) -> Submission | str:
    """The task that mends a result: its agent goes on, with what was wrong. In a thread. A sentence when that cannot be."""
    entry = train.entries[asked.position - 1]
    text = train_orders.repair_words(train.branch, asked.onto, entry.reason, entry.files)
    try:
        with contextlib.closing(store.connect_readonly(home.ledger)) as db:
            made = follow_up.submission(db, queries.one(db, entry.task), text, f"train/{train.id}/repair/{entry.position}", orders.env)
    except NightcrewError as error:
        return error.line()
    tasks = tuple(replace(task, timeout_s=min(task.timeout_s or REPAIR_S, REPAIR_S)) for task in made.spec.tasks)
    return replace(made, spec=replace(made.spec, tasks=tasks))


def _gates(train: Train) -> list[Gate]:
    return [gate for gate in train.gates if gate.state is GateState.RUNNING]


def _repairs(train: Train) -> list[Entry]:
    return [entry for entry in train.entries if entry.state is EntryState.REPAIRING and entry.repair]


def _submission(train: Train, orders: Orders, key: str, spec: RunSpec) -> Submission:
    return Submission(key, train.project, orders.root, orders.common_dir, spec.base, spec, orders.env)


def _verdict(gate: Gate, view: TaskView) -> GateEnded:
    """What the end of its task says of a tree. Only a command that ran and ended by itself, or took too long, says anything. One that left
    its repository so that nothing can be collected of it did not pass: else it would stop the train for all others."""
    if view.state is TaskState.DONE:
        return GateEnded(gate.number, passed=True)
    why = view.end_cause or view.reason or str(view.state)
    said = (view.result or {}).get("exit") or {}
    ended = any(value is not None for value in said.values()) or NOT_SECURED in why
    ran = view.state is TaskState.FAILED and ended
    return GateEnded(gate.number, passed=False if ran else None, why=why)


def _mended(entry: Entry, view: TaskView) -> Mended:
    tip = str((view.result or {}).get("tip") or "") if view.state is TaskState.DONE else ""
    return Mended(entry.position, tip, view.epoch, "" if tip else f"it is {view.state}")
