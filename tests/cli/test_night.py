"""`nightcrew night`: a run with terms, from the words that a person types to the row that the supervisor keeps to."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path

from tests.store.kit import rows
from tests.support import House, plan_of, shell_task, wait_until


def nights(house: House) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(house.ok("night", "list", "--json"))["nights"]
    return found


def test_a_night_is_a_run_with_its_terms(house: House) -> None:
    house.start_daemon()
    plan = house.plan(plan_of([shell_task("work", "true")]))
    house.ok("night", "run", plan, "--until", "8h", "--cost-max", "40", "--grace", "5m", "--parallel", "3", "--on-cap", "stop")
    [night] = nights(house)
    assert datetime.fromisoformat(str(night["until"])).timestamp() - time.time() > 7 * 3600
    kept = {name: night[name] for name in ("cost_max", "grace_s", "parallel", "on_cap", "timer")}
    assert kept == {"cost_max": 40.0, "grace_s": 300.0, "parallel": 3, "on_cap": "stop", "timer": None}
    assert night["tasks"] == {"done": 1}


def test_a_term_that_is_none_is_refused_before_anything_runs(house: House) -> None:
    plan = house.plan(plan_of([shell_task("work", "true")]))
    for option, text in (("--until", "25:99"), ("--cost-max", "-1"), ("--cost-max", "much"), ("--parallel", "0"), ("--on-cap", "wait")):
        done = house.run("night", "run", plan, option, text)
        assert done.returncode == 2 and option in done.stderr and "Value error" not in done.stderr, done.stderr
    assert not house.home.ledger.exists()


def move_until(house: House, until: float) -> None:
    """As if the night had been told so: the clock of a test cannot be moved. No supervisor runs."""
    with closing(sqlite3.connect(house.home.ledger)) as db, db:
        db.execute("UPDATE night SET until = ?", (until,))


def test_a_supervisor_that_is_killed_in_the_night_goes_on_with_it(house: House) -> None:
    """The deadline passes while none runs: the next one lets what runs have the grace. Killed while that drains, the one after stops it."""
    daemon = house.start_daemon()
    slow, waits = shell_task("slow", "sleep 600"), shell_task("waits", "true", after=["slow"])
    house.ok("night", "run", "-d", house.plan(plan_of([slow, waits])), "--until", "8h", "--grace", "1h")
    wait_until(lambda: house.state("slow") == "running", "it runs")
    [said] = [line for line in house.ok("status").splitlines() if line.startswith("night ")]
    assert "  until " in said and said.endswith("  0 of 2 done")
    for passed_s in (60, 4000):
        daemon.kill()
        daemon.wait()
        assert house.state("slow") == "running", "its grace is not over"
        move_until(house, time.time() - passed_s)
        daemon = house.start_daemon()
        wait_until(lambda: house.state("waits") == "expired", "the night closes")
    house.wait_final()
    [night] = nights(house)
    assert (night["state"], night["tasks"]) == ("ended", {"cancelled": 1, "expired": 1})
    assert not any(line.startswith("night ") for line in house.ok("status").splitlines())
    assert str(night["why"]).startswith("the night ended at ")
    assert (house.task("slow").reason, house.task("waits").reason) == ("cancelled: night ended", night["why"])
    told = [row["event"] for row in rows(Path(house.home.ledger), "SELECT event FROM journal WHERE event LIKE 'night %' ORDER BY seq")]
    assert told == ["night began", "night closing", "night over", "night ended"]
