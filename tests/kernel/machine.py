"""Random lives of a crew. `Books` check every command; the ledger's tests run the same machine against the real ledger.

The machine is the rest of the daemon: it submits, it observes (also what is stale, early or impossible), people cancel and retry,
and at any moment everything in memory is lost and read back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from supervisor.kernel import recovery
from supervisor.kernel.crew import Crew, Order, Task
from supervisor.kernel.decide import decide
from supervisor.kernel.decision import Command, Start
from supervisor.kernel.events import (
    AdmissionChanged,
    CancelAsked,
    Event,
    LimitPassed,
    ParkAsked,
    PauseAsked,
    PersonNeeded,
    PressureChanged,
    ProviderChanged,
    Question,
    ResumeAsked,
    RetryAsked,
    Secured,
    SlotsChanged,
    Started,
    StoodStill,
    Submitted,
    TrafficChanged,
    TreeGone,
)
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import FINAL, AttemptState, End, TaskClass, TaskState
from tests.kernel.playbook import Books

ORDER = Order(ageing_s=600.0)
ENDS = st.sampled_from(list(End))
SPECS = st.builds(
    TaskSpec,
    name=st.just(""),
    title=st.just("t"),
    kind=st.just("shell"),
    argv=st.just(("true",)),
    priority=st.integers(0, 100),
    task_class=st.sampled_from(TaskClass),
    timeout_s=st.sampled_from([0.0, 10.0]),
    preempt=st.booleans(),
    retries=st.integers(0, 2),
    after_on=st.sampled_from(["done", "finished"]),
    together=st.sampled_from(["", "", "x"]),
    after_any=st.sampled_from([(), (), ("all of after",)]),
    submitter=st.sampled_from("ab"),
    not_after=st.sampled_from([0.0, 0.0, 100.0]),
)


class CrewMachine(RuleBasedStateMachine):
    """Overridden in three places by the ledger's tests: `submit`, `commit` and `read_back`."""

    def __init__(self) -> None:
        super().__init__()
        self.books = Books()
        self.crew = Crew(order=ORDER)
        self.now = 1000.0
        self.order = 0
        self.wall_s = 1e9

    # The ledger --------------------------------------------------------------------------------------------------------------------

    def submit(self, plan: list[tuple[TaskSpec, list[int]]]) -> tuple[Task, ...]:
        """Commit tasks and what each comes after (indices of earlier ones of the same plan)."""
        made: list[Task] = []
        for spec, needs in plan:
            made.append(
                Task(
                    id=f"t{self.order}",
                    order=self.order,
                    priority=spec.priority,
                    preempt=spec.preempt,
                    task_class=spec.task_class,
                    timeout_s=spec.timeout_s,
                    retries=spec.retries,
                    any_end=spec.after_on == "finished",
                    together=f"plan {made[0].id if made else self.order}:{spec.together}" if spec.together else "",
                    after=frozenset(made[index].id for index in needs),
                    after_any=frozenset(made[index].id for index in needs if spec.after_any),
                    submitter=spec.submitter,
                    start_by=self.wall_s + spec.not_after if spec.not_after else 0.0,
                )
            )
            self.order += 1
        return tuple(made)

    def commit(self, commands: Iterable[Command]) -> None:
        """Write what was decided."""

    def read_back(self) -> tuple[Task, ...]:
        """What a restarted supervisor knows."""
        return self.books.unfinished()

    # What happens ------------------------------------------------------------------------------------------------------------------

    def wall_now(self) -> float:
        return self.wall_s

    def feed(self, *events: Event) -> None:
        change, commands = decide(self.crew, events, self.now, self.wall_now())
        self.books.slots, self.books.wall = change.conditions["slots"], self.wall_now()
        self.books.commit(commands, self.now)
        self.commit(commands)
        self.crew.apply(change)
        self.starts_follow_the_verdicts([self.crew.tasks[command.task] for command in commands if isinstance(command, Start)])

    def pick(self, draw: int, among: Iterable[str]) -> str | None:
        names = sorted(among)
        return names[draw % len(names)] if names else None

    def with_attempt(self) -> list[str]:
        return [name for name, held in self.books.tasks.items() if held.attempt is not None]

    @initialize(slots=st.integers(1, 3))
    def begin(self, slots: int) -> None:
        self.crew = Crew(slots=slots, order=ORDER)

    @rule(data=st.data(), specs=st.lists(SPECS, min_size=1, max_size=4))
    def a_plan_is_submitted(self, data: st.DataObject, specs: list[TaskSpec]) -> None:
        plan = [
            (spec, data.draw(st.lists(st.integers(0, index - 1), max_size=2, unique=True)) if index else [])
            for index, spec in enumerate(specs)
        ]
        made = self.submit(plan)
        self.books.submit(made)
        self.feed(Submitted(made))

    @precondition(lambda self: self.with_attempt())
    @rule(draw=st.integers(0, 99), end=ENDS, late=st.booleans(), spent=st.booleans())
    def an_attempt_goes_one_step_on(self, draw: int, end: End, late: bool, spent: bool) -> None:
        name = self.pick(draw, self.with_attempt())
        assert name is not None
        self._step(name, end, skip_start=late, why=recovery.spent(self.wall_s + 500.0) if spent else "why")

    def _step(self, name: str, end: End, *, skip_start: bool = False, why: str = "why") -> None:
        attempt = self.books.tasks[name].attempt
        assert attempt is not None
        if attempt.state is AttemptState.COLLECTING:
            self.feed(Secured(name, attempt.epoch, end, why))
        elif attempt.state is AttemptState.LAUNCHING and not skip_start:
            self.feed(Started(name, attempt.epoch))
        else:
            self.feed(TreeGone(name, attempt.epoch, end, "why"))

    @precondition(lambda self: self.books.tasks)
    @rule(draw=st.integers(0, 99), off=st.integers(-2, 1), end=ENDS, kind=st.integers(0, 2))
    def something_is_seen_of_any_epoch(self, draw: int, off: int, end: End, kind: int) -> None:
        name = self.pick(draw, self.books.tasks)
        assert name is not None
        epoch = self.books.tasks[name].epoch + off
        event: Event = (Started(name, epoch), TreeGone(name, epoch, end, ""), Secured(name, epoch, end, ""))[kind]
        self.feed(event, event)

    @rule(draw=st.integers(0, 99))
    def a_person_cancels(self, draw: int) -> None:
        name = self.pick(draw, self.books.tasks)
        self.feed(CancelAsked(name or "nobody"))
        if name is not None:
            held = self.books.tasks[name]
            assert held.state in FINAL or (held.attempt is not None and held.attempt.stop_why == "cancelled")

    @rule(draw=st.integers(0, 99), event=st.sampled_from([PauseAsked, ResumeAsked]))
    def a_person_pauses_or_resumes(self, draw: int, event: type[PauseAsked] | type[ResumeAsked]) -> None:
        self.feed(event(self.pick(draw, self.books.tasks) or "nobody"))

    @rule(draw=st.integers(0, 99), parked=st.booleans())
    def a_paused_agent_stands_still(self, draw: int, parked: bool) -> None:
        pausing = [name for name in self.with_attempt() if (found := self.books.tasks[name].attempt) and found.paused and not found.held]
        if (name := self.pick(draw, pausing)) is not None:
            epoch = self.books.tasks[name].epoch
            self.stood_still(name)
            self.feed(StoodStill(name, epoch), *([ParkAsked(name, epoch)] if parked else []))

    def stood_still(self, name: str) -> None:
        """What the job notes before it tells."""
        self.books.stood_still(name)

    @rule(draw=st.integers(0, 99), epoch=st.integers(1, 3))
    def a_limit_is_passed(self, draw: int, epoch: int) -> None:
        self.feed(LimitPassed(self.pick(draw, self.books.tasks) or "nobody", epoch, "disk_max"))

    @rule(draw=st.integers(0, 99), epoch=st.integers(1, 3), times=st.integers(0, 3))
    def an_agent_needs_a_person(self, draw: int, epoch: int, times: int) -> None:
        self.feed(PersonNeeded(self.pick(draw, self.books.tasks) or "nobody", epoch, Question("may I?", times, 3)))

    @rule(draw=st.integers(0, 99), both=st.booleans())
    def a_person_retries(self, draw: int, both: bool) -> None:
        name = self.pick(draw, [name for name, held in self.books.tasks.items() if held.state in FINAL])
        if name is None:
            return
        held = self.books.tasks[name]
        needs = tuple(self.books.tasks[need] for need in sorted(held.after))
        self.feed(Submitted((held, *needs)), RetryAsked(name), *([RetryAsked(name)] if both else []))

    @rule(seconds=st.sampled_from([0.5, 2.0, 45.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.wall_s += seconds
        self.feed()

    @rule(admitting=st.booleans())
    def starting_is_allowed_or_not(self, admitting: bool) -> None:
        self.feed(AdmissionChanged(admitting))

    @rule(delay_s=st.sampled_from([0.0, 20.0, 40.0, 80.0, 500.0]), parked=st.booleans())
    def the_models_are_busy_or_not(self, delay_s: float, parked: bool) -> None:
        self.feed(TrafficChanged(delay_s, parked))

    @rule(memory=st.sampled_from([None, 0.5, 0.93, 0.99]), trouble=st.sampled_from(["", "", "no answer"]))
    def the_machine_becomes_busy_or_not(self, memory: float | None, trouble: str) -> None:
        self.feed(PressureChanged(memory=memory, trouble=trouble))

    @rule(slots=st.integers(1, 3))
    def the_means_change(self, slots: int) -> None:
        self.feed(SlotsChanged(slots))

    @rule(why=st.sampled_from(["", "main serves nothing"]))
    def a_provider_dies_or_comes_back(self, why: str) -> None:
        self.feed(ProviderChanged(why))

    @rule(slots=st.integers(1, 3), at=st.floats(0, 1e6))
    def the_supervisor_dies_and_comes_back(self, slots: int, at: float) -> None:
        self.now = at
        for name, held in self.books.tasks.items():
            # A new supervisor has its own monotonic clock: what is left of a backoff is the ledger's to carry over.
            self.books.tasks[name] = Books.restarted(held, at)
        self.crew = Crew(slots=slots, order=ORDER)
        self.feed(Submitted(self.read_back()))

    # What holds --------------------------------------------------------------------------------------------------------------------

    def starts_follow_the_verdicts(self, started: list[Task]) -> None:
        """Who starts may, and nobody who may waits beside a free slot."""
        crew = self.crew
        assert crew.admitting or not started
        if crew.health.outage is not None:
            assert len(started) <= 1
            return
        for task in started:
            is_old = self.now - task.since >= ORDER.ageing_s
            assert task.task_class not in crew.held_back or is_old or len(crew.living) == 1, f"{task.id} starts, held back"
        may_start = [name for name in TaskClass if crew.oldest[name] and name not in crew.held_back]
        assert not crew.admitting or len(crew.living) >= crew.slots or not may_start
        assert not crew.admitting or crew.living or not any(found for by_night in crew.oldest.values() for found in by_night.values()), (
            "nothing lives, and nothing starts"
        )

    @invariant()
    def memory_and_books_agree(self) -> None:
        expected = {name: facts(held) for name, held in self.books.tasks.items() if held.state not in FINAL}
        assert {name: facts(held) for name, held in self.crew.tasks.items() if held.state not in FINAL} == expected

    @invariant()
    def what_it_keeps_by_question_is_what_its_tasks_say(self) -> None:
        kept, anew = vars(self.crew), vars(Crew(self.crew.tasks.values()))
        for name in ("living", "ready", "urgent", "oldest", "preempting", "resting", "alarms", "dependents", "groups"):
            assert kept[name] == anew[name]
        turns = {name: sorted((self.crew.share.end(key), key) for key in self.crew.ready if key[0] == name) for name in TaskClass}
        assert self.crew.turns == turns
        assert +self.crew.waiting == +anew["waiting"]
        assert +self.crew.counts == Counter(held.state for held in self.crew.tasks.values() if held.state not in FINAL)

    @invariant()
    def running_is_having_an_attempt(self) -> None:
        for held in self.books.tasks.values():
            assert (held.state is TaskState.RUNNING) == (held.attempt is not None)

    @invariant()
    def needs_are_remembered(self) -> None:
        for held in self.crew.tasks.values():
            assert held.state in FINAL or held.after <= self.crew.tasks.keys()

    def teardown(self) -> None:
        """Left alone, with every attempt ending somehow, everything ends, however busy the models are."""
        self.feed(AdmissionChanged(True), ProviderChanged(""))
        for _ in range(2000):
            if all(held.state in FINAL for held in self.books.tasks.values()):
                return
            self.now += 400.0
            self.wall_s += 5.0  # so that a limit opens, and who is lost again and again is quarantined
            self.feed(*map(ResumeAsked, sorted(self.books.tasks)))
            for name in self.with_attempt():
                self._step(name, End.DONE if len(name) % 2 else End.LOST)
        raise AssertionError(f"never ended: {[held for held in self.books.tasks.values() if held.state not in FINAL]}")


def facts(held: Task) -> tuple[object, ...]:
    """What must survive a restart."""
    attempt = held.attempt
    paused = attempt.paused if attempt is not None else None
    live = None if attempt is None else (attempt.epoch, attempt.state, attempt.stop_why)
    held_back = None if paused is None else (paused.until, paused.still, paused.made_for, paused.question)
    return (
        held.state, held.epoch, held.tally, held.after, held.any_end, held.together, held.priority, held.task_class,
        held.retries, held.after_any, held.submitter, held.start_by, held.preempt, held.unpark_at, live, held_back,
    )  # fmt: skip
