"""How each command of a decision is written. Those of an attempt are fenced by its epoch: a stale one writes nothing."""

from __future__ import annotations

import hashlib
import json
from typing import assert_never

from supervisor.core.commands import (
    Begin,
    Choose,
    Collect,
    Command,
    Compare,
    Finish,
    LookForNote,
    MarkRunning,
    MoveNight,
    Pause,
    Resume,
    Revive,
    SetState,
    Start,
    Stop,
)
from supervisor.core.errors import StaleEpoch
from supervisor.core.records import attempt_name
from supervisor.core.states import NEEDS_YOU, TaskState, Until
from supervisor.ledger.choices import Choices
from supervisor.ledger.leases import Leases
from supervisor.ledger.nights import Nights
from supervisor.ledger.queries import OPEN
from supervisor.ledger.write_access import WriteAccess

_PAUSED = """paused = json_set(CASE WHEN paused IS NULL OR json_extract(paused, '$.resuming') IS NOT NULL
    THEN json_object('at', ?) ELSE paused END, '$.until', ?, '$.for', ?)"""
"""What a pause found is kept while it lasts, whatever it waits for."""


def _why_paused(until: Until, made_for: str) -> str:
    if made_for:
        return f"makes room for {made_for}"
    return "a person paused it" if until is Until.PERSON else "a person resumed it, and no slot is free"


