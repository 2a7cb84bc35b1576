"""The conversations of agents in the ledger: which one each attempt has, and who had it before."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from supervisor.core.conversations import How, Origin, is_session
from supervisor.core.errors import Refused
from supervisor.core.records import attempt_name
from supervisor.ledger import rows
from supervisor.ledger.rows import LaunchRow
from supervisor.ledger.write_access import WriteAccess

_SINCE = 4
"""The schema that brought the table: a reader may meet a ledger that no newer supervisor has opened yet."""


@dataclass(frozen=True, slots=True)
class Held:
    """One attempt that has a conversation, or had it."""

    task: str
    epoch: int
    session: str
    """Empty: the agent has not told yet."""
    origin: Origin | None
    end: str | None
    """None while the attempt has not ended."""
    end_cause: str
    tip: str
    """The commit that holds what it left; empty when there is none."""
    reason: str
    """Why its agent said that it failed."""


@dataclass(frozen=True, slots=True)
class Before:
    """What is known of the conversations that an attempt could go on with."""

    mine: list[Held]
    """Everybody who had that of this task's attempt before this one, which is the first; none where it is not known."""
    others: list[Held]
    """Everybody who had the one that the task says it continues, newest first."""


class Conversations:
    """The writer's door; `Ledger.conversations`."""

    def __init__(self, desk: WriteAccess) -> None:
        self._desk = desk

    def begin(self, task: str, epoch: int, session: str, origin: Origin | None, why_not: str = "") -> None:
        """Commit which conversation an attempt has, before anything of it starts. `why_not`: it was to go on with one and begins anew.

        Raises Refused, and writes nothing, when another attempt that has not ended goes on with the same one.
        """
        with self._desk.writing():
            other = next((held for held in of_session(self._desk.db, session) if held.end is None and held.task != task), None)
            if other is not None:
                name = attempt_name(other.task, other.epoch)
                raise Refused(
                    "another attempt has this conversation", on=session, why=f"{name} goes on with it", hint=f"nightcrew wait {other.task}"
                )
            self._desk.db.execute(
                "INSERT OR REPLACE INTO conversation VALUES (?, ?, ?, ?)",
                (task, epoch, session, origin.to_json() if origin is not None else ""),
            )
            self._say(task, epoch, origin, why_not)

    def _say(self, task: str, epoch: int, origin: Origin | None, why_not: str) -> None:
        """In the history, and in the cause of the attempt."""
        if why_not:
            self._cause(task, epoch, "cause || '; begun anew: ' || ?", why_not)
            self._desk.journal(task, epoch, "begun anew", {"why": why_not})
        elif origin is not None:
            if origin.how is How.RESUME:
                self._cause(task, epoch, "rtrim(? || cause, ': ')", "resumed: ")
            name = attempt_name(origin.task, origin.epoch)
            self._desk.journal(task, epoch, f"conversation {origin.how}", {"session": origin.session, "of": name, "start": origin.start})

    def _cause(self, task: str, epoch: int, change: str, value: str) -> None:
        self._desk.db.execute(f"UPDATE attempt SET cause = {change} WHERE task = ? AND epoch = ?", (value, task, epoch))  # noqa: S608 - ours

    def living(self, session: str) -> set[str]:
        """The tasks with an attempt that has this conversation and has not ended."""
        return {held.task for held in of_session(self._desk.db, session) if held.end is None} if session else set()

    def of(self, task: str, epoch: int) -> Held | None:
        """As `one`."""
        return one(self._desk.db, task, epoch)

    def before(self, task: str, epoch: int, launch: LaunchRow) -> Before:
        """What `task` could go on with in its attempt `epoch`."""
        db = self._desk.db
        own = one(db, task, epoch - 1)
        mine = [] if own is None else [own, *(held for held in of_session(db, own.session) if held != own)]
        parent = newest(db, in_full(db, launch)) if launch.spec.continue_from else None
        return Before(mine if own is not None and own.session else [], of_session(db, parent.session) if parent is not None else [])

    def learned(self, task: str, epoch: int, session: str) -> None:
        """The agent told which id its conversation has; nothing when that is known, or when it cannot be one."""
        if not is_session(session):
            return
        with self._desk.writing():
            self._desk.db.execute(
                "UPDATE conversation SET session = ? WHERE task = ? AND epoch = ? AND session = ''", (session, task, epoch)
            )


_SELECT = """
    SELECT c.task, c.epoch, c.session, c.origin, a.end, a.end_cause, json_extract(a.result, '$.tip') AS tip,
           json_extract(a.result, '$.agent.reason') AS reason
    FROM conversation c JOIN attempt a ON a.task = c.task AND a.epoch = c.epoch
"""


def one(db: sqlite3.Connection, task: str, epoch: int) -> Held | None:
    """The conversation of an attempt; None when nobody noted one."""
    return next(iter(_held(db, "WHERE c.task = ? AND c.epoch = ?", task, epoch)), None)


def first(db: sqlite3.Connection, session: str) -> dict[str, Any] | None:
    """`result.json` of the attempt that began the conversation, when it has one."""
    had = of_session(db, session)
    return rows.result(db, had[-1].task, had[-1].epoch) if had else None


def in_full(db: sqlite3.Connection, launch: LaunchRow) -> str:
    """The id of the task that a task continues; a plan names one of its own."""
    name = launch.spec.continue_from
    found = db.execute("SELECT id FROM task WHERE run = ? AND name = ?", (launch.run, name)).fetchone()
    return str(found["id"]) if found is not None else name


def newest(db: sqlite3.Connection, task: str) -> Held | None:
    """The newest of a task whose id is known."""
    return next(iter(_held(db, "WHERE c.task = ? AND c.session <> '' ORDER BY c.epoch DESC LIMIT 1", task)), None)


def of_session(db: sqlite3.Connection, session: str) -> list[Held]:
    """Every attempt that has or had the conversation, newest first."""
    return _held(db, "WHERE c.session = ? AND c.session <> '' ORDER BY a.created DESC, c.epoch DESC", session)


def _held(db: sqlite3.Connection, which: str, *values: object) -> list[Held]:
    if db.execute("PRAGMA user_version").fetchone()[0] < _SINCE:
        return []
    return [
        Held(
            row["task"], row["epoch"], row["session"], Origin.from_json(row["origin"]) if row["origin"] else None,
            row["end"], row["end_cause"] or "", row["tip"] or "", row["reason"] or "",
        )
        for row in db.execute(f"{_SELECT} {which}", values)
    ]  # fmt: skip
