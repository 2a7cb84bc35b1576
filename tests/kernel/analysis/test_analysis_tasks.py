"""Who looks at what, and after whom."""

from __future__ import annotations

import graphlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.results.analysis import PIECE_MAX_FILES, PIECES_MAX, TOGETHER, Wanted, crew, shards
from supervisor.results.findings import Perspective

COMMANDS = {"analyst": ("python", "-m", "analyst"), "lead": ("python", "-m", "lead")}
ALL = tuple(Perspective)
SECURITY = Perspective.SECURITY


def test_a_small_repository_has_one_analyst_a_perspective() -> None:
    assert shards(ALL, 0, 0, 2, 8) == shards(ALL, 20, 50_000, 64, 128) == dict.fromkeys(ALL, 1)


def test_what_takes_longest_is_split_first_and_more_on_more_cores() -> None:
    two, eight = (shards(ALL, 500, 5_000_000, cores, 64) for cores in (2, 8))
    assert two[SECURITY] > 1 and two[Perspective.TESTS] == 1
    assert eight[SECURITY] > two[SECURITY]


def test_many_files_are_split_even_on_one_core() -> None:
    assert shards([Perspective.TESTS], 2 * PIECE_MAX_FILES + 1, 1_000_000, 1, 64) == {Perspective.TESTS: 3}


@given(
    st.lists(st.sampled_from(Perspective), min_size=1, unique=True), st.integers(0, 10**6), st.integers(0, 10**10), st.integers(1, 256),
    st.integers(1, 64),
)  # fmt: skip
def test_pieces_have_bounds(names: list[Perspective], files: int, size: int, cores: int, slots: int) -> None:
    pieces = shards(names, files, size, cores, slots)
    assert list(pieces) == names
    assert all(1 <= number <= max(1, min(files, PIECES_MAX)) for number in pieces.values())
    assert sum(pieces.values()) <= max(slots, len(names)), "or they could not begin together"


def test_the_crew_and_its_lead() -> None:
    tasks = crew(Wanted(timeout_s=100.0, exclude=("a/*", "b")), dict.fromkeys(ALL, 1) | {SECURITY: 2}, 2, COMMANDS)
    assert [task.name for task in tasks] == ["security-1", "security-2", "complexity", "docstrings", "tests", "structure", "lead"]
    first, lead = tasks[0], tasks[-1]
    assert dict(first.params) == {
        "ANALYST": "security",
        "ANALYST_SHARD": "1/2",
        "ANALYST_TIMEOUT": "90",
        "ANALYST_PHASE": "crew",
        "ANALYST_EXCLUDE": "a/*\nb",
    }
    assert (first.kind, first.argv, first.timeout_s, first.after, first.together) == ("analyst", COMMANDS["analyst"], 100.0, (), "")
    assert (lead.kind, lead.after, lead.after_on) == ("lead", tuple(task.name for task in tasks[:-1]), "finished")


def test_together_is_for_the_crew_alone() -> None:
    tasks = crew(Wanted(ALL[:2], baseline=True, together=True), dict.fromkeys(ALL[:2], 1), 2, COMMANDS)
    assert [(task.name, task.together) for task in tasks] == [
        ("alone-security", ""),
        ("alone-complexity", ""),
        ("security", "crew"),
        ("complexity", "crew"),
        ("lead", ""),
    ]
    assert [task.name for task in tasks if TOGETHER in task.params] == ["security", "complexity"], "the figures look whether it held"


@pytest.mark.parametrize("perspectives", [ALL, ALL[:1]])
def test_the_baseline_runs_one_by_one_and_before_all_others(perspectives: tuple[Perspective, ...]) -> None:
    tasks = {task.name: task for task in crew(Wanted(perspectives, baseline=True), dict.fromkeys(perspectives, 2), 2, COMMANDS)}
    order = graphlib.TopologicalSorter({name: task.after for name, task in tasks.items()})
    order.prepare()
    stages = []
    while order.is_active():
        stages.append(set(ready := order.get_ready()))
        order.done(*ready)
    alone = [stage for stage in stages if all(name.startswith("alone-") for name in stage)]
    assert [len(stage) for stage in alone] == [1] * 2 * len(perspectives), "one a time"
    assert stages[len(alone)] == {name for name in tasks if not name.startswith("alone-") and name != "lead"}
    assert stages[-1] == {"lead"}
    assert all(task.after_on == "finished" for task in tasks.values() if task.after)
