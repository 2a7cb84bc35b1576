"""Whatever rows are lost with a damaged ledger, what is left agrees: no row needs one that is not there."""

from __future__ import annotations

import contextlib
import itertools
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.store import mending
from tests.data import make_ledger_sample

BELOW = ("project", "run", "task", "attempt", "journal")
"""What other rows need, and what stand-ins for it are made from."""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A ledger with a row of every kind, of which anything may be deleted."""
    make_ledger_sample.write(tmp_path / "ledger.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as db:
        db.row_factory = sqlite3.Row
        db.execute("INSERT INTO leaving SELECT id, 0 FROM run")
        yield db


def left(db: sqlite3.Connection) -> list[str]:
    """What mending says; all rows are as before afterwards."""
    try:
        said = mending.mend(db)
        mending.check(db)
        assert [tuple(row) for row in db.execute("PRAGMA foreign_key_check")] == []
        return said
    finally:
        db.execute("ROLLBACK")
        db.execute("DROP VIEW IF EXISTS temp.ending")


def test_whatever_tables_are_lost(db: sqlite3.Connection) -> None:
    for count in range(len(BELOW) + 1):
        for gone in itertools.combinations(BELOW, count):
            db.execute("BEGIN")
            for table in gone:
                db.execute(f"DELETE FROM {table}")  # noqa: S608 - ours
            left(db)


def test_whatever_rows_are_lost(db: sqlite3.Connection, seed: int) -> None:
    luck = random.Random(seed)
    db.create_function("lost", 0, lambda: luck.random() < 0.5)
    for _ in range(100):
        db.execute("BEGIN")
        for table in luck.sample(BELOW, luck.randint(1, len(BELOW))):
            db.execute(f"DELETE FROM {table} WHERE lost()")  # noqa: S608 - ours
        left(db)


def test_a_lease_that_was_held_is_named_with_its_lost_task(db: sqlite3.Connection) -> None:
    db.execute("BEGIN")
    task, glob = db.execute("SELECT task, glob FROM lease WHERE ended IS NULL").fetchone()
    for table in ("task", "attempt", "journal"):
        db.execute(f"DELETE FROM {table}")  # noqa: S608 - ours
    assert f"lease of {glob}: lost with its task {task}" in left(db)
