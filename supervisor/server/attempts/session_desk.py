"""Compares what living agents in their own interface took with what the gateway saw: every EVERY_S, and before a person sends a text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from agents.kinds import of_task
from supervisor.host.clock import Clock
from supervisor.kernel.errors import NightcrewError
from supervisor.server.attempts.jobs import Doors, Jobs
from supervisor.server.attempts.sessions import Session, has
from supervisor.store.conversations import Held
from supervisor.store.rows import AttemptRow, LaunchRow

Key = tuple[str, int]
EVERY_S = 15.0
HELD_MAX = 200
"""Files that are held open at most: a process may have 1,024."""


@dataclass(slots=True)
class _Followed:
    """What is known of a living agent."""

    row: AttemptRow
    launch: LaunchRow
    session: Session


@dataclass(slots=True)
class SessionDesk:
    """The sessions of one supervisor's living agents. It belongs to the loop's thread."""

    doors: Doors
    jobs: Jobs
    clock: Clock
    _known: dict[Key, _Followed | None] = field(default_factory=dict)
    _followed: int = 0
    _round: asyncio.Task[None] | None = None
    _began: float = -EVERY_S

    def step(self, live: Iterable[Key]) -> None:
        """Compare these attempts, the ones that run now, unless the round before is under way or was a moment ago."""
        now = self.clock.monotonic()
        if now - self._began < EVERY_S or self._is_looking:
            return
        self._began = now
        living = set(live)
        for key in self._known.keys() - living:
            if (gone := self._known.pop(key)) is not None:
                gone.session.close()
                self._followed -= 1
        for key in living - self._known.keys():
            self._known[key] = self._new(key)
        self._look([one for one in self._known.values() if one is not None])

    async def fresh(self, keys: Iterable[Key]) -> None:
        """Compare these living attempts at once: a person is about to have them work."""
        while self._round is not None and self._is_looking:
            await asyncio.wait([self._round])
        asked = list(keys)
        self._known |= {key: self._new(key) for key in asked if key not in self._known}
        self._look([one for key in asked if (one := self._known[key]) is not None])
        if self._round is not None:
            await asyncio.wait([self._round])

    @property
    def _is_looking(self) -> bool:
        return self._round is not None and not self._round.done()

    def _new(self, key: Key) -> _Followed | None:
        row, launch = self.doors.ledger.attempt(*key), self.doors.ledger.launch_row(key[0])
        kind = of_task(launch.spec.kind)
        if row is None or not has(kind, interactive=launch.spec.interactive):
            return None
        self._followed += 1
        return _Followed(row, launch, Session(kind.protocol, lives=True, holds=self._followed <= HELD_MAX))

    def _look(self, followed: list[_Followed]) -> None:
        if followed:
            held = [self.jobs.conversation(one.row, one.launch) for one in followed]
            self._round = asyncio.get_running_loop().create_task(self._compared(list(zip(followed, held, strict=True))))

    async def _compared(self, followed: list[tuple[_Followed, Held | None]]) -> None:
        try:
            uncounted = await self.jobs.within(self.jobs.stoppers, self._compare, followed)
            for (one, _), said in zip(followed, uncounted, strict=True):
                self.jobs.tell_session(one.row, one.session, said)
        except NightcrewError as error:  # the next look, or the end, counts it
            self.jobs.say(f"the tokens of a session could not be counted yet: {error.line()}")

    def _compare(self, followed: list[tuple[_Followed, Held | None]]) -> list[str]:
        return [self.doors.ending.count_session(one.row, one.launch, held, one.session) for one, held in followed]
