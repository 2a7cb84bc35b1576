"""What the ledger, or the archive, says of the trace of a run: read-only, standard library only. See `supervisor.features.trace.rules`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor.features.trace.rules import AttemptFacts, Life, Moment, Stretch, TaskFacts, What, life_at, lives
from supervisor.kernel.states import FINAL
from supervisor.store.journal import ready_since

_FINAL = ", ".join(f"'{state}'" for state in FINAL)
_LIVES = f"(event IN ({_FINAL}, 'retry') OR event LIKE 'end %')"
_TASKS = "SELECT id, name, title, json_extract(spec, '$.kind') AS kind FROM task WHERE run = ? ORDER BY ord"


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run, its tasks by id in the plan's order, and the lives of each and of the run."""

    id: str
    title: str
    created: float
    tasks: dict[str, TaskFacts] = field(default_factory=dict)
    lives: dict[str, list[Life]] = field(default_factory=dict)
    whole: list[Life] = field(default_factory=list)


def run(db: sqlite3.Connection, run_id: str, agents: Collection[str]) -> RunFacts | None:
    """One run; None when this file does not have it. `agents`: the kinds that are kinds of agent."""
    row = db.execute("SELECT title, created FROM run WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        return None
    found = {str(task["id"]): _task(task, agents) for task in db.execute(_TASKS, (run_id,))}
    moments = _moments(db, json.dumps(list(found)))
    return RunFacts(run_id, str(row["title"]), float(row["created"]), found, *lives(found, float(row["created"]), moments))


def _task(row: sqlite3.Row, agents: Collection[str]) -> TaskFacts:
    kind = str(row["kind"] or "")
    return TaskFacts(str(row["id"]), str(row["name"]), kind, kind in agents, str(row["title"]))


def _moments(db: sqlite3.Connection, tasks: str) -> Iterator[Moment]:
    rows = db.execute(
        f"SELECT seq, at, task, event, data FROM journal WHERE task IN (SELECT value FROM json_each(?)) AND {_LIVES} ORDER BY seq",  # noqa: S608 - ours
        (tasks,),
    )
    for row in rows:
        if (state := state_after(row["event"], json.loads(row["data"]))) is not None:
            yield int(row["seq"]), float(row["at"]), str(row["task"]), state


def state_after(event: str, data: Mapping[str, Any]) -> str | None:
    """The final state that a row of the journal brought its task to; empty: it began again; None: neither."""
    if event == "retry":
        return ""
    state = str(data.get("task", "")) if event.startswith("end ") else event
    return state if state in FINAL else None


def attempts(db: sqlite3.Connection, facts: RunFacts, task: str, epoch: int = 0) -> list[AttemptFacts]:
    """The attempts of a task, oldest first; of `epoch` that one alone."""
    rows = db.execute("SELECT * FROM attempt WHERE task = ? AND ? IN (0, epoch) ORDER BY epoch", (task, epoch)).fetchall()
    sessions = _sessions(db, task)
    ends = {int(row["epoch"]): (int(row["seq"]), float(row["at"])) for row in db.execute(_ENDS, (task,))}
    return [
        _attempt(db, facts, {"session": "", **dict(row), **sessions.get(int(row["epoch"]), {})}, ends.get(int(row["epoch"])))
        for row in rows
    ]


_ENDS = "SELECT epoch, seq, at FROM journal WHERE task = ? AND event LIKE 'end %' AND epoch IS NOT NULL"


def _sessions(db: sqlite3.Connection, task: str) -> dict[int, dict[str, str]]:
    rows = db.execute("SELECT epoch, session FROM conversation WHERE task = ?", (task,))
    return {int(row["epoch"]): {"session": str(row["session"])} for row in rows}


def _attempt(db: sqlite3.Connection, facts: RunFacts, row: dict[str, Any], closed: tuple[int, float] | None) -> AttemptFacts:
    task, created = str(row["task"]), float(row["created"])
    if closed is None and row["end"] is not None:  # its row of the journal was lost with a damaged ledger
        closed = 0, float(row["ended"] or created)
    result = json.loads(row["result"]) if row["result"] else {}
    account, gate = result.get("account") or {}, result.get("gate") or {}
    every = facts.lives[task]
    waited = account.get("slot_queue_s")
    return AttemptFacts(
        task=facts.tasks[task],
        epoch=int(row["epoch"]),
        life=every[-1] if closed is None else life_at(every, closed[0]),
        ready=created - waited if waited is not None else ready_since(db, task, created),
        created=created,
        started=row["started"],
        ended=row["ended"],
        closed=None if closed is None else closed[1],
        end=str(row["end"] or ""),
        cause=str(row["end_cause"] or ""),
        gate_s=float(gate.get("duration_s") or 0.0),
        gate_passed=bool(gate.get("passed", True)),
        session=str(row["session"]),
        account={name: account.get(name) for name in (*TIMES, *TAKEN)},
    )


TIMES = ("wall_s", "slot_queue_s", "launch_s", "model_s", "token_queue_s", "human_s", "paused_s", "local_s")
"""Of the account of an attempt."""
TAKEN = ("cpu_s", "peak_memory")


def stretches(db: sqlite3.Connection, task: str, epoch: int) -> list[Stretch]:
    """Its pauses, and its waits for others, of which the newest are kept."""
    rows = db.execute("SELECT * FROM wait WHERE task = ? AND epoch = ? ORDER BY number", (task, epoch))
    return [*_pauses(db, task, epoch), *map(_wait, rows)]


def _wait(row: sqlite3.Row) -> Stretch:
    holders = json.loads(row["holders"])
    told = {"nightcrew.wait.kind": str(row["kind"]), "nightcrew.wait.for": ", ".join(map(str, holders[:20]))}
    content = {"nightcrew.wait.what": str(row["what"])}
    return Stretch(What.WAIT, f"wait {row['kind']}", float(row["since"]), row["ended"], int(row["number"]), told, content)


def _pauses(db: sqlite3.Connection, task: str, epoch: int) -> list[Stretch]:
    found: list[Stretch] = []
    rows = db.execute(
        "SELECT seq, at, event, data FROM journal WHERE task = ? AND epoch = ? AND event IN ('paused', 'resumed') ORDER BY seq",
        (task, epoch),
    )
    for row in rows:
        goes_on = bool(found) and found[-1].end is None
        if row["event"] == "resumed" and goes_on:
            last = found.pop()
            found.append(Stretch(What.PAUSE, "paused", last.begin, float(row["at"]), last.number, last.attributes))
        elif row["event"] == "paused" and not goes_on:
            until = str(json.loads(row["data"]).get("until", ""))
            found.append(Stretch(What.PAUSE, "paused", float(row["at"]), None, int(row["seq"]), {"nightcrew.paused.until": until}))
    return found
