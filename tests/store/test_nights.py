"""Nights in the ledger: whose terms hold for whom, how far each has come, and what is left of them in a damaged file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.features.night import rows as night_rows
from supervisor.features.night.rows import Nights
from supervisor.kernel.decision import MoveNight
from supervisor.kernel.night import NightOrder, NightState, NightTerms
from supervisor.store import queries
from supervisor.store.ledger import Ledger
from tests.store.kit import Wall, rows, spec, submission

NIGHT, ADDED, BELOW, DAY = "1122-nnnn", "1122-aaaa", "1122-bbbb", "1122-dddd"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    """A night, a task that its agent added, one below that, and a run by day."""
    with closing(Ledger(path, Wall())) as made:
        terms = NightTerms(until=1_700_030_000.0, cost_max=40.0, parallel=3)
        made.submit(submission("conductor", key="n", night=NightOrder(terms, "/p.toml", "ab", "")), NIGHT)
        made.submit(submission(spec("child", parent=f"{NIGHT}/conductor"), key="a"), ADDED)
        made.submit(submission(spec("below", parent=f"{ADDED}/child"), key="b"), BELOW)
        made.submit(submission("day", key="d"), DAY)
        yield made


def test_what_agents_add_in_a_night_is_held_to_its_terms(ledger: Ledger) -> None:
    held = {task.id.partition("/")[2]: task.night for task in ledger.unfinished(0.0)}
    assert held == {"conductor": NIGHT, "child": NIGHT, "below": NIGHT, "day": ""}
    assert night_rows.tasks(ledger.db, NIGHT) == [f"{NIGHT}/conductor", f"{ADDED}/child", f"{BELOW}/below"]
    assert queries.nights_of_runs(ledger.db, [BELOW, DAY]) == {BELOW: NIGHT}


def test_a_night_never_goes_back_and_says_each_step_once(ledger: Ledger, path: Path) -> None:
    closing_, ended = MoveNight(NIGHT, NightState.CLOSING, "late"), MoveNight(NIGHT, NightState.ENDED, "late")
    for command in (closing_, closing_, ended, closing_, replace(ended, why="again")):
        ledger.commit([command])
    [night] = night_rows.every(ledger.db)
    assert (night.state, night.why, ledger.of(Nights).open()) == (NightState.ENDED, "late", [])
    told = [row["event"] for row in rows(path, "SELECT event FROM journal WHERE event LIKE 'night %' ORDER BY seq")]
    assert told == ["night began", "night closing", "night ended"]


def test_the_same_key_twice_is_one_night(ledger: Ledger) -> None:
    again = submission("conductor", key="n", night=NightOrder(NightTerms(cost_max=9.0)))
    assert ledger.submit(again, "1122-zzzz") == (NIGHT, False)
    assert [night.terms.cost_max for night in night_rows.every(ledger.db)] == [40.0]
