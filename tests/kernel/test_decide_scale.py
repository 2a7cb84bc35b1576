"""A decision costs what happened, not what waits: the work of each is counted beside 100 and beside 5,000 waiting tasks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.kernel.crew import Crew, Task
from supervisor.kernel.decide import decide
from supervisor.kernel.events import (
    AdmissionChanged,
    CancelAsked,
    Event,
    NightBegan,
    Secured,
    StartCostLearned,
    Started,
    Submitted,
    TrafficChanged,
    TreeGone,
)
from supervisor.kernel.night import Night, NightSpent, NightTerms
from supervisor.kernel.schedule import held_tasks, wakes_at
from supervisor.kernel.states import End, TaskState
from tests.kernel.effort import Effort, effort, steps
from tests.kernel.playbook import task

RUNNING = "r00000"
NEEDED = "needed"


def crew(waiting: int) -> Crew:
    """Two at work, one of them needed by one of the rest: a third is ready, each of another submitter, a third in a backoff, a third waits
    for the first."""
    tasks = [task(RUNNING, submitter="a"), task(NEEDED, 1, submitter="b")]
    for number in range(2, waiting, 3):
        tasks += [
            task(f"r{number:05}", number, submitter=f"s{number}"),
            task(f"b{number:05}", number, state=TaskState.READY, not_before=1e6 + number, together=f"g{number}"),
            task(f"w{number:05}", number, after=[f"r{number:05}", NEEDED] if number == 2 else [f"r{number:05}"]),
        ]
    made = Crew(slots=2)
    for events in ([Submitted(tuple(tasks))], [Started(RUNNING, 1), Started(NEEDED, 1)], [TreeGone(NEEDED, 1, End.DONE, "")]):
        made.apply(decide(made, events, 1.0)[0])
    assert {name for name, held in made.tasks.items() if held.attempt} == {RUNNING, NEEDED}
    return made


def more(count: int = 3) -> tuple[Task, ...]:
    return tuple(task(f"x{number}", 10**6 + number, priority=number) for number in range(count))


def night(waiting: int) -> Crew:
    """One of it lives, as many as may, on one of eight slots; its cap is so near that the dear ones could not start either."""
    made = Crew(slots=8)
    tasks = [task(f"n{number}", number, kind="dear" if number % 2 else "k", night="n", priority=number % 3) for number in range(waiting)]
    terms = NightTerms(until=1e6, cost_max=10.0, parallel=1)
    costs = StartCostLearned({"dear": 20.0, "k": 1.0})
    first: list[Event] = [NightBegan(Night("n", terms)), costs, Submitted(tuple(tasks))]
    made.apply(decide(made, first, 1.0)[0])
    for _ in range(5):
        made.apply(decide(made, [Submitted(more(1))], 1.0)[0])
    assert len([held for held in made.living.values() if held.night]) == 1
    return made


@pytest.mark.parametrize("parallel", [1, 0], ids=["so many live as may", "there is no money for more"])
def test_a_night_that_lets_nothing_start_costs_the_same_however_many_wait(parallel: int) -> None:
    few, many = night(100), night(5000)

    def told(crew: Crew) -> None:
        held = crew.nights["n"]
        again = NightBegan(replace(held, terms=replace(held.terms, parallel=parallel), spent=NightSpent(8.9, reserved=0.5)))
        decide(crew, (again, AdmissionChanged(True)), 2e4, 1.0)

    assert steps(lambda: told(many)) < 1.2 * steps(lambda: told(few))


@pytest.fixture(scope="module")
def crews() -> tuple[Crew, Crew]:
    return crew(100), crew(5000)


@pytest.mark.parametrize(
    "events",
    [
        (),
        (TreeGone(RUNNING, 1, End.DONE, ""),),
        (Secured(NEEDED, 1, End.DONE, ""),),
        (Secured(NEEDED, 1, End.FAILED, "exit code 1"),),
        (CancelAsked("r00005"),),
        (Submitted(more()),),
        (AdmissionChanged(False),),
        (TrafficChanged(1e9), Secured(NEEDED, 1, End.DONE, "")),
    ],
    ids=lambda events: "+".join(type(event).__name__ for event in events) or "nothing",
)
def test_a_decision_costs_what_happened(crews: tuple[Crew, Crew], events: tuple[Event, ...]) -> None:
    few, many = (effort(lambda crew=crew: decide(crew, events, 2.0)) for crew in crews)  # type: ignore[misc]
    about_the_same(few, many)


@pytest.mark.parametrize("events", [(), (Secured(NEEDED, 1, End.DONE, ""),), (CancelAsked("r00005"),)])
def test_so_does_making_it_so(events: tuple[Event, ...]) -> None:
    crews = crew(100), crew(5000)
    changes = [decide(crew, events, 2.0)[0] for crew in crews]
    few, many = (effort(lambda crew=crew, change=change: crew.apply(change)) for crew, change in zip(crews, changes, strict=True))  # type: ignore[misc]
    about_the_same(few, many)


def test_so_does_what_the_loop_asks_each_time(crews: tuple[Crew, Crew]) -> None:
    few, many = (effort(lambda crew=crew: (wakes_at(crew), held_tasks(crew), len(crew.living))) for crew in crews)  # type: ignore[misc]
    about_the_same(few, many)


def about_the_same(few: Effort, many: Effort) -> None:
    assert many.steps <= 1.1 * few.steps + 50
    assert many.peak <= 1.5 * few.peak + 2048
