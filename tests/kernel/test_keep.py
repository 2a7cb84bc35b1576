"""What of the past goes: the oldest first, by age and by size, and never what is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.retention import DAY_S, Keep, Limit, RunFacts, Thing, going, held, held_rows

NOW = 1_000 * DAY_S


def thing(name: str, days: float, size: int = 0, held: str = "") -> Thing:
    return Thing(name, NOW - days * DAY_S, size, held)


def names(things: list[Thing], limit: Limit, total: int | None = None) -> list[str]:
    return [one.thing.name for one in going(things, limit, NOW, total)]


def test_nothing_goes_by_itself_where_nothing_is_set() -> None:
    assert going([thing("a", 999, 2**50)], Limit(), NOW) == []
    assert Keep().results == Keep().logs == Limit()


def test_by_age() -> None:
    things = [thing("young", 29.9), thing("older", 40), thing("old", 30), thing("needed", 90, held="it runs"), thing("future", -5)]
    found = going(things, Limit(30 * DAY_S), NOW)
    assert [(one.thing.name, one.why) for one in found] == [("older", "40 days old"), ("old", "30 days old")]


def test_by_size_the_oldest_first() -> None:
    things = [thing("new", 1, 40), thing("middle", 2, 40), thing("old", 3, 40), thing("needed", 9, 100, "it runs"), thing("empty", 9)]
    assert names(things, Limit(size=1000)) == []
    assert names(things, Limit(size=220)) == []
    assert names(things, Limit(size=180)) == ["old"]
    assert names(things, Limit(size=1)) == ["old", "middle", "new"], "what is needed stays, however much it is"
    assert names(things[:3], Limit(size=500), total=560) == ["old", "middle"], "beside more that is not listed"


def test_by_both() -> None:
    things = [thing("new", 1, 40), thing("middle", 20, 40), thing("old", 40, 40)]
    assert names(things, Limit(30 * DAY_S, 80)) == ["old"], "what goes for its age makes room"
    assert names(things, Limit(30 * DAY_S, 79)) == ["old", "middle"]


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(0, 100), st.booleans()), max_size=30),
    st.floats(0, 100),
    st.integers(0, 2000),
)
def test_never_more_than_is_needed_and_never_what_is_held(shapes: list[tuple[float, int, bool]], days: float, size: int) -> None:
    things = [thing(f"{number:02d}", age, taken, "needed" if is_held else "") for number, (age, taken, is_held) in enumerate(shapes)]
    limit = Limit(days * DAY_S, size)
    gone = {one.thing.name for one in going(things, limit, NOW)}
    kept = [one for one in things if one.name not in gone]
    assert all(not one.held for one in things if one.name in gone)
    assert all(one.held or NOW - one.since < limit.age_s for one in kept if limit.age_s)
    if size and sum(one.size for one in kept) > size:
        assert all(one.held or not one.size for one in kept)
    for_size = [one for one in things if one.name in gone and not (limit.age_s and NOW - one.since >= limit.age_s)]
    if for_size:
        newest = max(for_size, key=lambda one: (one.since, one.name))
        assert sum(one.size for one in kept) + newest.size > size, "the last one that went was one too many"
        assert all(one.held or not one.size or (one.since, one.name) > (newest.since, newest.name) for one in kept)


FREE = RunFacts("r", 0.0, tasks=2, unfinished=0, unreleased=0, worktrees=0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"unfinished": 1}, "1 of its tasks have not ended"),
        ({"unreleased": 1}, "an attempt of it is not over"),
        ({"worktrees": 2}, "2 of its worktrees are there: nightcrew clean"),
        ({"awaited": "x goes on with it"}, "x goes on with it"),
        ({"newest": True}, "it is the newest run"),
    ],
)
def test_what_is_needed(change: dict[str, object], why: str) -> None:
    facts = replace(FREE, **change)  # type: ignore[arg-type]
    assert held(facts) == held_rows(facts) == why
    assert held_rows(replace(facts, proven=False)) == (why or "the audit log does not prove its history yet")
