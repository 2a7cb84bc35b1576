"""`[keep]`: what is old is archived or removed, nothing else is, and what is archived is read as before."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli import status
from supervisor.features.night import morning_json as night_report
from supervisor.features.retention import archiving as retention_archiving
from supervisor.features.retention import service as retention_service
from supervisor.features.retention.service import Done, Doors, Keeper, Keeping
from supervisor.host import files
from supervisor.host.clock import SystemClock
from supervisor.host.paths import Home
from supervisor.kernel.errors import Refused
from supervisor.kernel.retention import DAY_S, Keep, Limit
from supervisor.store import archive, queries, sqlite
from supervisor.store.ledger import Ledger
from supervisor.store.queries import TaskView
from tests.store import history
from tests.store.kit import Wall, rows, spec, submit, whole
from tests.support import House, wait_until

DAYS = 86400.0
RUNS = ("r-old", "r-older", "r-open", "r-new")
"""100, 200, 300 and 1 days old; of the third a task waits."""


class Then(SystemClock):
    """A wall clock that stands."""

    def __init__(self, now: float) -> None:
        self.now = now

    def wall(self) -> float:
        return self.now


class Place:
    """A state directory with a past."""

    def __init__(self, root: Path) -> None:
        self.home, self.wall = Home(root), Wall()
        self.noted: list[tuple[str, Mapping[str, object]]] = []
        files.private_dir(root)
        began = self.wall.now
        with contextlib.closing(Ledger(self.home.ledger, self.wall)) as ledger:
            for run, days in zip(RUNS, (100, 200, 300, 1), strict=True):
                self.wall.now = began - days * DAYS
                first, *_ = submit(ledger, spec("t"), *([spec("waits")] if run == "r-open" else []), run=run)
                ledger.commit(whole(first))
                ledger.release(first, 1)
        self.wall.now = began
        for run in (*RUNS, "r-unknown"):
            self.records(run)

    def records(self, run: str) -> Path:
        place = self.home.attempt(f"{run}/t", 1)
        place.mkdir(parents=True)
        for name, size in (("stdout.log", 2**20), ("stderr.log", 1), ("result.json", 100)):
            (place / name).write_bytes(b"x" * size)
        (place / "out").mkdir()
        (place / "out" / "trap").symlink_to(self.home.ledger)
        return place

    def tape(self, name: str, days: float) -> Path:
        file = self.home.recordings / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"tape" * 1000)
        os.utime(file, (self.wall.now - days * DAYS,) * 2)
        return file

    def round(self, **terms: Limit) -> list[str]:
        nothing = {"results": Limit(), "logs": Limit(), "recordings": Limit(), "history": Limit()}
        doors = Doors(lambda: 1 << 40, lambda event, data: self.noted.append((event, data)))
        keeper = Keeper(self.home, Keep(**{**nothing, **terms}), Then(self.wall.now), doors)
        done: list[Done] = [one for one in keeper.round() if one is not None]
        return [f"{one['what']} {one['name']}" for one in done]

    def kept(self) -> list[str]:
        return sorted(path.name for path in self.home.runs.iterdir())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "home")


def test_nothing_goes_where_nothing_is_set(place: Place) -> None:
    place.tape("r-old/1.tape", 999)
    assert place.round() == []
    assert place.kept() == sorted((*RUNS, "r-unknown")) and place.noted == []


def test_records_go_by_age_and_nothing_that_is_needed(place: Place) -> None:
    (place.home.attempt("r-older/t", 1) / "left").mkdir()
    assert place.round(results=Limit(50 * DAYS)) == ["results r-old"]
    assert place.kept() == ["r-new", "r-older", "r-open", "r-unknown"]
    assert place.home.ledger.exists(), "a link in out/ is removed, and not what it leads to"
    (event, said), *more = place.noted
    assert (event, said["what"], said["run"], more) == ("kept no longer", "results", "r-old", [])
    with contextlib.closing(sqlite3.connect(place.home.ledger)) as db, db:
        db.execute("UPDATE attempt SET worktree = '/w' WHERE task = 'r-older/t'")
    (place.home.attempt("r-older/t", 1) / "left").rmdir()
    assert place.round(results=Limit(50 * DAYS)) == [], "its worktree is there"


def test_records_go_by_size_the_oldest_first(place: Place) -> None:
    assert place.round(results=Limit(size=9 * 2**19)) == ["results r-older"]
    assert place.round(results=Limit(size=2**20)) == ["results r-old"], "the newest run, an unfinished one and an unknown one stay"


def test_logs_go_and_the_results_stay(place: Place) -> None:
    assert place.round(logs=Limit(50 * DAYS)) == ["logs r-older", "logs r-old"]
    assert sorted(path.name for path in place.home.attempt("r-old/t", 1).iterdir()) == ["out", "result.json"]
    assert (place.home.attempt("r-open/t", 1) / "stdout.log").exists()
    assert place.round(logs=Limit(50 * DAYS)) == []


def test_recordings_go_by_age_and_by_size(place: Place) -> None:
    for name, days in (("r-old/1.tape", 40), ("r-old/2.tape", 3), ("r-new/3.tape", 2), ("r-open/4.tape", 99), ("gone/5.tape.part", 50)):
        place.tape(name, days)
    assert place.round(recordings=Limit(30 * DAYS)) == ["recordings gone/5.tape.part", "recordings r-old/1.tape"]
    assert not (place.home.recordings / "gone").exists()
    assert place.round(recordings=Limit(30 * DAYS, 12_000)) == ["recordings r-old/2.tape"]
    assert sorted(path.name for path in place.home.recordings.rglob("*.tape")) == ["3.tape", "4.tape"]


def test_runs_are_archived_by_age_and_by_size(place: Place) -> None:
    assert place.round(history=Limit(150 * DAYS)) == ["history r-older"]
    assert place.round(history=Limit(size=1)) == ["history r-old"]
    assert place.round(history=Limit(size=1)) == []
    assert {row["id"] for row in rows(place.home.archive, "SELECT id FROM run")} == {"r-old", "r-older"}
    assert place.kept() == sorted((*RUNS, "r-unknown")), "the records of what is archived stay"
    assert place.round(results=Limit(50 * DAYS)) == ["results r-older", "results r-old"], "until they are old themselves"


def test_what_is_shown_is_what_goes_and_the_limit_holds(tmp_path: Path) -> None:
    """Runs of very different sizes, and a ledger with gaps in its numbers."""
    home, bound, terms = Home(tmp_path), 2**21, Limit(size=2**21)
    runs = history.make(home.ledger, 900)
    with contextlib.closing(sqlite3.connect(home.ledger)) as db, db:
        db.execute("UPDATE task SET ord = ord + 5000 WHERE run > ?", (runs[3],))
        for number, run in enumerate(runs):
            db.execute("UPDATE attempt SET result = result || ? WHERE task LIKE ?", (" " * 400 * (number % 4), f"{run}/%"))
    shown, left = look(home, retention_service.HISTORY, terms)
    doors = Doors(lambda: 1 << 40, lambda _, __: None)
    nothing = Limit()
    done = [one for one in Keeper(home, Keep(nothing, nothing, nothing, terms), SystemClock(), doors).round() if one is not None]
    assert [(one["name"], one["bytes"]) for one in done] == shown and 2 < len(shown) < len(runs)
    again, used = look(home, retention_service.HISTORY, terms)
    print(f"{left} bytes, {len(shown)} of {len(runs)} runs went, {used} left; the last {shown[-1]}")
    assert bound - max(size for _, size in shown) <= used <= bound and again == []


def look(home: Home, what: str, limit: Limit) -> tuple[list[tuple[str, int]], int]:
    """What of it would go, and how much there is."""
    with contextlib.closing(retention_service.Past(home, SystemClock().wall())) as seen:
        (found,) = (one for one in seen.look(Keep(**{what: limit})) if one.what == what)
    return [(one.thing.name, one.thing.size) for one in found.going], found.size


@pytest.mark.parametrize("limit", [Limit(size=2**20), Limit(50 * DAYS)], ids=["size", "age"])
def test_what_was_shown_goes_in_parts(place: Place, limit: Limit) -> None:
    """A question that ends amid a run: the next one goes on with it."""
    for number in range(2, 5):
        (place.home.attempt("r-old/t", number)).mkdir()
    terms = Keep(results=limit)
    with contextlib.closing(retention_service.Past(place.home, place.wall.now)) as seen:
        shown = [(one.thing.name, one.thing.size) for one in seen.look(terms)[0].going]
    keeper = Keeper(place.home, terms, Then(place.wall.now), Doors(lambda: 1 << 40, lambda _, data: place.noted.append(("", data))))
    keeping, pieces = Keeping(keeper, print), list[Done | None]()
    whole = keeper.round

    def halting() -> Iterator[Done | None]:
        for piece in whole():
            keeping._over.set()
            pieces.append(piece)
            yield piece

    keeper.round = halting  # type: ignore[method-assign]
    done = list[Done]()

    async def asked() -> None:
        more = begun = False
        while (more or not begun) and len(pieces) < 99:
            keeping._over.clear()
            some, more = await keeping.once(goes_on=begun)
            begun = True
            done.extend(some)
        await keeping.end()

    asyncio.run(asked())
    assert [(one["name"], one["bytes"]) for one in done if one["what"] == retention_service.RESULTS] == shown and all(
        size for _, size in shown
    )
    assert [(data["run"], data["bytes"]) for _, data in place.noted] == shown, "each is said once"


def test_the_order_of_runs_is_the_same_once_some_are_archived(place: Place) -> None:
    def shown() -> list[str]:
        with contextlib.closing(sqlite.connect_readonly(place.home.ledger)) as db:
            return [run.id for run in status._every(place.home, db)]

    before = shown()
    assert place.round(history=Limit(50 * DAYS)) == ["history r-older", "history r-old"]
    assert shown() == before == ["r-new", "r-old", "r-older", "r-open"]


def test_what_was_interrupted_goes_on(place: Place) -> None:
    with contextlib.closing(retention_archiving.Archive(place.home.ledger, place.home.archive, place.wall)) as moving:
        assert moving.mark("r-old", 1 << 40) and moving.move("r-old")
    assert place.round() == ["history r-old"], "also when nothing is to be archived any more"


def test_a_person_sees_it_first_and_then_has_it_done(house: House) -> None:
    house.config.write_text(house.config.read_text() + '[keep]\nresults = { age = "400d" }\nlogs = { age = "30d" }\n')
    house.start_daemon()
    for name in ("first", "second"):
        house.run("add", "-f", "--id", name, "--key", name, f"echo said by {name}; false")
    old, new = (house.task(name) for name in ("first", "second"))
    house.ok("clean", "--yes")
    house.ok("down")
    with contextlib.closing(sqlite3.connect(house.home.ledger)) as db, db:
        db.execute("UPDATE task SET changed = changed - ?", (100 * DAYS,))
        db.execute("INSERT OR REPLACE INTO need VALUES ('shell', 1, 4711, 0, 1, 1, 1, 0, 0, 0)")
    before = json.loads(house.ok("status", "first", "--json"))["tasks"]
    shown = house.ok("clean", "--old")
    assert f"would archive  {old.run}" in shown and f"would remove  {old.run}" in shown and new.run not in shown, shown
    assert "results     2 runs" in shown and "kept 400 days" in shown
    found = {one["what"]: one for one in json.loads(house.ok("clean", "--old", "--json"))["kept"]}
    assert [one["name"] for one in found["history"]["going"]] == [old.run] and found["recordings"]["age_s"] == 30 * DAY_S
    assert house.run("clean", "--old", "first").returncode == 2

    house.start_daemon()
    done: list[Done] = []

    def both() -> bool:
        done.extend(json.loads(house.ok("clean", "--old", "--yes", "--json"))["done"])
        return len(done) > 1

    wait_until(both, "the audit log to prove the run, so that both go")
    assert {(one["what"], one["name"]) for one in done} == {("history", old.run), ("logs", old.run)}
    assert [view.name for view in house.tasks()] == ["second"]

    an_archived_run_answers_as_before(house, old, new.run, before)
    nothing_goes_on_with_an_archived_task(house, old)
    house.ok("down")
    the_audit_log_still_proves_it(house, old.run)


def an_archived_run_answers_as_before(house: House, old: TaskView, newer: str, before: list[dict[str, Any]]) -> None:
    said = json.loads(house.ok("status", "first", "--json"))
    assert said["tasks"] == before and (before[0]["state"], before[0]["memory_expected"]) == ("failed", 4711)
    assert "end failed" in {one["event"] for one in said["journal"]}
    again = ("--id", "first", "--key", "first", "echo said by first; false")
    assert house.ok("add", *again).split() == [old.id], "the same key is the same run"
    followed = house.run("add", "-f", *again)
    assert followed.returncode == 1 and "1 task (known already" in followed.stderr and "1 failed" in followed.stderr, followed.stderr
    followed = house.run("add", "-f", "--json", *again)
    assert (followed.returncode, [one["state"] for one in json.loads(followed.stdout)["tasks"]]) == (1, ["failed"])
    assert f"records   {house.home.attempt(old.id, 1)}" in house.ok("status", old.run)
    assert f"run {old.run}" in house.ok("status", "--all")
    assert [run["id"] for run in json.loads(house.ok("status", "--all", "--json"))["runs"]] == [newer, old.run]
    assert json.loads(house.ok("report", old.run, "--json"))["run"]["id"] == old.run
    assert [task.id for task in night_report.read(house.home, old.run).tasks] == [old.id], "the morning report"
    assert json.loads(house.ok("night", "report", old.run, "--format", "json"))["run"]["id"] == old.run
    assert "its logs were removed" in house.run("logs", "first").stderr
    assert {"start", "end"} < {one["kind"] for one in json.loads(house.ok("audit", "show", "--task", "first", "--json"))["entries"]}


def nothing_goes_on_with_an_archived_task(house: House, old: TaskView) -> None:
    for words in (
        ("retry", "first"),
        ("ask", "first", "why?"),
        ("kill", old.run),
        ("send", "first", "x"),
        ("add", "--after", old.id, "true"),
    ):
        refused = house.run(*words)
        assert (refused.returncode, f"{old.id}: it is archived" in refused.stderr) == (Refused.exit_code, True), (words, refused.stderr)


def the_audit_log_still_proves_it(house: House, run: str) -> None:
    checked = json.loads(house.ok("audit", "verify", "--json"))
    assert (checked["whole"], checked["newer"]) == (True, {"journal": 0}), checked
    number = rows(house.home.archive, "SELECT seq FROM journal WHERE event = 'start'")[0]["seq"]
    with contextlib.closing(sqlite3.connect(house.home.archive)) as db, db:
        db.execute("UPDATE journal SET data = '{}' WHERE event = 'start'")
    assert house.run("audit", "verify").stdout.startswith(f"journal, row {number}: it was changed; line ")
    with contextlib.closing(archive.connect(house.home.archive)) as db:
        assert queries.run(db, run).counts == {"failed": 1}


def test_a_ledger_of_an_older_version_is_not_looked_at(place: Place) -> None:
    with contextlib.closing(sqlite3.connect(place.home.ledger)) as db:
        db.execute("PRAGMA user_version=4")
    with pytest.raises(Refused, match="an older nightcrew wrote it"):
        retention_service.Past(place.home, place.wall.now)
