"""What the supervisor says of sleeps, jumps of the clock and restarts of the machine."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.host import processes
from supervisor.host.clock import SystemClock, moment
from supervisor.host.paths import Home
from supervisor.server.machine import Timekeeping
from supervisor.store.ledger import Ledger


class Hands:
    """Three clocks, moved by hand."""

    def __init__(self) -> None:
        self.now, self.slept, self.offset = 100.0, 0.0, 0.0

    def wall(self) -> float:
        return 1_774_746_000.0 + self.boottime() + self.offset

    def monotonic(self) -> float:
        return self.now

    def boottime(self) -> float:
        return self.now + self.slept


class Place:
    """A ledger, the clocks, and what was said."""

    def __init__(self, root: Path) -> None:
        self.home, self.hands, self.said = Home(root), Hands(), list[str]()
        self.ledger = Ledger(self.home.ledger, self.hands.wall)
        self.time = Timekeeping(self.ledger, self.hands, self.said.append)

    def history(self) -> list[tuple[str, dict[str, Any]]]:
        return [(row["event"], json.loads(row["data"])) for row in self.ledger.db.execute("SELECT event, data FROM journal ORDER BY seq")]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    with contextlib.closing(found.ledger):
        yield found


def test_a_sleep_is_said_once_and_nobody_was_silent_in_it(place: Place) -> None:
    printed = place.hands.wall()
    place.hands.now += 1.0
    place.time.step()
    before = place.hands.wall()
    place.hands.now, place.hands.slept = place.hands.now + 1.0, 27_000.0
    place.time.step()
    place.time.step()
    assert place.said == ["the machine slept for 7h30m"]
    assert place.history() == [("machine slept", {"seconds": 27_000.0, "from": before, "to": place.hands.wall()})]
    assert place.time.slept_since(printed) == 27_000.0 and place.time.slept_since(place.hands.wall()) == 0.0
    assert place.time.slept_since(0.0) == 0.0, "a moment that nobody knows"


def test_a_clock_that_is_set_is_said(place: Place) -> None:
    place.hands.now, place.hands.offset = place.hands.now + 1.0, -3600.0
    place.time.step()
    assert place.said == ["the machine's clock was set back by 1h"]
    assert [(event, round(data["seconds"])) for event, data in place.history()] == [("clock jumped", -3600)]


def test_another_boot_is_said_once_and_the_first_one_is_none(place: Place) -> None:
    place.time.note_boot(place.home)
    assert place.said == [] and place.home.boot.read_text().strip() == processes.boot_id()
    place.home.boot.write_text("11111111-2222-3333-4444-555555555555\n")
    for _ in range(2):
        place.time.note_boot(place.home)
    told = {"from_boot": "11111111-2222-3333-4444-555555555555", "to_boot": processes.boot_id()}
    assert place.history() == [("machine rebooted", told)] and len(place.said) == 1


def test_the_real_clocks_are_read_at_one_moment() -> None:
    one, two = moment(SystemClock()), moment(SystemClock())
    assert one.monotonic <= two.monotonic and one.boottime <= two.boottime and one.boottime >= one.monotonic - 1.0
