"""Where tasks stand: by repository and run, and one line for what belongs together."""

from __future__ import annotations

from typing import Any

from supervisor.kernel.states import TaskState
from supervisor.store.queries import TaskView
from supervisor.views import places
from supervisor.views.crew import Seen, crew
from supervisor.views.places import Train
from supervisor.views.status import Waiting
from tests.views.top.kit import RUN, asks, view


def of(run: str, name: str, root: str = "/home/dev/shop", **more: Any) -> TaskView:
    return view(name, id=f"{run}/{name}", run=run, root=root, **more)


def names(*views: TaskView) -> list[tuple[str, list[str]]]:
    return [(heading, [one.name for one in some]) for heading, some in places.gathered(views, lambda one: one)]


def test_tasks_stand_by_repository_and_run_and_those_alone_in_their_run_first() -> None:
    mixed = [
        of("r1", "a"), of("x1", "one", "/home/dev/billing"), of("r2", "only"), of("r1", "b"), of("r3", "c"), of("r3", "d"),
    ]  # fmt: skip
    assert names(*mixed) == [
        ("shop", ["only"]), ("shop · chores (r1)", ["a", "b"]), ("shop · chores (r3)", ["c", "d"]), ("billing", ["one"]),
    ]  # fmt: skip


def test_what_is_all_of_one_run_or_repository_needs_no_heading() -> None:
    assert names(of("r1", "a"), of("r1", "b")) == [("", ["a", "b"])]
    assert names(of("r1", "a"), of("r2", "b")) == [("", ["a", "b"])]
    assert names() == []


def test_two_repositories_of_one_name_have_their_whole_paths_and_a_title_is_one_line() -> None:
    found = names(of("r1", "a", "/work/shop"), of("r2", "b"), of("r3", "c", run_title="x\x1b[2J"), of("r3", "d", run_title="x\x1b[2J"))
    assert [heading for heading, _ in found] == ["/work/shop", "/home/dev/shop", "/home/dev/shop · x\\x1b[2J (r3)"]


def test_status_lists_who_asks_first_and_then_by_place_with_one_line_for_a_map() -> None:
    worker = [of("m1", f"w{n}", state=TaskState.RUNNING, kind="map-prompt") for n in range(3)]
    gate = of("g1", "gate", kind="landing-gate")
    views = [of("x1", "one", "/home/dev/billing"), *worker, gate, view("asks")]
    found = places.listed(views, asks("asks"), {gate.id: Train("t-1", "into main is running")})
    assert [(heading, [(one.view.id, one.says) for one in some]) for heading, some in found] == [
        ("", [(f"{RUN}/asks", "")]),
        ("billing", [("x1/one", "")]),
        ("shop", [("m1", "3 running"), ("t-1", "into main is running")]),
    ]
    assert {one.tasks for _, some in found for one in some} >= {tuple(one.id for one in worker)}


def test_idle_agents_stand_after_those_that_work() -> None:
    waits = Waiting(states={f"{RUN}/rests": "idle"})
    (group,) = places.listed([view("rests"), view("works"), view("waits", TaskState.WAITING)], waits, {})
    assert [one.view.name for one in group[1]] == ["works", "rests", "waits"]


def test_rows_of_one_place_stand_together_on_the_screen() -> None:
    views = [
        of("r1", "single"),
        of("r2", "a"),
        of("r3", "other"),
        of("r2", "b", state=TaskState.DONE, ended=1.0),
        of("x", "x", "/y/billing"),
    ]
    rows = [(row.view.name, row.place) for row in crew(Seen(views)).rows()]
    assert rows == [("single", "shop"), ("other", "shop"), ("a", "shop · chores (r2)"), ("x", "billing"), ("b", "shop · chores (r2)")]


def test_a_section_of_the_screen_names_its_place_once() -> None:
    views = [of("r1", "a"), of("r1", "b"), of("r2", "c", "/home/dev/billing", state=TaskState.DONE, ended=1.0)]
    sections = [(one.group, one.place) for one in crew(Seen(views)).sections if one.rows]
    assert sections == [("working", "shop · chores (r1)"), ("ended", "billing")]
