"""A night of a whole crew in virtual time: agents that live for hours, a supervisor that is killed, and a nemesis. `Books` stand for the
ledger and check every command; agents write down themselves that they began.

Agents go on while no supervisor lives, and what it had under way dies with it: the next one finds out as recovery does, by the state of
each attempt in the books and by whether its agent lives.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from supervisor.kernel.crew import Crew, Order, Task
from supervisor.kernel.decision import Collect, Command, Start, Stop
from supervisor.kernel.events import (
    AdmissionChanged,
    CancelAsked,
    Event,
    PressureChanged,
    ProviderChanged,
    RetryAsked,
    Secured,
    SlotsChanged,
    Started,
    Submitted,
    TrafficChanged,
    TreeGone,
)
from supervisor.kernel.states import FINAL, AttemptState, End, TaskClass
from tests.kernel.playbook import Books
from tests.virtual_crew import LAUNCH_S, SECURE_S, VirtualCrew

HOUR_S, MINUTE_S = 3600.0, 60.0
DOWN_S = (0.5, 20.0)
"""How long nobody starts the next supervisor."""
FIXED_AFTER_S = (5.0, 300.0)
"""How long a fault lasts that ends by itself."""
Key = tuple[str, int]


class Night(VirtualCrew):
    """One night. `luck` draws all of it."""

    def __init__(self, agents: int, luck: random.Random, longest_s: float) -> None:
        super().__init__(agents, self._draw_work, Order(ageing_s=HOUR_S, jitter=0.25), self._commit)
        self.books = Books()
        self.luck = luck
        self.lines: Counter[Key] = Counter()
        """Starts, as the agents wrote them."""
        self.alive: dict[Key, tuple[float, End]] = {}
        """When each agent ends, and how."""
        self._agents, self._longest_s, self._generation = agents, longest_s, 0

    def _draw_work(self, _task: str, _epoch: int) -> float:
        return self.luck.uniform(0.05, 1.0) * self._longest_s

    def _commit(self, commands: Sequence[Command], now: float) -> None:
        self.books.commit(commands, now)

    # The supervisor --------------------------------------------------------------------------------------------------------------

    def submit_all(self, tasks: Sequence[Task]) -> None:
        self.books.submit(tasks)
        self.say(Submitted(tuple(tasks)))

    def say(self, *events: Event) -> None:
        """As the loop: nobody hears while no supervisor lives, and what it would have seen is seen by the next one."""
        if self.up:
            self.books.slots, self.books.wall = self._slots_after(events), self.wall
            super().say(*events)

    def _slots_after(self, events: Sequence[Event]) -> int:
        return next((event.slots for event in reversed(events) if isinstance(event, SlotsChanged)), self.crew.slots)

    def act(self, command: Command) -> None:
        match command:
            case Start(task, epoch, _):
                self._job(LAUNCH_S, partial(self._launch, (task, epoch)))
            case Stop(task, epoch, _):
                self._job(SECURE_S, partial(self._stop, (task, epoch)))
            case Collect(task, epoch, end, cause):
                self._job(SECURE_S, partial(self.say, Secured(task, epoch, end, cause)))
            case _:
                pass

    def _job(self, seconds: float, work: Callable[[], None]) -> None:
        """Something that the supervisor of now has under way; it dies with it."""
        self.at(self.now + seconds, partial(self._if_still, self._generation, work))

    def _if_still(self, generation: int, work: Callable[[], None]) -> None:
        if self._generation == generation:
            work()

    def _launch(self, key: Key) -> None:
        """Begins the agent unless it was begun before; its runner is seen a moment later."""
        if not self.lines[key]:
            assert all(task != key[0] for task, _ in self.alive), f"{key[0]} begins while an older attempt of it lives"
            self.lines[key] += 1
            ends = self.now + self._work_s(*key)
            self.alive[key] = ends, self.luck.choices([End.DONE, End.FAILED, End.TIMEOUT], [90, 8, 2])[0]
            self.at(ends, partial(self._over, key))
        self._job(LAUNCH_S, partial(self.say, Started(*key)))

    def _over(self, key: Key) -> None:
        """The agent's own end; a supervisor that lives sees it."""
        if key in self.alive and self.alive[key][0] <= self.now:
            _, end = self.alive.pop(key)
            self.say(TreeGone(*key, end, "by itself"))

    def _stop(self, key: Key) -> None:
        self.alive.pop(key, None)
        self.say(TreeGone(*key, End.CANCELLED, "stopped"))

    def kill_supervisor(self) -> None:
        """kill -9: all that it knew and had under way is gone."""
        if self.up:
            self.up, self._generation = False, self._generation + 1
            self.at(self.now + self.luck.uniform(*DOWN_S), self._next_supervisor)

    def _next_supervisor(self) -> None:
        self.up = True
        for name, held in self.books.tasks.items():
            self.books.tasks[name] = Books.restarted(held, self.now)
        self.crew = Crew(slots=self._agents, order=self.crew.order)
        living = [(held.id, held.attempt.epoch, held.attempt.state) for held in self.books.tasks.values() if held.attempt is not None]
        self.say(Submitted(self.books.unfinished()))
        for task, epoch, state in living:
            self._recover((task, epoch), state)

    def _recover(self, key: Key, state: AttemptState) -> None:
        """What the table of recovery says."""
        match state:
            case AttemptState.LAUNCHING if not self.lines[key] or key in self.alive:
                self._job(LAUNCH_S, partial(self._launch, key))
            case AttemptState.COLLECTING:
                self._job(SECURE_S, partial(self.say, Secured(*key, End.DONE, "")))
            case AttemptState.STOPPING:
                self._job(SECURE_S, partial(self._stop, key))
            case _ if key not in self.alive:
                self.say(TreeGone(*key, self.luck.choice([End.DONE, End.LOST]), "ended meanwhile"))

    # The nemesis -----------------------------------------------------------------------------------------------------------------

    def fault(self) -> None:
        """One fault, drawn."""
        self.luck.choice(FAULTS)(self)

    def some(self, names: Sequence[str]) -> str:
        return names[self.luck.randrange(len(names))] if names else "nobody"

    def later(self, *events: Event) -> None:
        """A fault that lasts for a while."""
        self.at(self.now + self.luck.uniform(*FIXED_AFTER_S), partial(self.say, *events))

    def lose(self, key: Key) -> None:
        if self.alive.pop(key, None) is not None:
            self.say(TreeGone(*key, End.LOST, "its runner died"))


