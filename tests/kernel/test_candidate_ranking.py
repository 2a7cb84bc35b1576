"""The ranking of candidates: the same facts in any order give the same order, better is never behind, and every place has its reason."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from supervisor.kernel.states import TaskState
from supervisor.results import ranking
from supervisor.results.ranking import CRITERIA, Facts, best, of_result, of_shape, rank, shape

GOOD = Facts(
    "r/a", TaskState.DONE, 1, "c0ffee", gate=True, weakened=(), judged=0,
    files=2, lines=10, cost_usd=1.0, seconds=60.0
)  # fmt: skip
WORSE: dict[str, dict[str, Any]] = {
    "end": {"state": TaskState.FAILED},
    "gate": {"gate": False},
    "change": {"files": 0},
    "what the gate goes by": {"weakened": ("Makefile: changes what the gate runs",)},
    "judge": {"judged": 1},
    "lines changed": {"lines": 11},
    "cost": {"cost_usd": 1.01},
    "time": {"seconds": 60.5},
}
UNKNOWN: dict[str, dict[str, Any]] = {
    "gate": {"gate": None}, "change": {"files": None}, "what the gate goes by": {"weakened": None},
    "judge": {"judged": None}, "lines changed": {"lines": None}, "cost": {"cost_usd": None}, "time": {"seconds": None},
}  # fmt: skip


def drawn(chance: random.Random, number: int) -> Facts:
    """Facts of which many are equal or unknown."""
    return Facts(
        f"r/{number}", chance.choice([TaskState.DONE, TaskState.FAILED]), 1, "c0ffee",
        gate=chance.choice([None, True, False]), weakened=chance.choice([None, (), ("x",)]),
        judged=chance.choice([None, 0, 1]),
        files=chance.choice([None, 0, 1]), lines=chance.choice([None, 0, 3]),
        cost_usd=chance.choice([None, 0.0, 1.5]), seconds=chance.choice([None, 1.0]),
    )  # fmt: skip


def test_every_criterion_is_tried_here() -> None:
    assert list(WORSE) == [one.name for one in CRITERIA]


@pytest.mark.parametrize("name", list(WORSE))
def test_each_criterion_decides_before_all_after_it(name: str) -> None:
    later = list(WORSE)[list(WORSE).index(name) + 1 :]
    worse = replace(GOOD, task="r/b", **WORSE[name])
    poor = replace(GOOD, task="r/c", **{key: value for one in later for key, value in WORSE[one].items()})
    places = rank([worse, poor])
    assert [place.facts.task for place in places] == ["r/c", "r/b"]
    assert places[0].why.startswith(f"ahead of b by {name}: ") and places[1].why.startswith(f"behind c by {name}: ")


@pytest.mark.parametrize("name", list(UNKNOWN))
def test_what_nobody_measured_is_behind_what_was_and_that_is_said(name: str) -> None:
    unknown = replace(GOOD, task="r/b", **UNKNOWN[name])
    known = replace(GOOD, task="r/c", **WORSE[name])
    places = rank([unknown, known])
    assert [place.facts.task for place in places] == ["r/c", "r/b"]
    assert "unknown" in places[1].why or "none ran" in places[1].why


def test_any_order_gives_the_same_ranking_and_neighbours_are_ordered(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(300):
        found = [drawn(chance, number) for number in range(chance.randrange(1, 7))]
        places = rank(found)
        assert sorted(place.facts.task for place in places) == [one.task for one in found]
        keys = [[criterion.key(place.facts) for criterion in CRITERIA] for place in places]
        assert keys == sorted(keys)
        shuffled = rank(chance.sample(found, len(found)))
        assert [[criterion.key(place.facts) for criterion in CRITERIA] for place in shuffled] == keys
        assert all(place.why for place in places)
        winner = best(places)
        assert winner is None or (winner.done and winner.gate is not False)
        if any(one.done and one.gate is True for one in found):
            assert winner is not None and winner.gate is True, "a judge or a small diff is never above a gate"
        assert of_shape(shape(places, ["note"])) == (places, ("note",))


def test_equals_stand_in_the_plans_order_and_that_is_said() -> None:
    places = rank([replace(GOOD, task="r/1"), replace(GOOD, task="r/2")])
    assert [place.why for place in places] == [
        "ahead of 2 by the plan's order: nothing tells them apart",
        "behind 1 by the plan's order: nothing tells them apart",
    ]
    assert rank([GOOD])[0].why == "the only one" and best(()) is None and rank(()) == ()


def test_what_is_shown_alike_ranks_alike() -> None:
    one, other = replace(GOOD, task="r/1", cost_usd=1.004, seconds=3.34), replace(GOOD, task="r/2", cost_usd=1.001, seconds=3.31)
    assert [place.facts.task for place in rank([one, other])] == ["r/1", "r/2"], "the plan's order"
    assert rank([one, other])[0].why == "ahead of 2 by the plan's order: nothing tells them apart"
    assert rank([one, replace(other, seconds=3.2)])[0].why == "ahead of 1 by time: 3.2s, against 3.3s"


def test_facts_are_read_from_a_result_and_from_an_older_one() -> None:
    result = {
        "tip": "c0ffee", "gate": {"passed": False, "why": "exit code 1"}, "diff": {"files": 2, "plus": 3, "minus": 4}, "cost_usd": 0.5,
        "spawn_to_done_ms": 1500, "measured": {"weakens": ["a: b"], "tests": {"passed": 7}, "coverage": {"percent": 87.3}},
    }  # fmt: skip
    found = of_result("r/a", TaskState.FAILED, 2, result)
    assert (found.gate, found.gate_why, found.weakened, found.lines, found.files) == (False, "exit code 1", ("a: b",), 7, 2)
    assert (found.cost_usd, found.seconds, found.tip, found.changed) == (0.5, 1.5, "c0ffee", True)
    old = of_result("r/a", TaskState.DONE, 1, {"end": "done"})
    assert (old.gate, old.weakened, old.lines, old.seconds, old.changed) == (None,) * 5
    assert of_result("r/a", TaskState.WAITING, 0, None).tip == ""


def test_a_newer_shape_is_read_as_far_as_it_is_known() -> None:
    text = json.loads(shape(rank([GOOD])))
    text["places"][0]["later"] = 1
    assert of_shape(json.dumps(text))[0][0].facts == GOOD
    assert ranking.SCHEMA == 1
