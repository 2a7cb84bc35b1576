"""Snapshots in the ledger: the rows, and the steps of their states, each fenced by the number of the build.

A build commits its row before it runs anything, so that a killed supervisor knows what to take away (`abandoned`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from supervisor.contract import Tables
from supervisor.kernel import codec
from supervisor.kernel import snapshots as snapshots_rules
from supervisor.kernel.errors import NotFound, Refused, StaleEpoch, UsageError
from supervisor.kernel.names import nearest
from supervisor.kernel.snapshots import Snapshot, SnapshotSpec, SnapshotState

_ROWS = """
    SELECT s.id, s.project, s.spec, s.state, s.base_oid, s.digests, s.epoch, s.reason, s.created, s.used, s.setup_s, s.freeze_s, s.disk,
           (SELECT count(*) FROM attempt a
            WHERE a.snapshot = s.id AND a.removed IS NULL AND (a.worktree IS NOT NULL OR a.end IS NULL)) AS uses
    FROM snapshot s
"""


@dataclass(frozen=True, slots=True)
class Built:
    """What a build came to."""

    setup_s: float = 0.0
    freeze_s: float = 0.0
    disk: int = 0
    """Bytes."""


class Snapshots(Tables):
    """The writer's door to snapshots; `Ledger.snapshots`."""

    def begin(self, project: str, spec: SnapshotSpec, base_oid: str, digests: Mapping[str, str]) -> Snapshot:
        """Commit that a build begins, of a new snapshot or of one that failed.

        Raises Refused when the very same snapshot (`known`) is ready, stale or being built.
        """
        made = snapshots_rules.snapshot_id(project, spec.name, snapshots_rules.key(spec, base_oid, digests))
        with self._desk.writing():
            known = _one(self._desk.db, made)
            if known is None:
                self._insert(Snapshot(made, project, spec, SnapshotState.BUILDING, base_oid, digests))
            else:
                self._move(known, "build again", "", {"epoch": known.epoch + 1})
            return self._journaled(made)

    def _insert(self, new: Snapshot) -> None:
        now = self._desk.wall()
        self._desk.db.execute(
            """INSERT INTO snapshot (id, project, name, spec, state, base_oid, digests, created, used)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (new.id, new.project, new.spec.name, codec.dumps(new.spec), new.state, new.base_oid, _json(new.digests), now, now),
        )

    def step(self, snapshot: str, epoch: int, event: str, reason: str = "", built: Built | None = None) -> Snapshot:
        """Take an event of `core.snapshots.TRANSITIONS`; the row after it. `built` comes with `verified`.

        Raises StaleEpoch when a newer build owns the snapshot, or it is gone, and Refused when its state has no such step; nothing is
        written then.
        """
        with self._desk.writing():
            known = _one(self._desk.db, snapshot)
            if known is None or known.epoch != epoch:
                raise StaleEpoch("nothing written for", on=snapshot, why="a newer build owns the snapshot, or it was removed")
            self._move(known, event, reason, asdict(built) if built is not None else {})
            return self._journaled(snapshot)

    def _move(self, known: Snapshot, event: str, reason: str, facts: Mapping[str, object]) -> None:
        after = snapshots_rules.snapshot_after(known.state, event)
        names = "".join(f", {name} = ?" for name in facts)
        self._desk.db.execute(
            f"UPDATE snapshot SET state = ?, reason = ?{names} WHERE id = ?",  # noqa: S608 - our own columns
            (after, reason, *facts.values(), known.id),
        )

    def _journaled(self, snapshot: str) -> Snapshot:
        now = _one(self._desk.db, snapshot)
        assert now is not None  # noqa: S101 - written in this transaction
        data = {"snapshot": snapshot, "epoch": now.epoch, **({"reason": now.reason} if now.reason else {})}
        self._desk.journal(None, None, f"snapshot {now.state}", data)
        return now

    def known(self, project: str, spec: SnapshotSpec, base_oid: str, digests: Mapping[str, str]) -> Snapshot | None:
        """The snapshot of this name that is made of exactly this, whatever its state."""
        return _one(self._desk.db, snapshots_rules.snapshot_id(project, spec.name, snapshots_rules.key(spec, base_oid, digests)))

    def remove(self, snapshot: str, why: str) -> None:
        """Forget a snapshot, before its files are taken away. Idempotent.

        Raises Refused while an environment stands on it or a build is at it, which is looked at in the same transaction.
        """
        with self._desk.writing():
            known = _one(self._desk.db, snapshot)
            if known is None:
                return
            if known.uses or known.state is SnapshotState.BUILDING:
                held = f"environments that stand on it: {known.uses}" if known.uses else "it is being built"
                raise Refused("cannot remove", on=known.spec.name, why=held, kept="the snapshot", hint="nightcrew clean")
            self._desk.db.execute("DELETE FROM snapshot WHERE id = ?", (snapshot,))
            self._desk.journal(None, None, "snapshot removed", {"snapshot": snapshot, "why": why})

    def abandoned(self) -> tuple[Snapshot, ...]:
        """Every snapshot whose builder died, now failed. Only when a supervisor starts, which is when nobody can be building."""
        with self._desk.writing():
            found = tuple(map(_snapshot, self._desk.db.execute(f"{_ROWS} WHERE s.state = 'building' ORDER BY s.id").fetchall()))
            for row in found:
                self._move(row, "builder lost", "the supervisor ended while it was built", {})
            return tuple(self._journaled(row.id) for row in found)

    def all(self, project: str | None = None) -> tuple[Snapshot, ...]:
        """As `every`."""
        return every(self._desk.db, project)

    def find(self, name: str, project: str) -> Snapshot:
        """As the function `find`."""
        return find(self._desk.db, name, project)


def every(db: sqlite3.Connection, project: str | None = None) -> tuple[Snapshot, ...]:
    """The snapshots of a project, or of all, by name, the newest of a name first."""
    where, values = ("", ()) if project is None else ("WHERE s.project = ?", (project,))
    return tuple(_snapshot(row) for row in db.execute(f"{_ROWS} {where} ORDER BY s.project, s.name, s.created DESC, s.id", values))


def find(db: sqlite3.Connection, name: str, project: str) -> Snapshot:
    """The snapshot of `project` that `name` means: its name (the newest that is not failed, else the newest), its id, or as much of
    `NAME@KEY` as tells it from others. Raises NotFound, or UsageError when `name` could mean several."""
    rows = every(db, project)
    named = [row for row in rows if row.spec.name == name]
    if named:
        return next((row for row in named if row.state is not SnapshotState.FAILED), named[0])
    found = [row for row in rows if name == row.id or ("@" in name and row.id.startswith(f"{project}/{name}"))]
    if len(found) > 1:
        some = ", ".join(row.id.partition("/")[2] for row in found[:8])
        raise UsageError("more than one snapshot is meant by", on=name, why=some, hint="give more of it")
    if not found:
        why = nearest(name, {row.spec.name for row in rows}) if rows else "there is none in this repository"
        raise NotFound("no snapshot is called", on=name, why=why, hint="nightcrew snapshot ls")
    return found[0]


def _one(db: sqlite3.Connection, snapshot: str) -> Snapshot | None:
    row = db.execute(f"{_ROWS} WHERE s.id = ?", (snapshot,)).fetchone()
    return None if row is None else _snapshot(row)


def _snapshot(row: sqlite3.Row) -> Snapshot:
    return codec.load(Snapshot, {**row, "spec": json.loads(row["spec"]), "digests": json.loads(row["digests"])})


def _json(value: Mapping[str, str]) -> str:
    return json.dumps(dict(value), ensure_ascii=True, sort_keys=True)