def a_runner_dies(night: Night) -> None:
    if night.alive:
        night.lose(night.luck.choice(list(night.alive)))


def tmux_dies(night: Night) -> None:
    """Rarely: all agents die at one moment."""
    if night.luck.random() < 0.05:
        dead, night.alive = list(night.alive), {}
        night.say(*(TreeGone(*key, End.LOST, "the tmux server died") for key in dead))


def something_old_is_seen(night: Night) -> None:
    """Of every attempt of the past, while the newest one lives; and of one that there never was."""
    task = night.some([held.id for held in night.books.tasks.values() if held.epoch > 1] or list(night.books.tasks))
    for epoch in range(night.books.tasks[task].epoch):
        _seen_late(night, task, epoch)
    _seen_late(night, task, night.books.tasks[task].epoch + 1)  # one may have begun with what was said before


def _seen_late(night: Night, task: str, epoch: int) -> None:
    night.say(Started(task, epoch), TreeGone(task, epoch, End.LOST, "seen late"), Secured(task, epoch, End.DONE, "seen late"))


def the_disk_is_full(night: Night) -> None:
    night.say(AdmissionChanged(False))
    night.later(AdmissionChanged(True))


def the_models_are_busy(night: Night) -> None:
    night.say(TrafficChanged(delay_s=night.luck.choice([20.0, 60.0, 200.0]), parked=night.luck.random() < 0.2))
    night.later(TrafficChanged())


def the_provider_is_dead(night: Night) -> None:
    night.say(ProviderChanged("main serves nothing"))
    night.later(ProviderChanged(""))


def memory_runs_short(night: Night) -> None:
    night.say(PressureChanged(memory=night.luck.choice([0.5, 0.94, 0.99])), SlotsChanged(night.luck.randint(1, night._agents)))
    night.later(PressureChanged(), SlotsChanged(night._agents))


def a_person_cancels(night: Night) -> None:
    night.say(CancelAsked(night.some([name for name, held in night.books.tasks.items() if held.state not in FINAL])))


def a_person_retries(night: Night) -> None:
    name = night.some([name for name, held in night.books.tasks.items() if held.state in FINAL])
    if night.up and name in night.books.tasks:
        held = night.books.tasks[name]
        night.say(Submitted((held, *(night.books.tasks[need] for need in sorted(held.after)))), RetryAsked(name))


def the_wall_clock_jumps(night: Night) -> None:
    night.wall += night.luck.choice([-HOUR_S, -1.0, 1.0, HOUR_S])


FAULTS: tuple[Callable[[Night], None], ...] = (
    *[a_runner_dies] * 4,
    tmux_dies,
    something_old_is_seen,
    the_disk_is_full,
    the_models_are_busy,
    the_provider_is_dead,
    memory_runs_short,
    a_person_cancels,
    a_person_retries,
    the_wall_clock_jumps,
)


def tasks(count: int, luck: random.Random) -> list[Task]:
    """A night's work: of three submitters and all classes, a quarter after others, some with few retries and some that may expire."""
    made: list[Task] = []
    for number in range(count):
        needs = [made[luck.randrange(number)].id for _ in range(luck.choice([0, 0, 0, 1, 2]))] if number else []
        made.append(
            Task(
                f"t{number}",
                number,
                priority=luck.randrange(101),
                task_class=luck.choice(list(TaskClass)),
                after=frozenset(needs),
                any_end=luck.random() < 0.7,
                submitter=luck.choice("abc"),
                retries=luck.choice([0, 1, 5]),
            )
        )
    return made


def dawn(night: Night) -> None:
    """What must hold when everything has ended."""
    states = {held.state for held in night.books.tasks.values()}
    assert states <= FINAL, Counter(held.state for held in night.books.tasks.values())
    assert [key for key, count in night.lines.items() if count > 1] == []
    assert night.alive == {} and night.crew.living == {}
    for held in night.books.tasks.values():
        begun = {epoch for task, epoch in night.lines if task == held.id}
        assert begun <= set(range(1, held.epoch + 1)), f"{held.id} began in epochs {begun} of {held.epoch}"
    assert night.crew.tasks == {}, "ended tasks are kept in memory"


def let_it_end(night: Night) -> None:
    """The night is over: whatever was wrong is right again, and the supervisor ticks until nothing is left to do, for four days at most."""
    night.run(night.now + DOWN_S[1])
    night.say(AdmissionChanged(True), ProviderChanged(""), TrafficChanged(), PressureChanged(), SlotsChanged(night._agents))
    for _ in range(4 * 24 * 60):
        if all(held.state in FINAL for held in night.books.tasks.values()):
            return
        night.run(night.now + MINUTE_S)
        night.say()
