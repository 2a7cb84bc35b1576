"""A ledger with a long past answers as one with a short one, and becomes small again: 1,000 tasks; in the long form 1,000,000."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.features.retention.service import Doors, Keeper
from supervisor.host.clock import SystemClock
from supervisor.host.paths import Home
from supervisor.kernel.retention import Keep, Limit
from supervisor.store import archive, journal, queries, sqlite
from supervisor.store.ledger import Ledger
from tests.store import history
from tests.store.kit import Wall, submit, whole
from tests.store.test_ledger_scale import sql_steps

FEW = 100
MANY = [1_000, pytest.param(1_000_000, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])]
OLDEST = "r000000"


@pytest.mark.parametrize("tasks", MANY)
def test_it_answers_as_one_with_a_short_past(tmp_path: Path, tasks: int) -> None:
    few, many = (steps(Home(tmp_path / str(size)), size) for size in (FEW, tasks))
    print({name: (few[name], many[name]) for name in few})
    for name, count in many.items():
        assert count <= 1.2 * few[name] + 50, name


def steps(home: Home, tasks: int) -> dict[str, int]:
    """SQL steps of what `status`, `status NAME`, `add` and a life ask."""
    home.root.mkdir()
    history.make(home.ledger, tasks)
    found: dict[str, int] = {}

    def timed(name: str, ask: Callable[[], object]) -> None:
        began = time.perf_counter()
        found[name] = sql_steps(db, ask)
        print(f"{tasks} tasks, {name}: {found[name]} steps, {1000 * (time.perf_counter() - began):.1f} ms")

    with closing(sqlite.connect_readonly(home.ledger)) as db:
        timed("screen", lambda: (queries.foremost(db, 50), queries.unfinished_counts(db), queries.newest_run(db)))
        timed("of the newest run", lambda: queries.ended_of(db, str(queries.newest_run(db)), 50))
        timed("name", lambda: queries.match_tasks(db, f"{OLDEST}/t05"))
        timed("one", lambda: (queries.one(db, f"{OLDEST}/t05"), journal.journal_of_task(db, f"{OLDEST}/t05")))
        timed("followed", lambda: journal.touched(db, journal.newest_entry(db)))
    began = time.perf_counter()
    with closing(Ledger(home.ledger, Wall())) as ledger:
        print(f"{tasks} tasks, opened in {time.perf_counter() - began:.1f} s")
        db = ledger._db
        timed("tick", lambda: (ledger.unreleased(), ledger.unfinished(0.0)))
        timed("add", lambda: submit(ledger, "t", run="r-new"))
        timed("life", lambda: ledger.commit(whole("r-new/t")))
    return found


@pytest.mark.parametrize("tasks", MANY)
def test_it_becomes_small_again(tmp_path: Path, tasks: int) -> None:
    home = Home(tmp_path)
    runs = history.make(home.ledger, tasks)
    size = home.ledger.stat().st_size
    nothing, bound = Limit(), size // 3
    terms = Keep(nothing, nothing, nothing, Limit(size=bound))
    began, pieces = time.perf_counter(), list[float]()
    for _ in Keeper(home, terms, SystemClock(), Doors(lambda: 1 << 40, lambda _, __: None)).round():
        pieces.append(time.perf_counter())
    slowest = max(after - before for before, after in zip([began, *pieces], pieces, strict=False))
    moved = len(read(home, OLDEST))
    with contextlib.closing(archive.connect(home.archive)) as kept:
        gone = [run.id for run in queries.runs(kept, 1 << 40)]
    took = pieces[-1] - began
    speed = len(gone) * history.PER_RUN / took
    print(f"{len(gone)} of {len(runs)} runs in {took:.1f} s: {speed:.0f} tasks/s, slowest piece {slowest:.3f} s")
    assert sorted(gone) == ["0101-samp", *runs[: len(gone) - 1]], "the oldest went"
    assert home.ledger.stat().st_size <= bound * 1.1 and moved == history.PER_RUN
    assert len(read(home, runs[-1])) == history.PER_RUN


def read(home: Home, run: str) -> list[queries.TaskView]:
    with closing(archive.reader(home.ledger, home.archive, run)) as db:
        return queries.of_run(db, run)
