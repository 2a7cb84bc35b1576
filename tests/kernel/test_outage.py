"""When many agents die at once, or no provider serves anything: one outage, probes, and nothing burned."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.kernel.crew import Crew
from supervisor.kernel.decide import decide
from supervisor.kernel.decision import Command, Finish, Start
from supervisor.kernel.events import (
    PROBE_FIRST_S,
    PROBE_OK_S,
    PROBES_FREE,
    WITHIN_S,
    CancelAsked,
    EmergencyChanged,
    Event,
    NightBegan,
    NightsSpent,
    ProviderChanged,
    Secured,
    Started,
    Submitted,
    TrafficChanged,
    TreeGone,
)
from supervisor.kernel.night import Night, NightSpent, NightTerms
from supervisor.kernel.recovery import REBOOTED
from supervisor.kernel.states import FINAL, End, TaskState
from tests.kernel.playbook import task

FAILED = "exit code 127"


class Many:
    """A crew whose attempts begin at once and end as the test says. Time moves by hand; the wall clock goes along."""

    def __init__(self, count: int, *before: Event, slots: int = 50, **facts: Any) -> None:
        self.crew = Crew(slots=slots)
        self.now = 1000.0
        self.commands: list[Command] = []
        self.starts = 0
        self.feed(*before, Submitted(tuple(task(f"t{number:02}", number, **facts) for number in range(count))))

    def feed(self, *events: Event, after: float = 0.0) -> list[Command]:
        self.now += after
        change, commands = decide(self.crew, events, self.now, self.now)
        self.crew.apply(change)
        self.commands += commands
        for start in (command for command in commands if isinstance(command, Start)):
            self.starts += 1
            commands += self.feed(Started(start.task, start.epoch))
        return commands

    def die(self, *names: str, end: End = End.LOST, cause: str = "its runner died", after: float = 0.0) -> None:
        keys = [(name, self.crew.tasks[name].epoch) for name in names]
        self.feed(*(TreeGone(*key, end, cause) for key in keys), after=after)
        self.feed(*(Secured(*key, end, cause) for key in keys))

    @property
    def living(self) -> list[str]:
        return sorted(self.crew.living)

    @property
    def finishes(self) -> list[Finish]:
        return [command for command in self.commands if isinstance(command, Finish)]

    @property
    def why(self) -> str:
        outage = self.crew.health.outage
        return outage.why if outage is not None else ""


def test_half_of_five_that_die_at_once_are_an_outage_that_costs_nothing() -> None:
    many = Many(6)
    many.die("t00", "t01")
    assert (many.why, many.finishes) == ("", []), "nobody can say yet what their ends cost"
    many.die("t02", after=1.0)
    assert many.why == "3 of 6 agents died within 2s, each of them lost"
    assert all(task.tally.restarts == () for task in many.crew.tasks.values())
    assert [(done.state, done.delay_s) for done in many.finishes] == [(TaskState.READY, 2.0)] * 3
    assert many.living == ["t03", "t04", "t05"], "who lives goes on"


@pytest.mark.parametrize(
    ("count", "dead", "after"),
    [(4, 4, 0.0), (7, 3, 0.0), (6, 3, WITHIN_S + 0.1)],
    ids=["four are no crew", "less than half", "not at once"],
)
def test_what_is_no_outage_is_counted(count: int, dead: int, after: float) -> None:
    many = Many(count)
    for number in range(dead):
        many.die(f"t{number:02}", after=after)
    many.feed(after=WITHIN_S + 0.1)
    assert many.why == ""
    assert [len(task.tally.restarts) for task in many.crew.tasks.values() if task.id < f"t{dead:02}"] == [1] * dead


def test_one_probe_at_a_time_and_when_it_lives_everybody_starts() -> None:
    many = Many(8)
    many.die(*many.living)
    many.feed(after=2.0)
    assert many.living == ["t00"]
    many.die("t00", after=1.0)
    many.feed(after=PROBE_FIRST_S - 0.1)
    assert many.living == []
    many.feed(after=0.1)
    assert many.living == ["t00"]
    many.feed(after=PROBE_OK_S - 0.1)
    assert many.living == ["t00"] and many.why
    many.feed(after=0.1)
    assert (many.why, len(many.living)) == ("", 8)
    assert all(task.tally.restarts == () for task in many.crew.tasks.values())


def test_a_restart_of_the_machine_is_no_outage() -> None:
    crew = Many(8)
    crew.die(*crew.living, cause=REBOOTED)
    assert crew.crew.health.outage is None
    crew.feed(after=2.0)
    assert crew.starts == 16, "all of them at once"


def test_nothing_is_tried_while_a_person_has_stopped_everything() -> None:
    many = Many(8)
    many.die(*many.living)
    many.feed(EmergencyChanged(True))
    many.feed(after=60.0)
    assert many.living == []
    many.feed(EmergencyChanged(False))
    assert many.living == ["t00"]


def test_a_probe_that_is_done_ends_it_and_one_that_is_cancelled_says_nothing() -> None:
    many = Many(5)
    many.die(*many.living)
    many.feed(after=2.0)
    many.feed(CancelAsked("t00"))
    many.die("t00", end=End.CANCELLED, cause="cancelled")
    assert many.why and many.living == ["t01"]
    many.die("t01", end=End.DONE, cause="")
    assert not many.why and many.living == ["t02", "t03", "t04"]


def test_fifty_that_crash_for_ever_are_not_started_two_hundred_times_p09() -> None:
    """A broken program: every start dies within a tenth of a second. Ten probes cost nothing; forty minutes are a dozen starts, no task
    has paid but the one that was tried, and one alert has been given."""
    many = Many(50, retries=5)
    alerts = set()
    for _ in range(2700):
        if many.living:
            many.die(*many.living, end=End.FAILED, cause=FAILED, after=0.1)
        many.feed(after=0.9)
        alerts.add(many.why)
    assert many.starts - 50 <= 14
    assert alerts == {f"25 of 50 agents died within 2s, each of them failed: {FAILED}"}
    tallies = [many.crew.tasks[f"t{number:02}"].tally.failures for number in range(1, 50)]
    assert tallies == [0] * 49
    assert 0 < many.crew.tasks["t00"].tally.failures <= many.starts - 50 - PROBES_FREE


def test_agents_whose_own_fault_it_is_come_to_an_end() -> None:
    many = Many(5, retries=1)
    for _ in range(24 * 3600):
        if not many.crew.counts.total():
            break
        if many.living:
            many.die(*many.living, end=End.FAILED, cause=FAILED)
        many.feed(after=1.0)
    assert {done.state for done in many.finishes if done.state in FINAL} == {TaskState.FAILED}
    assert not many.crew.counts.total() and many.now < 1000.0 + 4 * 3600


@pytest.mark.parametrize(
    ("cause", "retries", "has_command"),
    [
        ("exit code 1", 0, True),
        ("exit code 1", 3, True),
        ("could not start: no such file", 0, True),
        ("killed by signal 11", 0, True),
        ("exit code 128", 3, True),
        ("exit code 139", 0, True),
        ("exit code 127", 0, False),
    ],
)
def test_what_fails_for_good_is_an_answer_and_so_is_a_commands_own_status(cause: str, retries: int, has_command: bool) -> None:
    many = Many(20, retries=retries, has_command=has_command)
    many.die(*many.living, end=End.FAILED, cause=cause)
    many.feed(after=WITHIN_S + 0.1)
    assert not many.why
    assert {done.state for done in many.finishes} == {TaskState.READY if retries else TaskState.FAILED}


@pytest.mark.parametrize(
    ("cause", "retries"), [("could not start: no such file", 1), ("killed by signal 11", 1), ("killed by signal 9", 0)]
)
def test_commands_that_do_not_get_to_their_own_end_die(cause: str, retries: int) -> None:
    many = Many(20, retries=retries, has_command=True)
    many.die(*many.living, end=End.FAILED, cause=cause)
    assert many.why and {done.state for done in many.finishes} == {TaskState.READY}


def test_deaths_of_several_causes_are_no_outage() -> None:
    many = Many(8, retries=1)
    for number, name in enumerate(many.living):
        many.die(name, end=End.FAILED, cause=f"exit code {number // 2}")
    many.feed(after=WITHIN_S + 0.1)
    assert not many.why and len(many.finishes) == 8


def test_a_gate_that_nobody_passes_is_no_outage() -> None:
    many = Many(20)
    many.die(*many.living, end=End.FAILED, cause="gate: exit code 1")
    assert not many.why and {done.tally.gates for done in many.finishes} == {1}


@pytest.mark.parametrize(("refused", "end", "is_outage"), [(True, End.FAILED, False), (False, End.FAILED, True), (True, End.LOST, True)])
def test_agents_whom_the_cost_cap_of_their_night_refuses_are_no_outage(refused: bool, end: End, is_outage: bool) -> None:
    many = Many(6, NightBegan(Night("n", NightTerms(cost_max=10.0))), night="n", retries=2)
    many.feed(NightsSpent({"n": NightSpent(8.0, refused=refused)}))
    many.die("t00", "t01", "t02", end=end, cause="402: the night's cost_max was reached")
    assert bool(many.why) is is_outage


def test_a_provider_that_is_dead_holds_starts_until_the_gateway_says_otherwise() -> None:
    many = Many(9, slots=3)
    many.feed(ProviderChanged("main serves nothing (unreachable)"))
    many.feed(ProviderChanged("main serves nothing (server error)"))
    assert many.why == "main serves nothing (unreachable)", "one outage, one alert"
    many.die("t00", "t01", end=End.FAILED, cause="API error")
    many.feed(after=PROBE_FIRST_S - 0.1)
    assert many.living == ["t02"]
    assert [(done.state, done.tally.failures) for done in many.finishes] == [(TaskState.READY, 0)] * 2
    many.feed(after=0.1)
    assert many.living == ["t00", "t02"], "somebody must ask"
    many.die("t00", end=End.TIMEOUT, cause="stopped after 1m", after=PROBE_OK_S)
    many.feed(after=PROBE_FIRST_S / 2)
    assert (many.living, many.crew.tasks["t00"].tally.failures) == (["t02"], 0)
    many.feed(ProviderChanged(""))
    assert not many.why and len(many.living) == 3


def test_a_command_that_is_done_while_the_provider_is_dead_lets_the_next_one_try() -> None:
    many = Many(3, slots=1)
    many.feed(ProviderChanged("dead"))
    many.die("t00", end=End.DONE, cause="")
    many.feed(after=PROBE_FIRST_S)
    many.die("t01", end=End.DONE, cause="")
    assert many.why and many.living == ["t02"]


def test_one_task_that_its_provider_fails_alone_holds_up_nobody() -> None:
    """Whoever waits longest is tried, also of a class that is held back, and also while one that was tried still waits for its answer."""
    many = Many(4, slots=2, priority=50)
    many.feed(TrafficChanged(closed="main serves nothing"), ProviderChanged("main serves nothing"))
    many.die("t00", end=End.LOST, cause="its provider failed it", after=1.0)
    many.feed(after=PROBE_FIRST_S)
    assert many.living == ["t01", "t02"], "t01 lives and waits; t00 failed a moment ago, so the next one is tried"
    many.die("t01", "t02", end=End.LOST, cause="its provider failed it", after=1.0)
    many.feed(after=2 * PROBE_FIRST_S)
    assert many.living == ["t03"]
    many.feed(after=4 * PROBE_FIRST_S)
    assert many.living == ["t00", "t03"], "t03 may be held for long"
    assert [many.crew.tasks[f"t0{number}"].tally.failures for number in range(4)] == [0, 0, 0, 0]
    assert len(many.crew.tasks["t00"].tally.restarts) == 1, "its pauses grow"
