"""A random history of agents that coordinate, as real processes at the real socket, with `kill -9` of the supervisor in between; then a
checker: no file has two exclusive holders, nobody waits for ever, every accepted mail is read by its recipient, exactly once, and no
accepted line of a note or a day is lost."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from supervisor import __version__
from supervisor.store import sqlite
from tests.faults import coordinating_agent
from tests.support import House, plan_of, shell_task, wait_until

NAMES = [f"agent-{at}" for at in range(5)]


@pytest.mark.parametrize(("steps", "kills"), [(15, 2), pytest.param(150, 12, marks=pytest.mark.soak)])
def test_a_random_history(house: House, tmp_path: Path, steps: int, kills: int, seed: int) -> None:
    dice = random.Random(seed)
    (place := tmp_path / "place").mkdir()
    house.config.write_text(f"slots = {len(NAMES)}\n" + house.config.read_text())
    daemon = house.start_daemon()
    program = [sys.executable, "-I", "-S", coordinating_agent.__file__, __version__, str(place)]
    tasks = [shell_task(name, [*program, name, str(seed), str(steps), *(one for one in NAMES if one != name)]) for name in NAMES]
    house.ok("run", "--detach", house.plan(plan_of(tasks)))
    for kill in range(kills):
        at = dice.randrange(len(NAMES) * steps // (kills + 1)) + kill * len(NAMES) * steps // (kills + 1)
        wait_until(lambda at=at: len(told(place)) >= at // 2 or all_over(place), "agents to go on")  # type: ignore[misc]  # lambdas have defaults
        daemon.kill()
        daemon.wait()
        daemon = house.start_daemon()
    house.wait_final(300)
    check(house, place)
    check_notes(house, told(place))


def all_over(place: Path) -> bool:
    return all((place / f"{name}.over").exists() for name in NAMES)


def told(place: Path) -> list[dict[str, Any]]:
    """What the agents wrote down; a line that is being written is left out."""
    lines = (line for name in NAMES if (log := place / f"{name}.log").exists() for line in log.read_text().splitlines(keepends=True))
    return [json.loads(line) for line in lines if line.endswith("\n")]


def check(house: House, place: Path) -> None:
    logs = {name: house.run("logs", name).stdout[-2000:] for name in NAMES if house.state(name) != "done"}
    assert not logs, f"an agent failed: its file was held twice, or it was refused what it may do: {logs}"
    found = told(place)
    refusals = {one["error"] for one in found if one.get("error")}
    assert refusals <= {*coordinating_agent.GIVEN_UP}, "a living agent is refused nothing else, whoever was killed"
    assert "TimedOut" not in {one["error"] for one in found if one["what"] == "lease"}, "those who hold one go on, or are refused"
    sent = {one["id"] for one in found if one["what"] == "sent"}
    assert all(one["id"] == one["again"] for one in found if one["what"] == "sent"), "the same key twice is one message"
    claimed = Counter(one["id"] for one in found if one["what"] == "read" and one["claimed"])
    assert max(claimed.values(), default=1) == 1, "nobody is handed a mail for the first time twice"
    with contextlib.closing(sqlite.connect_readonly(house.home.ledger)) as db:
        mails = {row["id"]: row["state"] for row in db.execute("SELECT id, state FROM mail")}
        waits = db.execute("SELECT COUNT(*) FROM wait WHERE ended IS NULL").fetchone()[0]
        leases = db.execute("SELECT COUNT(*) FROM lease WHERE ended IS NULL").fetchone()[0]
    assert sent <= mails.keys(), "what was accepted is there"
    assert {mails[one] for one in sent} <= {"read"}
    assert (waits, leases) == (0, 0)
    assert sent and claimed and any(one["what"] == "lease" and not one["error"] for one in found), "something happened at all"


def check_notes(house: House, found: list[dict[str, Any]]) -> None:
    (memory,) = (house.home.root / "projects").glob("*/memory")
    note, days = (memory / coordinating_agent.NOTE).read_text(), "".join(day.read_text() for day in memory.glob("episodic/*"))
    puts = {one["line"]: one["conflict"] for one in found if one["what"] == "put"}
    lost = [line for line, conflict in puts.items() if not conflict and line not in note.splitlines()]
    assert not lost, "who replaces a note by its version takes nobody's line away"
    with contextlib.closing(sqlite3.connect(memory.parent / "memory.db")) as db:
        every = {row[0] for row in db.execute("SELECT path FROM change WHERE action = 'conflict'")}
    assert {conflict for conflict in puts.values() if conflict} <= every
    texts = [json.loads(line)["text"] for line in days.splitlines()]
    added = [one["line"] for one in found if one["what"] == "append"]
    assert puts and added and not set(added) - set(texts), "an accepted line of a day stays"