class CommandWriter:
    """Writes commands into the ledger; `Ledger.commit` owns the transaction."""

    def __init__(self, desk: WriteAccess, nights: Nights, leases: Leases, choices: Choices) -> None:
        self._desk, self._nights, self._leases, self._choices = desk, nights, leases, choices

    def write(self, command: Command) -> None:
        """Write one command inside the open transaction. Raises StaleEpoch as `Ledger.commit` says."""
        match command:
            case Start(task, epoch, cause):
                self._start(task, epoch, cause)
            case MarkRunning(task, epoch):
                self._step(task, epoch, "state = 'running', started = ?", self._desk.wall())
            case Begin(task, epoch):
                self._desk.journal(task, epoch, "begin", {})
            case Stop(task, epoch, why):
                self._stop(task, epoch, why)
            case Pause():
                self._pause(command)
            case Resume(task, epoch):
                self._step(task, epoch, "paused = json_set(paused, '$.resuming', 1)")
                self._desk.journal(task, epoch, "resumed", {})
            case Collect(task, epoch, end, cause):
                self._step(task, epoch, "state = 'collecting', judged = ?, end_cause = ?", end, cause)
                self._desk.journal(task, epoch, "tree gone", {"end": end, "cause": cause})
            case Finish():
                self._finish(command)
            case SetState(task, state, reason):
                self._set_state(task, state, reason)
            case Revive(task, cause):
                self._revive(task, cause)
            case MoveNight(run, state, why):
                self._nights.moved(run, state, why)
            case Choose(choice):
                self._choices.made(choice)
            case LookForNote() | Compare():
                pass
            case _:
                assert_never(command)

    def _start(self, task: str, epoch: int, cause: str) -> None:
        moved = self._desk.db.execute(
            "UPDATE task SET state = 'running', epoch = ?, reason = '', changed = ? WHERE id = ? AND epoch = ? AND state = 'ready'",
            (epoch, self._desk.wall(), task, epoch - 1),
        )
        self._fence(moved.rowcount, task, epoch)
        self._desk.db.execute(
            "INSERT INTO attempt (task, epoch, state, cause, created) VALUES (?, ?, 'launching', ?, ?)",
            (task, epoch, cause, self._desk.wall()),
        )
        self._leases.started(task, epoch)
        spec = self._digest("spec", "SELECT spec FROM task WHERE id = ?", task)
        self._desk.journal(task, epoch, "start", {**({"cause": cause} if cause else {}), **spec})

    def _pause(self, asked: Pause) -> None:
        task, epoch, question = asked.task, asked.epoch, asked.question
        self._step(task, epoch, _PAUSED, self._desk.wall(), asked.until, asked.made_for)
        why = f"{NEEDS_YOU}{question}" if question else _why_paused(asked.until, asked.made_for)
        self._desk.journal(task, epoch, "paused", {"until": asked.until, "why": why})
        if question:
            self._step(task, epoch, "paused = json_set(paused, '$.question', ?)", question)
            self._desk.journal(task, epoch, "set aside", {"question": question})

    def _stop(self, task: str, epoch: int, why: str) -> None:
        # Work that is being secured stays in that state: only the reason is new.
        self._step(task, epoch, "state = CASE state WHEN 'collecting' THEN state ELSE 'stopping' END, stop_why = ?", why)
        self._desk.journal(task, epoch, "stopping", {"why": why})

    def _step(self, task: str, epoch: int, change: str, *values: object) -> None:
        moved = self._desk.db.execute(
            f"""UPDATE attempt SET {change} WHERE task = ? AND epoch = ? AND end IS NULL
                AND epoch = (SELECT epoch FROM task WHERE id = attempt.task)""",  # noqa: S608 - `change` is a literal of ours
            (*values, task, epoch),
        )
        self._fence(moved.rowcount, task, epoch)

    def _finish(self, done: Finish) -> None:
        now = self._desk.wall()
        moved = self._desk.db.execute(
            """UPDATE attempt SET state = 'ended', end = ?, end_cause = ?, ended = coalesce(ended, ?)
               WHERE task = ? AND epoch = ? AND end IS NULL""",
            (done.end, done.cause, now, done.task, done.epoch),
        )
        self._fence(moved.rowcount, done.task, done.epoch)
        self._leases.attempt_ended(done.task, done.epoch)
        moved = self._desk.db.execute(
            """UPDATE task SET state = ?, reason = ?, not_before = ?, changed = ?,
               failures = ?, gates = ?, restarts = ? WHERE id = ? AND epoch = ? AND state = 'running'""",
            (
                done.state,
                done.reason or (f"{done.end}: {done.cause}" if done.cause else str(done.end)),
                now + done.delay_s if done.delay_s else 0.0,
                now,
                done.tally.failures,
                done.tally.gates,
                json.dumps(done.tally.restarts),
                done.task,
                done.epoch,
            ),
        )
        self._fence(moved.rowcount, done.task, done.epoch)
        result = self._digest("result", "SELECT result FROM attempt WHERE task = ? AND epoch = ?", done.task, done.epoch)
        self._desk.journal(done.task, done.epoch, f"end {done.end}", {"cause": done.cause, "task": done.state, **result})
        if done.question:
            self._desk.journal(done.task, done.epoch, "set aside", {"question": done.question})

    def _set_state(self, task: str, state: TaskState, reason: str) -> None:
        # No reason leaves the one before: it is the cause of the next attempt when a retried task becomes ready.
        moved = self._desk.db.execute(
            "UPDATE task SET state = ?, reason = coalesce(nullif(?, ''), reason), changed = ? WHERE id = ? AND state <> 'running'",
            (state, reason, self._desk.wall(), task),
        )
        self._fence(moved.rowcount, task)
        self._desk.journal(task, None, state, {"reason": reason} if reason else {})

    def _revive(self, task: str, cause: str) -> None:
        moved = self._desk.db.execute(
            f"""UPDATE task SET state = 'waiting', reason = ?, failures = 0, gates = 0, restarts = '[]', not_before = 0, changed = ?,
                spec = json_set(spec, '$.not_after', 0)
                WHERE id = ? AND state NOT IN ({OPEN}) AND run NOT IN (SELECT run FROM leaving)""",  # noqa: S608 - our own states
            (cause, self._desk.wall(), task),
        )
        self._fence(moved.rowcount, task)
        self._desk.journal(task, None, "retry", {"cause": cause})

    def _digest(self, name: str, sql: str, *which: object) -> dict[str, str]:
        """SHA-256 of a text of the ledger, so that what proves the journal proves it as well; nothing when there is none."""
        text = self._desk.db.execute(sql, which).fetchone()[0]
        return {} if text is None else {f"{name}_sha256": hashlib.sha256(str(text).encode()).hexdigest()}

    def _fence(self, rowcount: int, task: str, epoch: int | None = None) -> None:
        if rowcount != 1:
            on = task if epoch is None else attempt_name(task, epoch)
            raise StaleEpoch("nothing written for", on=on, why="a newer attempt owns the task, or it already ended")
