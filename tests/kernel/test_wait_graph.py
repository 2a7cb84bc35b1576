"""Which waits could never end: by the graph, by the standard library, and by trying every way in which they could."""

from __future__ import annotations

import itertools
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.leases import PERSON, STATIC, Cycle, Wait, WaitGraph, WaitKind, stuck, victim, words

NAMES = "abcdef"


def wait(task: str, *holders: str, number: int = 1, any_of: bool = False, kind: WaitKind = WaitKind.LEASE, since: float = 0.0) -> Wait:
    return Wait(number, task, 1, kind, f"of {task}", holders, since, since + 60, any_of)


def waits(*, any_of: bool) -> st.SearchStrategy[list[Wait]]:
    """Waits of a few tasks and of persons, numbered from 1."""
    holders = st.lists(st.sampled_from([*NAMES, PERSON]), max_size=3, unique=True)
    one = st.tuples(st.sampled_from(NAMES), holders, st.booleans() if any_of else st.just(False))
    return st.lists(one, max_size=12).map(
        lambda found: [wait(task, *who, number=at, any_of=some) for at, (task, who, some) in enumerate(found, 1)]
    )


def is_whole(found: Cycle) -> bool:
    """Whether each waits for the next, and the last for the first."""
    return all(after.task in before.holders for before, after in zip(found, [*found[1:], found[0]], strict=True))


@given(waits(any_of=False))
def test_a_wait_is_refused_exactly_when_the_standard_library_finds_a_cycle(asked: list[Wait]) -> None:
    """Those that are let in never have one."""
    graph, held = WaitGraph(), list[Wait]()
    for one in asked:
        found = graph.cycle(one)
        assert found == WaitGraph(held).cycle(one), "kept up to date or built anew"
        assert bool(found) == _has_cycle([*held, one])
        if found:
            assert found[0] is one and is_whole(found) and len({step.task for step in found}) == len(found)
        else:
            graph.put(one)
            held.append(one)
            if one.number % 5 == 0:  # some end
                graph.drop(held.pop(0).number)
    assert graph.deadlocks() == [] and set(graph.waits.values()) == set(held)


def _has_cycle(found: list[Wait]) -> bool:
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for one in found:
        sorter.add(one.task, *one.holders)
    try:
        sorter.prepare()
    except CycleError:
        return True
    return False


@given(waits(any_of=True))
def test_a_wait_for_one_of_several_is_refused_exactly_when_nothing_can_happen(asked: list[Wait]) -> None:
    graph, held = WaitGraph(), list[Wait]()
    for one in asked:
        found = graph.cycle(one)
        assert bool(found) == (one.task in _never([*held, one]))
        if found:
            assert found[0] is one and is_whole(found)
        else:
            graph.put(one)
            held.append(one)
    assert graph.deadlocks() == []


@given(waits(any_of=True))
def test_who_is_stuck_is_who_never_goes_on_in_any_order(found: list[Wait]) -> None:
    assert stuck(found) == _never(found)


def _never(found: list[Wait]) -> set[str]:
    """The largest set of tasks each of which has a wait that none outside it can end."""
    tasks = {one.task for one in found if one.holders}
    for size in range(len(tasks), 0, -1):
        for group in map(set, itertools.combinations(sorted(tasks), size)):
            if all(any(one.task == task and _is_held_by(one, group) for one in found) for task in group):
                return group
    return set()


def _is_held_by(one: Wait, group: set[str]) -> bool:
    held = [holder in group for holder in one.holders]
    return bool(held) and (all(held) if one.any_of else any(held))


@given(waits(any_of=True))
def test_cycles_that_arose_without_a_new_wait_are_all_found(found: list[Wait]) -> None:
    """Giving up one wait of each cycle again and again leaves none, and takes no more than there are waits."""
    graph = WaitGraph(found)
    for _ in range(len(found) + 1):
        cycles = graph.deadlocks()
        assert bool(cycles) == bool(_never(list(graph.waits.values())))
        for one in cycles:
            assert is_whole(one)
            chosen = victim(one, lambda task: NAMES.index(task))
            assert chosen is not None
            graph.drop(chosen.number)
    assert graph.deadlocks() == []


