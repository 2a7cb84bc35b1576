"""Sets tasks of a night aside that need a person while nobody is there. By day nothing is set aside.

Who waits for a person is what `nightcrew status` shows as such. An agent in whose pane somebody is attached is left to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from supervisor.core.asking import Question
from supervisor.core.crew import Crew
from supervisor.core.errors import one_line
from supervisor.core.events import Event, PersonNeeded
from supervisor.core.states import AttemptState
from supervisor.core.task import Task
from supervisor.host.clock import Clock
from supervisor.ledger import journal, rows
from supervisor.ledger.ledger import Ledger

PATIENCE_S = 60.0
"""So long a person has to answer who is there after all, or who let it go on."""
EVERY_S = 2.0
QUESTION_MAX = 200
Key = tuple[str, int]
WhoAsks = Callable[[], Awaitable[list[Mapping[str, Any]]]]
"""The agents that wait for a person: `task`, `state`, `detail` and `since` (wall-clock seconds)."""
Attended = Callable[[Key], Awaitable[bool]]
"""Whether somebody is attached to the pane of an attempt."""


class SettingAside:
    """Of one supervisor. Belongs to the loop's thread."""

    def __init__(self, ledger: Ledger, clock: Clock, tell: Callable[[Event], None], ask_max: int) -> None:
        self._ledger = ledger
        self._clock = clock
        self._tell = tell
        self._ask_max = ask_max
        self._looked = -EVERY_S
        self._look: asyncio.Task[None] | None = None
        self._stood: dict[Key, float] = {}
        """When each was last seen to stand still, monotonic seconds."""
        self.who_asks: WhoAsks | None = None
        """To be given before a night is looked after."""
        self.attended: Attended | None = None

    def step(self, crew: Crew) -> None:
        """Look, unless no night goes on, the look before is still under way or was a moment ago."""
        now = self._clock.monotonic()
        busy = self._look is not None and not self._look.done()
        if not crew.nights or crew.stopped or busy or now - self._looked < EVERY_S or self.who_asks is None:
            return
        self._looked = now
        stand = {
            (task.id, task.epoch): now for task in crew.living.values() if task.attempt is not None and task.attempt.paused is not None
        }
        self._stood = {key: at for key, at in self._stood.items() if now - at < PATIENCE_S} | stand
        self._look = asyncio.get_running_loop().create_task(self._ask(crew, self.who_asks))

    async def _ask(self, crew: Crew, who_asks: WhoAsks) -> None:
        for one in await who_asks():
            task = crew.tasks.get(str(one["task"]))
            if task is None or not _may_be_set_aside(crew, task) or self._clock.wall() - one["since"] < PATIENCE_S:
                continue
            key = task.id, task.epoch
            if key not in self._stood and (self.attended is None or not await self.attended(key)):
                self._tell(PersonNeeded(*key, self._question(task.id, str(one["detail"] or one["state"]))))

    def _question(self, task: str, text: str) -> Question:
        return Question(one_line(text)[:QUESTION_MAX], journal.times_set_aside(self._ledger.db, task), self._ask_max)

    def denied(self, crew: Crew, task: str, epoch: int, denials: list[str]) -> Question | None:
        """What a person should say of an attempt of a night that failed for what it was not allowed, when that was so in the attempt
        before; else None."""
        known = crew.tasks.get(task)
        if not denials or known is None or known.night not in crew.nights:
            return None
        before = (rows.result(self._ledger.db, task, epoch - 1) or {}).get("agent") or {}
        if before.get("denials") != denials:
            return None
        return self._question(task, f"it is not allowed to use {', '.join(denials)}")


def _may_be_set_aside(crew: Crew, task: Task) -> bool:
    attempt = task.attempt
    return task.night in crew.nights and attempt is not None and attempt.state is AttemptState.RUNNING and attempt.paused is None
