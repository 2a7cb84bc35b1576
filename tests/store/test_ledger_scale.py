"""What is written and read in a step costs what changed, not what waits: counted beside 100 and beside 3,000 waiting tasks."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from supervisor.cli import live_view, status
from supervisor.cli.live_view import LiveView
from supervisor.client.follow import Followed
from supervisor.host.paths import Home
from supervisor.kernel.crew import Crew
from supervisor.kernel.pressure import ADMIT
from supervisor.kernel.settings import Settings
from supervisor.kernel.states import TaskState
from supervisor.store import journal, queries, sqlite
from supervisor.store.ledger import Ledger
from tests.kernel.effort import Effort, effort
from tests.store.kit import RUN, Wall, spec, submit, whole

SIZES = (100, 3000)


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> list[Home]:
    """One for each size: half of its tasks are ready, and each of the others comes after one of them."""
    return [fill(Home(tmp_path_factory.mktemp(f"waiting{size}")), size) for size in SIZES]


def fill(home: Home, size: int) -> Home:
    with closing(Ledger(home.ledger, Wall())) as ledger:
        first = [spec(f"a{number}") for number in range(size // 2)]
        submit(ledger, *first, *(spec(f"b{number}", after=(f"a{number}",)) for number in range(size // 2)))
        ledger.commit(whole(f"{RUN}/a0")[:2])
    return home


@pytest.fixture
def readers(homes: list[Home]) -> Iterator[list[sqlite3.Connection]]:
    with closing(sqlite.connect_readonly(homes[0].ledger)) as few, closing(sqlite.connect_readonly(homes[1].ledger)) as many:
        yield [few, many]


@pytest.mark.parametrize(
    "ask",
    [
        lambda db: queries.foremost(db, 5),
        lambda db: queries.several(db, [f"{RUN}/a1", f"{RUN}/b7"]),
        lambda db: queries.one(db, f"{RUN}/b7"),
        lambda db: journal.touched(db, journal.newest_entry(db) - 2),
        queries.newest_run,
    ],
    ids=["foremost", "several", "one", "touched", "newest_run"],
)
def test_what_a_screen_asks(readers: list[sqlite3.Connection], ask: Callable[[sqlite3.Connection], object]) -> None:
    few, many = (sql_steps(db, lambda db=db: ask(db)) for db in readers)  # type: ignore[misc]
    assert 0 < many <= few
    about_the_same(*(effort(lambda db=db: ask(db)) for db in readers))  # type: ignore[misc]


def test_a_life_is_written(tmp_path: Path) -> None:
    def life(size: int) -> int:
        home = fill(Home(tmp_path / str(size)), size)
        with closing(Ledger(home.ledger, Wall())) as ledger:
            return sql_steps(ledger._db, lambda: whole_life(ledger, f"{RUN}/a3"))

    for size in SIZES:
        (tmp_path / str(size)).mkdir()
    few, many = map(life, SIZES)
    assert 0 < many <= few


def whole_life(ledger: Ledger, task: str) -> None:
    for command in whole(task):
        ledger.commit([command])
        ledger.launch_row(task)
        ledger.attempt(task, 1)
        queries.needs(ledger.db, task)
    ledger.note(task, 1, tier=0)
    ledger.release(task, 1)


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a terminal that can be drawn on as stdout. No fixture: pytest sets stdout anew when a test begins."""
    monkeypatch.setenv("TERM", "xterm")
    near, far = os.openpty()
    with os.fdopen(near, "rb"), os.fdopen(far, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        yield


def test_the_supervisors_own_screen(homes: list[Home], monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch):
        about_the_same(*(effort(lambda shown=shown: draw(*shown)) for shown in map(shown_of, homes)))  # type: ignore[misc]


def test_nothing_is_drawn_while_nobody_sees_it(homes: list[Home], monkeypatch: pytest.MonkeyPatch) -> None:
    home, loop = shown_of(homes[0])
    answers, frames, wakes = [False, False, True, True], list[str](), list[bool]()
    monkeypatch.setattr("supervisor.client.terminal.draw", frames.append)
    monkeypatch.setattr(live_view, "DRAW_S", 0.0)  # each step may draw and ask: no clock decides

    async def within(_: object, work: Callable[..., object], *args: object) -> object:
        return work(*args)

    loop.doors = SimpleNamespace(observer=SimpleNamespace(is_shown=lambda _: answers.pop(0)))
    loop.jobs, loop.wake = SimpleNamespace(within=within, stoppers=None), lambda: wakes.append(True)

    async def steps() -> list[int]:
        view, drawn = LiveView(home), []
        view._ended_at = float("inf")  # no look at the agents
        for _ in range(4):
            view.refresh(loop)  # type: ignore[arg-type]  # what it reads of a loop
            drawn.append(len(frames))
            await view._asking  # type: ignore[misc]
        return drawn

    with terminal(monkeypatch):
        drawn = asyncio.run(steps())
    assert drawn == [1, 1, 1, 2], "the first frame stays until somebody comes"
    assert wakes == [True], "one who comes does not wait for the next tick"


def shown_of(home: Home) -> tuple[Home, SimpleNamespace]:
    with closing(Ledger(home.ledger, Wall())) as ledger:
        machine = SimpleNamespace(admission=SimpleNamespace(verdict=ADMIT), capacity=SimpleNamespace(seen=None))
        crew = Crew(ledger.unfinished(0.0))
        return home, SimpleNamespace(alerts=SimpleNamespace(newest=[]), crew=crew, settings=Settings(), machine=machine)


def draw(home: Home, loop: SimpleNamespace) -> None:
    async def once() -> None:
        LiveView(home).refresh(loop)  # type: ignore[arg-type]  # what it reads of a loop

    asyncio.run(once())


def test_following(homes: list[Home], readers: list[sqlite3.Connection]) -> None:
    for home, db in zip(homes, readers, strict=True):
        followed = Followed(db, lambda db=db: queries.of_run(db, RUN))  # type: ignore[misc]
        assert len(followed.changed) == len(followed.all()) == len(followed.unfinished)
        with closing(Ledger(home.ledger, Wall())) as ledger:
            ledger.commit(whole(f"{RUN}/a5"))
        followed.look()
        assert [(view.name, view.state) for view in followed.changed] == [("a0", TaskState.RUNNING), ("a5", TaskState.DONE)]
        followed.look()
        assert [view.name for view in followed.changed] == ["a0"], "what runs is always looked at"
        assert f"{RUN}/a5" not in followed.unfinished


def test_the_whole_as_json_is_not_searched_for_garbage(homes: list[Home], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTCREW_HOME", str(homes[1].root))
    searched = list[str]()

    def note(phase: str, _: object) -> None:
        searched.append(phase)

    gc.callbacks.append(note)
    try:
        printed = CliRunner().invoke(status.command, ["--json"], catch_exceptions=False).stdout
    finally:
        gc.callbacks.remove(note)
    assert len(json.loads(printed)["tasks"]) == SIZES[1] and len(searched) < 20 and gc.isenabled(), len(searched)


def test_a_second_reader_of_the_whole(readers: list[sqlite3.Connection]) -> None:
    """What the counts are for: they name every task that the rows leave out."""
    for db in readers:
        shown = queries.foremost(db, 5)
        assert len(shown) == 1 + 5
        assert queries.unfinished_counts(db).total() == len(queries.unfinished_ids(db)) > len(shown)


def sql_steps(db: sqlite3.Connection, work: Callable[[], object]) -> int:
    """Instructions of SQLite's virtual machine: a row that is stepped over costs some, whether or not it is used."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    db.set_progress_handler(step, 1)
    try:
        work()
    finally:
        db.set_progress_handler(None, 1)
    return count


def about_the_same(few: Effort, many: Effort) -> None:
    assert many.steps <= 1.1 * few.steps + 200
    assert many.peak <= 1.5 * few.peak + 16384
