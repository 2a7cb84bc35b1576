"""Trains of results of which the books know everything, while supervisors, tmux servers and runners are killed and a person commits.

Written from docs/landing.md alone, and judged by git, by the gate that the test runs itself in a fresh clone, and by `books`: what lands is
exactly what trying one after the other would land, every reason is true, the branch moves once and forward, and nothing is left or lost.
"""

from __future__ import annotations

import json
import random

import pytest

from tests.landing.independent.books import drawn
from tests.landing.independent.crew import Crew
from tests.support import House

METHODS = ("merge", "squash", "rebase")
ACTS = ("supervisor", "supervisor", "tmux", "runner", "runner", "person", "person")


def _storm(house: House, seed: int, count: int, acts: int) -> None:
    rng = random.Random(seed)
    books = drawn(rng, count)
    crew = Crew(house, books, rng)
    _pairs_as_planted(crew)
    branches = rng.sample(("main", "quiet"), rng.randrange(1, 3))
    asked = {into: sorted(books.results) if rng.random() < 0.5 else rng.sample(sorted(books.results), count - 1) for into in branches}
    for into, names in asked.items():
        words = ("--method", rng.choice(METHODS), "--width", str(rng.randrange(1, 4)), "--gate", books.gate, "-d")
        house.ok("land", *names, "--into", into, *words)
    for number in range(acts):
        crew.after_gates(branches[0], rng.randrange(number * count // acts + 2))
        act = rng.choice(ACTS)
        print(act)
        if act == "person":
            crew.commit()
        else:
            crew.kill(act)
    for into, names in asked.items():
        crew.judge(into, crew.finished(into), names)
    crew.leave()


def _pairs_as_planted(crew: Crew) -> None:
    found = json.loads(crew.house.ok("conflicts", "--json"))["conflicts"]
    pairs = {frozenset(one[key].partition("/")[2] for key in ("task", "with")) for one in found}
    assert pairs == crew.books.conflicts


def test_what_lands_is_what_the_books_say_whatever_is_killed(house: House, seed: int) -> None:
    _storm(house, seed, 5, 2)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(6))
def test_in_a_longer_storm(house: House, seed: int, number: int) -> None:
    _storm(house, seed + number, 9, 6)
