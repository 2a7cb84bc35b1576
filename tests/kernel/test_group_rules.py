"""Groups of candidates: when one can be chosen, what begins then, and that a choice is made once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.kernel import decision
from supervisor.kernel.crew import Crew, Task
from supervisor.kernel.decide import decide
from supervisor.kernel.decision import Choose, Compare, Start
from supervisor.kernel.events import CancelAsked, Chosen, NightBegan, PauseAsked, RetryAsked, Secured, Started, Submitted, TreeGone
from supervisor.kernel.night import Night, NightTerms
from supervisor.kernel.states import Choice, Decider, End, TaskState
from tests.kernel.effort import steps
from tests.kernel.playbook import After, Playbook, task


def family(decide: str = "person", count: int = 2, **facts: Any) -> tuple[Task, ...]:
    """Candidates, two judges, the group, and what comes after it."""
    names = [f"g-{number}" for number in range(1, count + 1)]
    judges = ["j-1", "j-2"]
    known = frozenset(names)
    return (
        *(task(name, number, **facts) for number, name in enumerate(names)),
        *(task(name, 20, after=names, candidates=known, any_end=True, **facts) for name in judges),
        task("g", 30, after=[*names, *judges], candidates=known, decide=decide, any_end=True, **facts),
        task("next", 40, after=["g"], **facts),
    )


def book(decide: str = "person", slots: int = 8, **facts: Any) -> Playbook:
    made = Playbook(slots)
    made.happens(Submitted(family(decide, **facts)))
    return made


def ends(made: Playbook, name: str, end: End = End.DONE) -> None:
    """Its attempt ends."""
    epoch = made.books.tasks[name].epoch
    for event in (Started(name, epoch), TreeGone(name, epoch, end, ""), Secured(name, epoch, end, "")):
        made.happens(event)


def chosen(winner: str, epoch: int = 1, by: Decider = Decider.PERSON) -> Choice:
    return Choice("g", winner, epoch, "c0ffee", by, "why", "{}")


def states(made: Playbook) -> dict[str, str]:
    return {name: str(held.state) for name, held in made.books.tasks.items()}


def commanded(made: Playbook, kind: type) -> list[Any]:
    return [command for command in made.commanded if isinstance(command, kind)]


def test_what_comes_after_a_group_waits_for_the_choice_and_begins_once() -> None:
    made = book()
    for name in ("g-1", "g-2", "j-1", "j-2"):
        assert states(made)["next"] == "waiting"
        ends(made, name)
    made >> After(1e6)
    assert states(made)["g"] == "waiting" and not commanded(made, Compare), "a person decides, however long that takes"
    made.happens(Chosen(chosen("g-2")))
    assert commanded(made, Choose) == [Choose(chosen("g-2"))] and states(made)["g"] == "done"
    assert [start.task for start in commanded(made, Start)].count("next") == 1
    made.happens(Chosen(chosen("g-1")))
    assert len(commanded(made, Choose)) == 1, "a choice is made once"


def test_a_person_is_asked_from_the_last_end_to_the_choice() -> None:
    made, asked = book(), list[list[str]]()
    for name in ("g-1", "g-2", "j-1", "j-2"):
        asked.append(decision.to_choose(made.crew))
        ends(made, name)
    asked.append(decision.to_choose(made.crew))
    made.happens(Chosen(chosen("g-2")))
    assert [*asked, decision.to_choose(made.crew)] == [[], [], [], [], ["g"], []]
    by_gate = book("gate")
    for name in ("g-1", "g-2", "j-1", "j-2"):
        ends(by_gate, name)
    assert decision.to_choose(by_gate.crew) == [], "the ranking chooses"


def test_a_group_never_starts_and_nobody_holds_it_back() -> None:
    made = book()
    made.happens(PauseAsked("g"))
    assert states(made)["g"] == "waiting"
    assert "g" not in [start.task for start in commanded(made, Start)]


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        (chosen("g-1"), "it has not ended"),
        (chosen("next"), "it is no candidate"),
        (chosen("j-1"), "it judges"),
        (chosen("g-2", epoch=9), "another attempt of it was looked at"),
        (replace(chosen("g-2"), group="next"), "it is no group"),
    ],
)
def test_what_is_no_result_of_a_group_is_not_chosen(choice: Choice, why: str) -> None:
    made = book()
    ends(made, "g-2")
    made.happens(Chosen(choice))
    assert not commanded(made, Choose), why


def test_one_is_chosen_while_others_go_on_and_those_are_ended_when_that_was_asked() -> None:
    left, ended = book(), book()
    for made in (left, ended):
        ends(made, "g-2")
        made.happens(Chosen(chosen("g-2"), end_others=made is ended))
        assert states(made)["g"] == "done" and [start.task for start in commanded(made, Start)].count("next") == 1
    ends(left, "g-1")
    ends(ended, "g-1", End.CANCELLED)
    assert (states(left)["g-1"], states(ended)["g-1"]) == ("done", "cancelled")
    assert states(ended)["j-1"] == "cancelled", "nobody waits for a judge any more"
    assert all(len(commanded(made, Choose)) == 1 for made in (left, ended)), "a late candidate changes nothing"


def test_a_group_without_a_result_has_failed_and_what_comes_after_it_is_skipped() -> None:
    made = book()
    ends(made, "g-1", End.FAILED)
    ends(made, "g-2", End.FAILED)
    assert states(made) == {"g-1": "failed", "g-2": "failed", "j-1": "skipped", "j-2": "skipped", "g": "failed", "next": "skipped"}
    known = Submitted(tuple(made.books.tasks.values()))  # the crew has forgotten what ended
    made.happens(known, *(RetryAsked(name) for name in ("g-2", "j-1", "j-2", "g", "next")))
    ends(made, "g-2")
    made.happens(Chosen(chosen("g-2", epoch=2)))
    assert states(made)["g"] == "done", "it can be tried again"


def test_one_result_needs_no_judge() -> None:
    made = book()
    ends(made, "g-1", End.FAILED)
    ends(made, "g-2")
    assert {states(made)[name] for name in ("j-1", "j-2")} == {"skipped"} and states(made)["g"] == "waiting"


def test_a_group_whose_candidates_never_began_is_skipped() -> None:
    made = Playbook(2)
    *members, group, after = family()
    first = [replace(one, after=one.after | {"first"}) if not one.candidates else one for one in members]
    made.happens(Submitted((task("first", -1), *first, group, after)))
    ends(made, "first", End.FAILED)
    assert set(states(made).values()) == {"failed", "skipped"} and states(made)["g"] == "skipped"


def test_the_gate_decides_once_everything_has_ended_and_again_after_a_restart() -> None:
    made = book("gate")
    for name in ("g-1", "g-2", "j-1"):
        ends(made, name)
        assert not commanded(made, Compare)
    ends(made, "j-2")
    assert commanded(made, Compare) == [Compare("g")]
    again = Playbook(4)
    again.happens(Submitted(made.books.unfinished()))
    assert commanded(again, Compare) == [Compare("g")], "whoever was killed in between: it is compared once more"
    again.happens(Chosen(chosen("g-1", by=Decider.GATE)))
    assert commanded(again, Choose) and "next" in [start.task for start in commanded(again, Start)]


def test_who_ends_a_group_ends_its_candidates_and_judges() -> None:
    made = book()
    made.happens(CancelAsked("g"))
    ends(made, "g-1", End.CANCELLED)
    ends(made, "g-2", End.CANCELLED)
    assert states(made) == {
        "g-1": "cancelled",
        "g-2": "cancelled",
        "j-1": "cancelled",
        "j-2": "cancelled",
        "g": "cancelled",
        "next": "skipped",
    }


def test_a_night_ends_without_the_choice_which_is_left_for_the_morning() -> None:
    made = Playbook(8)
    made.happens(NightBegan(Night("n", NightTerms(until=100.0, grace_s=10.0))), Submitted(family(night="n")))
    for name in ("g-1", "g-2", "j-1", "j-2"):
        ends(made, name)
    assert "n" in made.crew.nights, "what comes after the group may still begin"
    made.wall = 200.0
    made >> After(1.0)
    made.happens()
    assert (states(made)["g"], states(made)["next"]) == ("waiting", "expired") and "n" not in made.crew.nights
    made.happens(Chosen(chosen("g-1")))
    assert states(made)["g"] == "done"


def waiting_groups(count: int) -> Crew:
    """So many groups whose candidates are done, and one candidate that lives."""
    tasks = [task("lives", 0)]
    for number in range(1, count):
        names = [f"c{number}-{index}" for index in range(3)]
        tasks += [task(name, number, state=TaskState.DONE) for name in names]
        tasks.append(task(f"g{number:05}", number, after=names, candidates=frozenset(names), decide="person", any_end=True))
    made = Crew(slots=4)
    for events in ([Submitted(tuple(tasks))], [Started("lives", 1)]):
        made.apply(decide(made, events, 1.0)[0])
    return made


@pytest.mark.parametrize("event", [None, TreeGone("lives", 1, End.DONE, "")])
def test_hundreds_of_undecided_groups_slow_no_step(event: TreeGone | None) -> None:
    events = [event] if event is not None else []
    few, many = (steps(lambda crew=crew: decide(crew, events, 2.0)) for crew in (waiting_groups(20), waiting_groups(800)))  # type: ignore[misc]
    assert many <= 1.1 * few
