"""Who is set aside in a night, and who is not."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.features.night.service import PATIENCE_S, Seen, SettingAside
from supervisor.kernel.crew import Attempt, Crew, PauseState, Task
from supervisor.kernel.events import Event, PersonNeeded, Question
from supervisor.kernel.night import Night, NightTerms
from supervisor.kernel.states import AttemptState, TaskState, Until
from supervisor.store.ledger import Ledger
from tests.gateway.kit import StandingClock

RUN, TASK = "1123-k3f9", "1123-k3f9/a"


class Place:
    """One task that runs in a night, and asks."""

    def __init__(self, root: Path) -> None:
        self.clock, self.told, self.attached = StandingClock(), list[Event](), False
        self.ledger = Ledger(root / "ledger.db", self.clock.wall)
        self.crew = Crew()
        self.crew.nights = {RUN: Night(RUN, NightTerms())}
        self.put()
        self.asks: list[Mapping[str, Any]] = [
            {"task": TASK, "state": "waiting_input", "detail": "Which colour?", "since": self.clock.wall()}
        ]
        self.looks = 0
        self.aside = SettingAside(self.ledger, self.clock, self.told.append, 3, Seen(self._who_asks, self._attended))

    def put(self, paused: PauseState | None = None, night: str = RUN) -> None:
        attempt = Attempt(1, AttemptState.RUNNING, 0.0, paused=paused)
        self.crew._leave(TASK)
        self.crew._enter(Task(TASK, 0, state=TaskState.RUNNING, epoch=1, attempt=attempt, night=night))

    async def _who_asks(self) -> list[Mapping[str, Any]]:
        self.looks += 1
        return self.asks

    async def _attended(self, _: tuple[str, int]) -> bool:
        return self.attached

    def after(self, seconds: float) -> list[Event]:
        """What is told once time has passed."""
        self.clock.now += seconds
        self.told.clear()

        async def step() -> None:
            self.aside.step(self.crew)
            if self.aside._look is not None:
                await self.aside._look

        asyncio.run(step())
        return self.told.copy()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    with contextlib.closing(found.ledger):
        yield found


ASIDE = PersonNeeded(TASK, 1, Question("Which colour?", 0, 3))


def test_a_person_has_a_minute_and_then_it_is_set_aside(place: Place) -> None:
    assert place.after(PATIENCE_S - 1) == []
    assert place.after(2) == [ASIDE]


def test_by_day_nobody_is_even_looked_at(place: Place) -> None:
    place.crew.nights = {}
    assert place.after(PATIENCE_S * 10) == [] and place.looks == 0


def test_a_task_of_no_night_is_left_alone_beside_one(place: Place) -> None:
    place.put(night="")
    assert place.after(PATIENCE_S * 10) == [] and place.looks == 1


def test_one_at_whom_somebody_sits_is_left_to_them(place: Place) -> None:
    place.attached = True
    assert place.after(PATIENCE_S * 10) == []


def test_who_lets_it_go_on_has_a_minute_to_answer(place: Place) -> None:
    place.put(paused=PauseState(Until.PERSON, 0.0, still=True))
    assert place.after(PATIENCE_S * 10) == []
    place.put()
    assert place.after(PATIENCE_S - 1) == []
    place.ledger.journal(TASK, 1, "set aside", {"question": "Which colour?"})
    assert place.after(2) == [replace(ASIDE, question=Question("Which colour?", 1, 3))]


def test_a_denial_is_a_question_once_it_repeats_in_a_night(place: Place) -> None:
    make, write = ["Bash: make"], ["Write: x"]
    tried = ((1, make), (2, make), (3, write))
    place.ledger.db.execute("PRAGMA foreign_keys = OFF")  # attempts alone are looked at
    for epoch, denials in tried:
        result = json.dumps({"agent": {"denials": denials}})
        sql = "INSERT INTO attempt (task, epoch, state, created, result) VALUES (?, ?, 'ended', 0, ?)"
        place.ledger.db.execute(sql, (TASK, epoch, result))
    asked = [place.aside.denied(place.crew, TASK, *one) for one in tried]
    assert asked == [None, Question("it is not allowed to use Bash: make", 0, 3), None]
    assert place.aside.denied(place.crew, TASK, 2, []) is None
    place.crew.nights = {}
    assert place.aside.denied(place.crew, TASK, 2, make) is None
