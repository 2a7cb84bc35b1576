"""Snapshots in a real ledger: every step fenced, nothing that is used removed, builds of a dead supervisor found."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.kernel.decision import Start
from supervisor.kernel.errors import LedgerError, NotFound, Refused, StaleEpoch, UsageError
from supervisor.kernel.snapshots import Snapshot, SnapshotSpec, SnapshotState, key, snapshot_id
from supervisor.kernel.states import End, TaskState
from supervisor.snapshots import rows as snapshots_rows
from supervisor.snapshots.rows import Built, Snapshots
from supervisor.store import sqlite
from supervisor.store.ledger import Ledger
from tests.store.kit import Wall, rows, submit, whole

PROJECT = "0123456789ab"
DEPS = SnapshotSpec("deps", setup=("make deps",))
BUILT = Built(setup_s=90.0, freeze_s=2.0, disk=2**20)


def begin(ledger: Ledger, spec: SnapshotSpec = DEPS, base: str = "c0ffee") -> Snapshot:
    return ledger.of(Snapshots).begin(PROJECT, spec, base, {"uv.lock": "ab"})


def ready(ledger: Ledger, spec: SnapshotSpec = DEPS, base: str = "c0ffee") -> Snapshot:
    made = begin(ledger, spec, base)
    return ledger.of(Snapshots).step(made.id, made.epoch, "verified", built=BUILT)


def forked(ledger: Ledger, made: Snapshot) -> tuple[str, int]:
    """An attempt that runs in an environment of `made`."""
    (task,) = submit(ledger, "a")
    ledger.commit([Start(task, 1, "")])
    ledger.lent(task, 1, made.id)
    ledger.note(task, 1, layers="{}", tier=1)
    return task, 1


def test_a_build_is_on_disk_before_it_runs_and_ends_with_what_it_measured(ledger: Ledger, path: Path, wall: Wall) -> None:
    made = begin(ledger)
    assert made.id == snapshot_id(PROJECT, "deps", key(DEPS, "c0ffee", {"uv.lock": "ab"}))
    assert rows(path, "SELECT state, epoch, created FROM snapshot") == [{"state": "building", "epoch": 1, "created": wall.now}]
    done = ledger.of(Snapshots).step(made.id, 1, "verified", built=BUILT)
    assert done == Snapshot(
        made.id, PROJECT, DEPS, SnapshotState.READY, "c0ffee", {"uv.lock": "ab"},
        created=wall.now, used=wall.now, setup_s=90.0, freeze_s=2.0, disk=2**20,
    )  # fmt: skip
    assert ledger.of(Snapshots).all() == (done,)
    events = [row["event"] for row in rows(path, "SELECT event FROM journal ORDER BY seq")]
    assert events == ["snapshot building", "snapshot ready"]


def test_the_same_ingredients_are_built_once(ledger: Ledger) -> None:
    made = begin(ledger)
    with pytest.raises(Refused, match="it is building"):
        begin(ledger)
    ledger.of(Snapshots).step(made.id, 1, "verified", built=BUILT)
    with pytest.raises(Refused, match="it is ready"):
        begin(ledger)
    assert begin(ledger, base="d0d0").id != made.id
    assert ledger.of(Snapshots).known(PROJECT, DEPS, "c0ffee", {"uv.lock": "ab"}) == ledger.of(Snapshots).all()[0]
    assert ledger.of(Snapshots).known(PROJECT, DEPS, "c0ffee", {"uv.lock": "cd"}) is None


def test_a_failed_build_can_be_built_again_and_its_late_builder_writes_nothing(ledger: Ledger) -> None:
    made = begin(ledger)
    assert ledger.of(Snapshots).step(made.id, 1, "failed", "exit code 2").reason == "exit code 2"
    again = begin(ledger)
    assert (again.id, again.epoch, again.state, again.reason) == (made.id, 2, SnapshotState.BUILDING, "")
    with pytest.raises(StaleEpoch, match="a newer build owns"):
        ledger.of(Snapshots).step(made.id, 1, "verified", built=BUILT)
    assert ledger.of(Snapshots).all()[0] == again
    assert ledger.of(Snapshots).step(made.id, 2, "verified", built=BUILT).state is SnapshotState.READY


def test_a_step_that_its_state_does_not_have_writes_nothing(ledger: Ledger, path: Path) -> None:
    made = ready(ledger)
    before = rows(path, "SELECT * FROM snapshot"), rows(path, "SELECT count(*) AS n FROM journal")
    with pytest.raises(Refused, match="cannot take 'changed back' for a snapshot: it is ready"):
        ledger.of(Snapshots).step(made.id, 1, "changed back")
    with pytest.raises(StaleEpoch):
        ledger.of(Snapshots).step("nobody", 1, "changed")
    assert (rows(path, "SELECT * FROM snapshot"), rows(path, "SELECT count(*) AS n FROM journal")) == before
    assert ledger.of(Snapshots).step(made.id, 1, "changed", "uv.lock changed").state is SnapshotState.STALE
    assert ledger.of(Snapshots).step(made.id, 1, "changed back").state is SnapshotState.READY


def test_nothing_that_an_environment_stands_on_is_removed(ledger: Ledger) -> None:
    made = ready(ledger)
    task, epoch = forked(ledger, made)
    with pytest.raises(Refused, match=r"cannot remove deps: environments that stand on it: 1"):
        ledger.of(Snapshots).remove(made.id, "asked")
    ledger.note(task, epoch, worktree="/w")
    ledger.commit(whole(task, epoch)[1:])
    assert ledger.of(Snapshots).all()[0].uses == 1, "its agent has ended, its worktree is still there"
    ledger.note(task, epoch, removed=1.0)
    assert ledger.of(Snapshots).all()[0].uses == 0
    ledger.of(Snapshots).remove(made.id, "asked")
    ledger.of(Snapshots).remove(made.id, "asked")
    assert ledger.of(Snapshots).all() == ()


def test_an_attempt_that_ended_before_it_had_a_worktree_holds_nothing(ledger: Ledger) -> None:
    made = ready(ledger)
    task, epoch = forked(ledger, made)
    ledger.commit(whole(task, epoch, End.LOST, TaskState.READY)[1:])
    assert ledger.of(Snapshots).all()[0].uses == 0


def test_one_that_is_being_built_is_not_removed(ledger: Ledger) -> None:
    made = begin(ledger)
    with pytest.raises(Refused, match="it is being built"):
        ledger.of(Snapshots).remove(made.id, "asked")


def test_when_it_was_used_is_kept(ledger: Ledger, wall: Wall) -> None:
    made, (task,) = ready(ledger), submit(ledger, "a")
    ledger.commit([Start(task, 1, "")])
    wall.now += 60
    ledger.lent(task, 1, made.id)
    assert (ledger.of(Snapshots).all()[0].used, ledger.of(Snapshots).all()[0].uses) == (wall.now, 1)


def test_builds_of_a_dead_supervisor_are_found_once(path: Path, wall: Wall) -> None:
    with closing(Ledger(path, wall)) as ledger:
        made, other = begin(ledger), ready(ledger, base="d0d0")
    with closing(Ledger(path, wall)) as ledger:
        (lost,) = ledger.of(Snapshots).abandoned()
        assert (lost.id, lost.state, lost.reason) == (made.id, SnapshotState.FAILED, "the supervisor ended while it was built")
        assert ledger.of(Snapshots).abandoned() == ()
        assert {row.id: row.state for row in ledger.of(Snapshots).all()} == {made.id: SnapshotState.FAILED, other.id: SnapshotState.READY}


def test_a_name_finds_the_newest_that_is_of_use(ledger: Ledger, path: Path, wall: Wall) -> None:
    first = ready(ledger)
    wall.now += 1
    second = ready(ledger, base="d0d0")
    wall.now += 1
    third = begin(ledger, base="eeee")
    ledger.of(Snapshots).step(third.id, 1, "failed", "exit code 1")
    ready(ledger, SnapshotSpec("deps2", setup=("x",)))
    with closing(sqlite.connect_readonly(path)) as db:
        assert snapshots_rows.find(db, "deps", PROJECT).id == second.id
        assert snapshots_rows.find(db, first.id, PROJECT).id == first.id
        assert snapshots_rows.find(db, first.id.partition("/")[2][:-3], PROJECT).id == first.id
        with pytest.raises(UsageError, match="more than one snapshot is meant by deps@"):
            snapshots_rows.find(db, "deps@", PROJECT)
        for name, project in (("dep", PROJECT), ("deps", "ffffffffffff")):
            with pytest.raises(NotFound, match=f"no snapshot is called {name}"):
                snapshots_rows.find(db, name, project)
        assert snapshots_rows.every(db, "ffffffffffff") == ()
        assert [row.spec.name for row in snapshots_rows.every(db)] == ["deps", "deps", "deps", "deps2"]


def test_a_second_writer_waits_and_a_reader_never_does(ledger: Ledger, path: Path) -> None:
    """All writing is `BEGIN IMMEDIATE` by the ledger's own transactions."""
    made = begin(ledger)
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other:
        other.execute("BEGIN IMMEDIATE")
        ledger._db.execute("PRAGMA busy_timeout=50")
        with pytest.raises(LedgerError, match="locked"):
            ledger.of(Snapshots).step(made.id, 1, "failed")
        with closing(sqlite.connect_readonly(path)) as db:
            assert snapshots_rows.every(db)[0].state is SnapshotState.BUILDING
        other.execute("ROLLBACK")
    assert ledger.of(Snapshots).step(made.id, 1, "failed").state is SnapshotState.FAILED
