"""Which pairs are compared, and what of a conflict is news."""

from __future__ import annotations

from supervisor.results import conflicts
from supervisor.results.conflicts import CLEAN, Conflict, Matrix, Side, Verdict

A, B, C = Side("r/a", "1" * 40, True), Side("r/b", "2" * 40, False), Side("r/c", "3" * 40, True)
BASE = "0" * 40


def test_only_what_moved_is_wanted_again() -> None:
    every = conflicts.wanted((A, B, C), BASE, ())
    assert len(every) == 6 == len(set(every))
    known = dict.fromkeys(every, CLEAN)
    assert conflicts.wanted((A, B, C), BASE, known) == []
    moved = Side("r/b", "4" * 40, False)
    left = conflicts.still(known, (A, moved, C), BASE)
    assert conflicts.wanted((A, moved, C), BASE, left) == [(BASE, "4" * 40), ("1" * 40, "4" * 40), ("3" * 40, "4" * 40)]
    assert len(conflicts.wanted((A, B, C), "5" * 40, conflicts.still(known, (A, B, C), "5" * 40))) == 3


def test_when_the_persons_branch_moves_conflicts_are_looked_for_again() -> None:
    known = {
        conflicts.pair(A.tip, B.tip): Verdict(("x",)),
        conflicts.pair(B.tip, C.tip): CLEAN,
        conflicts.pair(A.tip, BASE): CLEAN,
    }
    assert conflicts.still(known, (A, B, C), BASE) == known
    assert conflicts.still(known, (A, B, C), "5" * 40) == {conflicts.pair(B.tip, C.tip): CLEAN}


def test_the_same_commit_twice_is_asked_about_once_and_counts_for_both() -> None:
    twin = Side("r/twin", A.tip, False)
    assert len(conflicts.wanted((A, twin, B), BASE, ())) == 3
    matrix = Matrix(BASE, "main", (A, twin, B), {conflicts.pair(A.tip, B.tip): Verdict(("x",))})
    assert [one.tasks for one in matrix.conflicts()] == [("r/a", "r/b"), ("r/twin", "r/b")]


def test_kept_results_are_bounded_and_the_living_come_first() -> None:
    ended = [Side(f"r/{number}", f"{number:040}", False) for number in range(conflicts.SIDES_MAX)]
    sides, left_out = conflicts.chosen([*ended, A])
    assert (sides[0], len(sides), left_out) == (A, conflicts.SIDES_MAX, 1)
    assert ended[-1] not in sides


def test_news_is_told_once_for_each_file_and_only_of_who_is_concerned() -> None:
    found = [Conflict("r/a", "r/b", Verdict(("x", "y"))), Conflict("r/c", "", Verdict(("x",))), Conflict("r/a", "r/c", Verdict(why="slow"))]
    fresh = conflicts.news(found, {"r/a"}, frozenset({("r/a", "r/b", "x")}))
    assert fresh == [Conflict("r/a", "r/b", Verdict(("y",)))]
    told = conflicts.after(frozenset(), conflicts.news(found, {"r/a", "r/c"}, frozenset()), {"r/a", "r/b", "r/c"})
    assert told == {("r/a", "r/b", "x"), ("r/a", "r/b", "y"), ("r/c", "", "x")}
    assert conflicts.news(found, {"r/a", "r/c"}, told) == []
    assert conflicts.after(told, (), {"r/a", "r/c"}) == {("r/c", "", "x")}
