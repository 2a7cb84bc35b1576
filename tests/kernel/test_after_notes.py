"""Tasks that come after a note of the memory."""

from __future__ import annotations

from supervisor.kernel.crew import Crew
from supervisor.kernel.decide import decide
from supervisor.kernel.decision import LookForNote, Revive, SetState, Start
from supervisor.kernel.events import NoteAppeared, PauseAsked, ResumeAsked, RetryAsked, Secured, Started, TreeGone
from supervisor.kernel.states import End, TaskState
from tests.kernel.effort import steps
from tests.kernel.playbook import Playbook, submitted, task

READY = TaskState.READY
PLAN, KEY = "p:semantic/plan.md", "p:semantic/key.md"


def test_it_starts_once_the_note_is_there() -> None:
    assert (
        Playbook()
        >> submitted(task("a", after_notes=frozenset({PLAN})))
        << LookForNote(PLAN)
        >> NoteAppeared("p:semantic/other.md")
        >> NoteAppeared(PLAN)
        << SetState("a", READY, "")
        << Start("a", 1, "")
        >> NoteAppeared(PLAN)
    )


def test_it_needs_every_note_and_every_task() -> None:
    book = (
        Playbook()
        >> submitted(task("a", after_notes=frozenset({PLAN, KEY})), task("b", 1, after_notes=frozenset({PLAN})))
        << LookForNote(KEY)
        << LookForNote(PLAN)
        >> NoteAppeared(PLAN)
        << SetState("b", READY, "")
        << Start("b", 1, "")
        >> NoteAppeared(KEY)
        << SetState("a", READY, "")
        << Start("a", 1, "")
    )
    assert book and not book.crew.readers


def test_a_note_alone_does_not_start_what_also_comes_after_a_task() -> None:
    book = Playbook() >> submitted(task("a"), task("b", 1, after=["a"], after_notes=frozenset({PLAN})))
    book = book << SetState("a", READY, "") << LookForNote(PLAN) << Start("a", 1, "") >> NoteAppeared(PLAN)
    assert book
    assert book.crew.tasks["b"].state is TaskState.WAITING
    book.happens(Started("a", 1), TreeGone("a", 1, End.DONE, ""), Secured("a", 1, End.DONE, ""))
    assert book.crew.living.keys() == {"b"}


def test_what_is_paused_looks_again_when_it_is_resumed() -> None:
    assert (
        Playbook()
        >> submitted(task("a", after_notes=frozenset({PLAN})))
        << LookForNote(PLAN)
        >> PauseAsked("a")
        << SetState("a", TaskState.PAUSED, "")
        >> NoteAppeared(PLAN)
        >> ResumeAsked("a")
        << SetState("a", TaskState.WAITING, "")
        << LookForNote(PLAN)
    )


def test_a_retry_waits_for_the_note_again() -> None:
    """The one before is still known, since another task comes after it."""
    book = Playbook()
    book.happens(submitted(task("a", after_notes=frozenset({PLAN})), task("b", 1, after=["a"], after_notes=frozenset({KEY}))))
    book.happens(NoteAppeared(PLAN))
    book.happens(Started("a", 1), TreeGone("a", 1, End.DONE, ""), Secured("a", 1, End.DONE, ""))
    assert book.crew.tasks["a"].state is TaskState.DONE
    assert book >> RetryAsked("a") << Revive("a", "retry asked; was done") << LookForNote(PLAN)


def test_a_note_costs_what_waits_for_it_and_not_what_waits() -> None:
    def took(waiting: int) -> int:
        crew = Crew(task(f"w{number:05}", number, after_notes=frozenset({f"p:semantic/n{number}.md"})) for number in range(waiting))
        return steps(lambda: decide(crew, [NoteAppeared("p:semantic/n7.md")], 1.0))

    few, many = took(100), took(5_000)
    assert many <= 1.2 * few
