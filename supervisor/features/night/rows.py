"""Nights in the ledger: a row beside the run, with its terms and how far it has come. Standard library only.

A task belongs to a night by its run (`run.night`); the run of a task that an agent added belongs to the night of its parent's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING

from supervisor.contract import Tables
from supervisor.kernel.night import NightOrder, NightState, NightTerms, OnCap

if TYPE_CHECKING:
    from supervisor.kernel.decision import Command
    from supervisor.kernel.spec import Submission

_TERMS = [field.name for field in fields(NightTerms)]


@dataclass(frozen=True, slots=True)
class NightRow:
    """One night as the ledger has it."""

    run: str
    terms: NightTerms
    state: NightState
    began: float
    ended: float | None
    why: str
    """Why nothing starts any more; empty while it is open."""
    plan: str
    plan_hash: str
    timer: str


class Nights(Tables):
    """The writer's door to them; `Ledger.nights`."""

    def submitted(self, run: str, submission: Submission, first: str) -> None:  # noqa: ARG002 - the shape of `Tables`
        """Make the run the night that it is to be, or a part of its parent's night."""
        order, parent = submission.night, next((task.parent for task in submission.spec.tasks if task.parent), "")
        if order is not None:
            self._begin(run, order)
        elif parent:
            found = "SELECT r.night FROM task t JOIN run r ON r.id = t.run WHERE t.id = ?"
            self._desk.db.execute(f"UPDATE run SET night = coalesce(({found}), '') WHERE id = ?", (parent, run))  # noqa: S608 - a literal of ours

    def _begin(self, run: str, order: NightOrder) -> None:
        now, terms = self._desk.wall(), order.terms
        marks = ", ".join("?" * (len(_TERMS) + 7))
        self._desk.db.execute("UPDATE run SET night = id WHERE id = ?", (run,))
        self._desk.db.execute(
            f"INSERT INTO night (run, {', '.join(_TERMS)}, state, began, why, plan, plan_hash, timer) VALUES ({marks})",  # noqa: S608 - our columns
            (run, *astuple(terms), NightState.OPEN, now, "", order.plan, order.plan_hash, order.timer),
        )
        said = {name: getattr(terms, name) for name in _TERMS}
        self._desk.journal(None, None, "night began", {"run": run, **said, "plan_hash": order.plan_hash, "timer": order.timer})

    def decided(self, command: Command) -> None:
        """Write how far a night has come. The same command twice changes nothing, and no night goes back."""
        from supervisor.kernel.decision import MoveNight  # here: short commands read nights and decide nothing

        if not isinstance(command, MoveNight):
            return
        run, state, why = command.run, command.state, command.why
        ended = self._desk.wall() if state is NightState.ENDED else None
        later = ", ".join(f"'{one}'" for one in list(NightState)[list(NightState).index(state) :])
        done = self._desk.db.execute(
            f"UPDATE night SET state = ?, why = ?, ended = ? WHERE run = ? AND state NOT IN ({later})",  # noqa: S608 - our own states
            (state, why, ended, run),
        )
        if done.rowcount:
            self._desk.journal(None, None, f"night {state}", {"run": run, "why": why})

    def open(self) -> list[NightRow]:
        """Those that have not ended, oldest first."""
        return under_way(self._desk.db)


def under_way(db: sqlite3.Connection) -> list[NightRow]:
    """Those that have not ended, oldest first."""
    return list(_rows(db, "WHERE state <> 'ended' ORDER BY began"))


def every(db: sqlite3.Connection) -> list[NightRow]:
    """All nights, the newest first."""
    return list(_rows(db, "ORDER BY began DESC, run DESC"))


def of_run(db: sqlite3.Connection, run: str) -> NightRow | None:
    """The night that a run is; None for one that is none."""
    return next(_rows(db, "WHERE run = ?", run), None)


def tasks(db: sqlite3.Connection, run: str) -> list[str]:
    """The ids of all tasks of a night, those that agents added among them."""
    found = db.execute("SELECT t.id FROM run r JOIN task t ON t.run = r.id WHERE r.night = ? AND r.night <> '' ORDER BY t.ord", (run,))
    return [str(row[0]) for row in found]


def _rows(db: sqlite3.Connection, rest: str, *values: object) -> Iterator[NightRow]:
    for row in db.execute(f"SELECT * FROM night {rest}", values):  # noqa: S608 - literals of ours
        shape = dict(row)
        terms = NightTerms(**{name: shape.pop(name) for name in _TERMS if name != "on_cap"}, on_cap=OnCap(shape.pop("on_cap")))
        yield NightRow(**{**shape, "terms": terms, "state": NightState(shape["state"])})
