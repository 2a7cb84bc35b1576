"""A crew in virtual time: the real `decide`, and agents that are entries of a heap. Hours pass in seconds, and the same tasks give the same
starts.

Nothing is written: `Recorder` is where a ledger would be. Events reach `decide` as the loop feeds it: a start is seen by `Started`, an end
by `TreeGone`, and `Secured` follows once the work would be on a branch.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from supervisor.kernel.crew import Crew, Order, Task
from supervisor.kernel.decide import decide
from supervisor.kernel.decision import Collect, Command, Start, Stop
from supervisor.kernel.events import Event, Secured, Started, Submitted, TreeGone
from supervisor.kernel.states import End

LAUNCH_S = 0.1
SECURE_S = 0.05

Recorder = Callable[[Sequence[Command], float], None]
"""Told of the commands of each decision before they are acted upon, and of the monotonic time."""


class VirtualCrew:
    """`now` is monotonic seconds and `wall` seconds since 1970; both move only in `run`."""

    def __init__(
        self,
        slots: int,
        work_s: Callable[[str, int], float],
        order: Order | None = None,
        record: Recorder = lambda _, __: None,
    ) -> None:
        """`work_s` says how long the agent of an attempt works."""
        self.crew = Crew(slots=slots, order=order)
        self.now, self.wall = 1000.0, 1_767_225_600.0
        self.up = True
        """A supervisor lives."""
        self.starts: list[tuple[float, str, int]] = []
        """When each attempt started: time, task, epoch."""
        self._work_s = work_s
        self._record = record
        self._acts: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Have something happen at a monotonic time."""
        heapq.heappush(self._acts, (when, next(self._numbers), act))

    def submit(self, tasks: Iterable[Task]) -> None:
        """Hand tasks over now."""
        self.say(Submitted(tuple(replace(task, since=self.now) for task in tasks)))

    def say(self, *events: Event) -> None:
        """What the loop does with events: decide, commit, act."""
        change, commands = decide(self.crew, events, self.now, self.wall)
        self._record(commands, self.now)
        self.crew.apply(change)
        for command in commands:
            self.act(command)

    def act(self, command: Command) -> None:
        """What the doors would do: an agent that starts ends by itself, and one that is stopped ends soon."""
        match command:
            case Start(task, epoch, _):
                self.starts.append((self.now, task, epoch))
                self._later(LAUNCH_S, Started(task, epoch))
                self._later(LAUNCH_S + self._work_s(task, epoch), TreeGone(task, epoch, End.DONE, ""))
            case Stop(task, epoch, why):
                self._later(SECURE_S, TreeGone(task, epoch, End.CANCELLED, why))
            case Collect(task, epoch, end, cause):
                self._later(SECURE_S, Secured(task, epoch, end, cause))
            case _:
                pass

    def _later(self, seconds: float, event: Event) -> None:
        self.at(self.now + seconds, lambda: self.say(event))

    def run(self, until: float | None = None) -> None:
        """Let time pass until nothing more happens, or until a monotonic time. A backoff that ends is something that happens."""
        while (when := self._next()) is not None and (until is None or when <= until):
            self._pass(when)
            if self._acts and self._acts[0][0] <= when:
                heapq.heappop(self._acts)[2]()
            else:
                self.say()
        if until is not None:
            self._pass(until)

    def _next(self) -> float | None:
        rests = self.crew.resting[:1] if self.up else []
        return min([act[0] for act in self._acts[:1]] + [max(self.now, until) for until, _ in rests], default=None)

    def _pass(self, until: float) -> None:
        seconds = max(0.0, until - self.now)
        self.now, self.wall = self.now + seconds, self.wall + seconds
