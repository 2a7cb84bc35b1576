"""Conversations of agents, and what agents take, in the ledger."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any

from supervisor.contract import Tables
from supervisor.kernel import codec
from supervisor.kernel.capacity import Need, Took
from supervisor.kernel.conversations import Delivery, DeliveryState, How, Origin, Remarks, is_session
from supervisor.kernel.errors import Refused
from supervisor.kernel.names import attempt_name
from supervisor.store import rows
from supervisor.store.rows import LaunchRow
from supervisor.store.sqlite import WriteAccess

# Conversations
# -------------
# The conversations of agents in the ledger: which one each attempt has, and who had it before.


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
                (task, epoch, session, codec.dumps(origin) if origin is not None else ""),
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
    return [
        Held(
            row["task"], row["epoch"], row["session"], codec.loads(Origin, row["origin"]) if row["origin"] else None,
            row["end"], row["end_cause"] or "", row["tip"] or "", row["reason"] or "",
        )
        for row in db.execute(f"{_SELECT} {which}", values)
    ]  # fmt: skip


# Needs
# -----
# What agents take, in the ledger: what was learned of each kind, and what one attempt took.


_COLUMNS = [field.name for field in fields(Need)]


class Needs:
    """The writer's door to them; `Ledger.needs`."""

    def __init__(self, desk: WriteAccess) -> None:
        self._desk = desk

    def all(self) -> dict[str, Need]:
        """What was learned, by kind."""
        return {row["kind"]: Need(*(row[name] for name in _COLUMNS)) for row in self._desk.db.execute("SELECT * FROM need")}

    def keep(self, needs: Mapping[str, Need]) -> None:
        """Replace what was learned of these kinds. A power cut may undo it: it is learned again."""
        with self._desk.writing(durable=False):
            self._desk.db.executemany(
                f"INSERT OR REPLACE INTO need (kind, {', '.join(_COLUMNS)}) VALUES (?{', ?' * len(_COLUMNS)})",  # noqa: S608 - our columns
                [(kind, *astuple(need)) for kind, need in needs.items()],
            )

    def took(self, task: str, epoch: int) -> tuple[str, Took] | None:
        """The kind of an attempt that has ended, and what it took as far as it was measured; `contended` is left to the caller. None for
        one that never ran."""
        row = self._desk.db.execute(
            """SELECT json_extract(t.spec, '$.kind') AS kind, a.result, a.account, a.ended - a.started AS wall_s
               FROM attempt a JOIN task t ON t.id = a.task WHERE a.task = ? AND a.epoch = ?""",
            (task, epoch),
        ).fetchone()
        if row is None or not row["wall_s"] or row["wall_s"] <= 0:
            return None
        account, result = (json.loads(row[name]) if row[name] else {} for name in ("account", "result"))
        return str(row["kind"]), Took(
            wall_s=max(0.001, row["wall_s"] - (account.get("paused_s") or 0.0)),
            cpu_s=account.get("cpu_s", result.get("cpu_s")),
            peak_memory=account.get("peak_memory"),
            tokens=account.get("tokens", _tokens(result)),
            usd=result.get("cost_usd"),
        )


def _tokens(result: Mapping[str, Any]) -> int | None:
    """Those that count against a limit: what is read from a cache mostly does not."""
    counted = [(result.get("tokens") or {}).get(name) for name in ("input", "output", "cache_write")]
    return None if counted[0] is None else sum(number or 0 for number in counted)


# Deliveries
# ----------
# Texts for agents in the ledger. The journal has the size and the digest of each, and never the text.


_OPEN = "state IN ('pending', 'typing')"
"""Spelled out, since SQLite uses the partial index for exactly these words."""