def test_the_cycle_is_the_shortest_and_whole() -> None:
    graph = WaitGraph([wait("b", "c", "d", number=1), wait("c", "d", number=2), wait("d", "a", number=3)])
    found = graph.cycle(wait("a", "b", number=4))
    assert [one.task for one in found] == ["a", "b", "d"]
    assert words(found) == "a waits for b (lease of a), b waits for c, d (lease of b), d waits for a (lease of d)"


def test_a_cycle_is_found_from_either_end_however_many_others_wait_or_hold() -> None:
    """Whichever side ends first, it has met the other."""
    others = [wait(f"o{at}", "a", number=10 + at) for at in range(9)]
    assert len(WaitGraph([*others, wait("b", "a", number=1)]).cycle(wait("a", "b", number=99))) == 2
    holders = [wait("b", *(f"h{at}" for at in range(9)), "a", number=1)]
    assert len(WaitGraph(holders).cycle(wait("a", "b", number=99))) == 2


def test_a_long_cycle_is_said_with_its_ends() -> None:
    found = [wait(str(at), str((at + 1) % 20)) for at in range(20)]
    said = words(found).split(", ")
    assert len(said) == 9 and said[0].startswith("0 waits") and said[-1].startswith("19 waits") and said[-2] == "… 12 more …"


class Plan:
    """Tasks that come after others, as the test says."""

    def __init__(self, **after: str) -> None:
        self.after = after

    def of(self, task: str) -> list[Wait]:
        return [wait(task, self.after[task], number=STATIC)] if task in self.after else []

    def ahead(self, task: str) -> list[str]:
        return [self.after[task]] if task in self.after else []

    def behind(self, holder: str) -> list[str]:
        return [task for task, need in self.after.items() if need == holder]


def test_what_follows_from_the_plan_is_asked_anew() -> None:
    graph = WaitGraph(plan=(plan := Plan(child="other")))
    graph.put(wait("lead", "child", number=1))
    asked = wait("other", "lead", number=2)
    assert [one.task for one in graph.cycle(asked)] == ["other", "lead", "child"]
    plan.after.clear()
    assert graph.cycle(asked) == ()
    graph.put(asked)
    plan.after["child"] = "other"
    assert len(graph.deadlocks()) == 1, "it arose since the plan changed"


def test_a_whole_plan_behind_an_agent_costs_its_wait_nothing() -> None:
    """Nor does one before it: the search ends with the smaller side."""
    asked: list[str] = []

    class Long(Plan):
        def ahead(self, task: str) -> list[str]:
            asked.append(task)
            return super().ahead(task)

        def behind(self, holder: str) -> list[str]:
            asked.append(holder)
            return super().behind(holder)

    graph = WaitGraph(plan=Long(**{f"t{at}": f"t{at - 1}" for at in range(1, 1000)}))
    assert graph.cycle(wait("t0", "holder")) == () and graph.cycle(wait("lead", "t999")) == ()
    assert len(asked) < 10


def test_a_victim_is_the_least_important_then_the_youngest_and_never_a_person() -> None:
    importance = {"a": 5, "b": 9, "c": 9}
    found = [wait("a", "b", number=1, since=9), wait("b", "c", number=2, since=1), wait("c", "a", number=3, since=2)]
    assert victim(found, importance.__getitem__) == found[2]
    assert victim(found[:2], importance.__getitem__) == found[1], "importance counts before age"
    human = replace(found[2], kind=WaitKind.HUMAN)
    person, plan = replace(found[2], task=PERSON), replace(found[2], number=STATIC)
    assert victim([human, person, plan], lambda _: 0) is None
