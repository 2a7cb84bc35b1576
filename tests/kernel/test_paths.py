"""Tasks whose paths overlap do not run beside each other, and a decision costs no more for those that wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.kernel.crew import Crew, Task
from supervisor.kernel.decide import decide
from supervisor.kernel.decision import Start
from supervisor.kernel.events import CancelAsked, Event, LeasesChanged, PauseAsked, ResumeAsked, Secured, Started, Submitted, TreeGone
from supervisor.kernel.states import End, TaskClass, TaskState
from tests.kernel.effort import effort
from tests.kernel.playbook import task


def told(crew: Crew, *events: Event, now: float = 1.0) -> list[str]:
    """The tasks that start."""
    change, commands = decide(crew, events, now)
    crew.apply(change)
    return [command.task for command in commands if isinstance(command, Start)]


def ended(crew: Crew, name: str, now: float = 1.0) -> list[str]:
    epoch = crew.tasks[name].epoch
    return told(crew, Started(name, epoch), TreeGone(name, epoch, End.DONE, ""), Secured(name, epoch, End.DONE, ""), now=now)


def on(name: str, order: int, *paths: str, **facts: object) -> Task:
    return replace(task(name, order, project="p", paths=paths), **facts)  # type: ignore[arg-type]


def test_one_of_two_that_overlap_starts_and_the_other_after_it() -> None:
    crew = Crew(slots=4)
    assert told(crew, Submitted((on("a", 0, "src"), on("b", 1, "src/api"), on("c", 2, "doc"), on("d", 3)))) == ["a", "c", "d"]
    assert crew.tasks["b"].held_up
    assert told(crew) == []
    assert ended(crew, "c") == []
    assert ended(crew, "a") == ["b"]
    assert ended(crew, "b") == []
    assert not crew.lines.behind


def test_another_project_is_another_place() -> None:
    crew = Crew(slots=4)
    assert told(crew, Submitted((on("a", 0, "src"), on("b", 1, "src", project="q")))) == ["a", "b"]


def test_the_most_important_of_those_that_wait_is_next_and_each_end_starts_one() -> None:
    crew = Crew(slots=4)
    waiting = tuple(on(f"w{number}", number, "src", priority=number) for number in range(1, 20))
    assert told(crew, Submitted((on("a", 0, "src", priority=99), *waiting))) == ["a"]
    started = ["a"]
    for _ in waiting:
        started += ended(crew, started[-1])
    assert started == ["a", *(f"w{number}" for number in range(19, 0, -1))]
    assert ended(crew, started[-1]) == []
    assert not crew.lines.first
    assert not crew.lines.behind


def test_a_lease_that_an_agent_takes_holds_up_tasks_until_it_is_given_back() -> None:
    crew = Crew(slots=4)
    told(crew, Submitted((on("a", 0),)))
    assert told(crew, LeasesChanged("a", 1, ("src/x.py",)), Submitted((on("b", 1, "src"),))) == []
    assert told(crew, LeasesChanged("a", 2, ())) == [], "of a stale epoch"
    assert told(crew, LeasesChanged("a", 1, ())) == ["b"]


def test_a_family_and_a_group_do_not_wait_for_each_other() -> None:
    crew = Crew(slots=9)
    told(crew, Submitted((on("a", 0, "src"),)))
    below = (on("b", 1, "src", parent="a"), on("c", 2, "src/x", parent="b"), on("d", 3, "src", parent="a"))
    assert told(crew, Submitted(below)) == ["b", "c"], "two tasks of one agent are as strangers"


def test_those_that_begin_together_do_not_wait_for_each_other() -> None:
    crew = Crew(slots=9)
    assert told(crew, Submitted((on("a", 0, "src", together="g"), on("b", 1, "src", together="g")))) == ["a", "b"]


@pytest.mark.parametrize("leaves", [CancelAsked("b"), PauseAsked("b")])
def test_when_the_one_that_is_tried_leaves_the_next_is_tried(leaves: Event) -> None:
    crew = Crew(slots=1)
    told(crew, Submitted((on("a", 0, "src"), on("b", 1, "src"), on("c", 2, "src"))))
    crew.apply(decide(crew, (Submitted((on("x", 3, priority=90),)),), 1.0)[0])
    told(crew, Started("a", 1), TreeGone("a", 1, End.DONE, ""))
    assert told(crew, Secured("a", 1, End.DONE, "")) == ["x"], "one slot, and x goes first"
    told(crew, leaves)
    assert ended(crew, "x") == ["c"]


def test_who_is_paused_while_it_is_held_up_is_tried_when_it_is_resumed() -> None:
    crew = Crew(slots=2)
    told(crew, Submitted((on("a", 0, "src"), on("b", 1, "src"))))
    told(crew, PauseAsked("b"))
    assert ended(crew, "a") == []
    assert told(crew, ResumeAsked("b")) == ["b"]


def test_the_one_that_has_waited_longest_is_tried_too() -> None:
    crew = Crew(slots=2)
    told(crew, Submitted((on("a", 0, "src"), on("old", 1, "src", priority=1, task_class=TaskClass.BATCH))))
    started = ["a"]
    for number in range(2, 12):
        now = 4000.0 * number
        told(crew, Submitted((replace(on(f"n{number}", number, "src", priority=90), since=now),)), now=now)
        started += ended(crew, started[-1], now=now)
    assert "old" in started


def waiting(count: int, *, same: bool) -> Crew:
    """One more slot than lives: each of them was tried once, and is not again."""
    crew = Crew(slots=3)
    tasks = [on("a", 0, "src"), on("z", 1, "doc"), *(on(f"w{n:05}", n, "src" if same else f"src/{n}") for n in range(2, count))]
    told(crew, Submitted(tuple(tasks)))
    told(crew, Started("a", 1), TreeGone("a", 1, End.DONE, ""))
    told(crew, Started("z", 1), TreeGone("z", 1, End.DONE, ""))
    return crew


@pytest.mark.parametrize("events", [(), (Secured("z", 1, End.DONE, ""),), (Secured("a", 1, End.DONE, ""),), (CancelAsked("w00009"),)])
def test_a_decision_costs_the_same_however_many_wait_for_the_same_paths(events: tuple[Event, ...]) -> None:
    few, many = (waiting(count, same=True) for count in (100, 5000))

    def whole(crew: Crew) -> None:
        crew.apply(decide(crew, events, 2.0)[0])

    less, more = effort(lambda: whole(few)), effort(lambda: whole(many))
    assert more.steps <= 1.1 * less.steps + 50


def test_an_end_of_other_files_costs_the_same_however_many_different_paths_wait() -> None:
    few, many = (waiting(count, same=False) for count in (100, 3000))
    less, more = (effort(lambda crew=crew: decide(crew, (Secured("z", 1, End.DONE, ""),), 2.0)) for crew in (few, many))  # type: ignore[misc]
    assert more.steps <= 1.1 * less.steps + 50
    assert many.tasks["w00009"].state is TaskState.READY