class Deliveries:
    """The writer's door to deliveries; `Ledger.deliveries`."""

    def __init__(self, desk: WriteAccess, tables: Collection[Tables]) -> None:
        self._desk, self._tables = desk, tables

    def keep(
        self,
        tasks: Collection[str],
        text: str,
        mails: Collection[str] = (),
        comments: Collection[int] | None = None,
        remarks: Remarks | None = None,
    ) -> list[Delivery]:
        """Commit that `text` is to be typed into the agent of each task, all of them or none. `mails`: the messages that it hands
        over, which are given with that. `comments` and `remarks`: as `Tables.text_kept` says; it may refuse them."""
        data, now = text.encode(), self._desk.wall()
        digest = hashlib.sha256(data).hexdigest()
        ids = []
        with self._desk.writing():
            for task in tasks:
                made = self._desk.db.execute(
                    "INSERT INTO delivery (task, state, text, size, digest, reason, created, changed) VALUES (?, ?, ?, ?, ?, '', ?, ?)",
                    (task, DeliveryState.PENDING, text, len(data), digest, now, now),
                )
                ids.append(int(made.lastrowid or 0))
                self._desk.journal(task, None, "send", {"delivery": ids[-1], "bytes": len(data), "sha256": digest})
                for tables in self._tables:
                    tables.text_kept(task, ids[-1], comments, remarks)
                given = "UPDATE mail SET state = 'given', delivery = ?, changed = ? WHERE id = ? AND state IN ('new', 'given')"
                self._desk.db.executemany(given, [(ids[-1], now, mail) for mail in mails])
        return [self.one(number) for number in ids]

    def typing(self, delivery: int, epoch: int) -> None:
        """Commit that it is about to be typed into an attempt."""
        with self._desk.writing():
            self._move(delivery, DeliveryState.TYPING, "", epoch)

    def back(self, delivery: int) -> None:
        """It was certainly not typed: it waits again."""
        with self._desk.writing():
            self._move(delivery, DeliveryState.PENDING, "", None)

    def ended(self, delivery: int, state: DeliveryState, reason: str = "") -> None:
        """Commit what became of it; the text is forgotten. Comments and remarks that it held wait again when it was dropped."""
        with self._desk.writing():
            known = self.one(delivery)
            if state is DeliveryState.DROPPED:
                for tables in self._tables:
                    tables.text_dropped(known.task, delivery)
            self._move(delivery, state, reason, known.epoch)
            self._desk.db.execute("UPDATE delivery SET text = '' WHERE id = ?", (delivery,))
            data = {"delivery": delivery, "bytes": known.size, "sha256": known.digest, **({"why": reason} if reason else {})}
            self._desk.journal(known.task, known.epoch, f"send {state}", data)

    def waits(self, delivery: int, reason: str) -> None:
        """Note why it waits, for people who look; nothing when that is noted already."""
        if self.one(delivery).reason != reason:
            with self._desk.writing():
                self._move(delivery, DeliveryState.PENDING, reason, None)

    def _move(self, delivery: int, state: DeliveryState, reason: str, epoch: int | None) -> None:
        self._desk.db.execute(
            "UPDATE delivery SET state = ?, reason = ?, epoch = ?, changed = ? WHERE id = ?",
            (state, reason, epoch, self._desk.wall(), delivery),
        )

    def one(self, delivery: int) -> Delivery:
        """One of them."""
        return _delivery(self._desk.db.execute("SELECT * FROM delivery WHERE id = ?", (delivery,)).fetchone())

    def unfinished(self) -> list[Delivery]:
        """As `pending`, of the whole ledger."""
        return pending(self._desk.db)


def pending(db: sqlite3.Connection) -> list[Delivery]:
    """Those that wait or are being typed, in the order in which they were sent."""
    return [_delivery(row) for row in db.execute(f"SELECT * FROM delivery WHERE {_OPEN} ORDER BY id")]  # noqa: S608 - ours


def of_task(db: sqlite3.Connection, task: str, at_most: int) -> list[Delivery]:
    """The newest of one task, oldest first."""
    found = db.execute("SELECT * FROM delivery WHERE task = ? ORDER BY id DESC LIMIT ?", (task, at_most)).fetchall()
    return [_delivery(row) for row in reversed(found)]


def _delivery(row: sqlite3.Row) -> Delivery:
    return codec.load(Delivery, dict(row))
