"""The window of batch tasks on the nights on which clocks change (C03), and when the machine sleeps through it (C02)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import datetime
from types import SimpleNamespace

import pytest

from supervisor.kernel.crew import Task
from supervisor.kernel.night import Window
from supervisor.kernel.settings import Settings
from supervisor.kernel.states import TaskClass, TaskState
from supervisor.server.machine import Admission
from tests.kernel.playbook import Playbook, submitted

LOOK_S, HOUR_S = 300.0, 3600.0
NIGHTLY = Settings(batch_window=Window(2 * 60 + 30, 2 * 60 + 45), disk_free_min=0)


@pytest.fixture(autouse=True)
def central_europe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


class Nights:
    """A supervisor that looks at its clock every five minutes."""

    def __init__(self, begin: str) -> None:
        self.playbook = Playbook(slots=4)
        self.playbook.wall = datetime.fromisoformat(begin).timestamp()
        self.starts: list[tuple[str, str]] = []
        clock = SimpleNamespace(wall=lambda: self.playbook.wall)
        looks = (SimpleNamespace(disk_free=lambda: 1), SimpleNamespace(doubtful=False))
        self.admission = Admission(*looks, NIGHTLY, clock, lambda _: None)  # type: ignore[arg-type]  # what it uses of them

    def submit(self, name: str, **facts: float) -> None:
        order = len(self.playbook.books.tasks)
        self.playbook.happens(submitted(Task(name, order, task_class=TaskClass.BATCH, **facts)))  # type: ignore[arg-type]  # numbers all

    def step(self) -> None:
        before = {name: held.epoch for name, held in self.playbook.books.tasks.items()}
        self.playbook.happens(*self.admission.step(self.playbook.crew))
        at = time.strftime("%d %H:%M", time.localtime(self.playbook.wall))
        self.starts += [(name, at) for name, held in self.playbook.books.tasks.items() if held.epoch > before[name]]

    def until(self, end: str) -> None:
        while self.playbook.wall < datetime.fromisoformat(end).timestamp():
            self.playbook.wall += LOOK_S
            self.playbook.now += LOOK_S
            self.step()

    def state(self, name: str) -> TaskState:
        return self.playbook.books.tasks[name].state


@pytest.mark.parametrize(
    ("days", "at"),
    [
        (("2026-03-28", "2026-03-29", "2026-03-30"), ("02:30", "03:30")),
        (("2026-10-24", "2026-10-25", "2026-10-26"), ("02:30", "02:30")),
    ],
    ids=["leaps-over", "twice"],
)
def test_each_nights_task_starts_once_in_that_night(days: tuple[str, ...], at: tuple[str, ...]) -> None:
    nights = Nights(f"{days[0]} 00:00")
    nights.step()
    for day, next_day in itertools.pairwise(days):
        nights.submit(day)
        nights.until(f"{next_day} 12:00") if day == days[1] else nights.until(f"{next_day} 00:00")
    assert nights.starts == [(day, f"{day[-2:]} {clock}") for day, clock in zip(days, at, strict=False)]


def test_who_sleeps_through_the_window_starts_once_in_the_next_one_or_has_expired() -> None:
    nights = Nights("2026-06-01 20:00")
    nights.step()
    nights.submit("patient")
    nights.submit("late", start_by=nights.playbook.wall + 7 * HOUR_S)
    nights.playbook.wall += 12 * HOUR_S  # the monotonic clock stands still meanwhile
    nights.step()
    assert (nights.state("patient"), nights.state("late")) == (TaskState.READY, TaskState.EXPIRED)
    nights.until("2026-06-04 12:00")
    assert nights.starts == [("patient", "03 02:30")]
