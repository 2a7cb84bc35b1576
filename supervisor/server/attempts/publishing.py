"""Commits of living confined agents arrive in the person's repository: its branch follows that of each agent's own repository.

What is looked at every two seconds is whether the files that hold the agent's branch changed; only then is a helper started. Whatever fails
is no loss: the end of the attempt secures all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from supervisor.host.clock import Clock
from supervisor.kernel.errors import HostError, NightcrewError, NotFound
from supervisor.kernel.records import attempt_name
from supervisor.sandbox.policy import Tier
from supervisor.server.attempts.jobs import Doors, Jobs
from worktrees import collect_work, private_repository
from worktrees.environments import Environment
from worktrees.repository import resolve

Key = tuple[str, int]
EVERY_S = 2.0
PAUSE_S = 60.0
"""Before another try with an attempt whose commits could not be shown: an agent can make each try slow."""


@dataclass(slots=True)
class _Followed:
    made: Environment
    seen: tuple[object, ...] = ()
    """What held the branch when it was looked at last."""
    not_before: float = 0.0
    """On the monotonic clock: one that failed is left alone for a while."""


class Publishing:
    """The publisher of one supervisor. `step` belongs to the loop's thread."""

    def __init__(self, doors: Doors, jobs: Jobs, clock: Clock) -> None:
        self._ledger = doors.ledger
        self._environments = doors.environments
        self._jobs = jobs
        self._clock = clock
        self._followed: dict[Key, _Followed | None] = {}
        self._round: asyncio.Task[None] | None = None
        self._began = -EVERY_S

    def step(self, live: Iterable[Key]) -> None:
        """Publish what these attempts, the ones that run now, have committed, unless the round before is under way or was a moment ago."""
        now = self._clock.monotonic()
        if now - self._began < EVERY_S or (self._round is not None and not self._round.done()):
            return
        self._began = now
        self._followed = {key: self._followed[key] if key in self._followed else self._new(key) for key in live}
        followed = {key: one for key, one in self._followed.items() if one is not None}
        if followed:
            self._round = asyncio.get_running_loop().create_task(self._published(followed))

    async def tip(self, key: Key) -> tuple[str, str]:
        """The branch of a living attempt and its newest commit, once that is in the person's repository. Raises NotFound for an attempt
        without a worktree, and what `securing.publish` raises."""
        row = self._ledger.attempt(*key)
        made = self._environments.of(row, self._ledger.launch_row(key[0])) if row is not None else None
        if made is None:
            raise NotFound("no commit of", on=attempt_name(*key), why="it has no worktree")
        while self._round is not None and not self._round.done():  # two helpers of one attempt would meet
            await asyncio.wait([self._round])
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._round = asyncio.get_running_loop().create_task(self._found(made, found))
        return made.branch, await found

    async def _found(self, made: Environment, found: asyncio.Future[str]) -> None:
        try:
            tip = await self._jobs.within(self._jobs.stoppers, _tip, made)
        except NightcrewError as error:
            if not found.done():
                found.set_exception(error)
        else:
            if not found.done():
                found.set_result(tip)

    def _new(self, key: Key) -> _Followed | None:
        row = self._ledger.attempt(*key)
        if row is None or not row.tier or Tier(row.tier) is Tier.NONE:
            return None
        made = self._environments.of(row, self._ledger.launch_row(key[0]))
        return _Followed(made) if made is not None and made.private is not None else None

    async def _published(self, followed: dict[Key, _Followed]) -> None:
        for key, one in followed.items():
            if self._clock.monotonic() < one.not_before:
                continue
            try:
                await self._jobs.within(self._jobs.stoppers, _publish, one)
            except HostError:  # mostly that it ended meanwhile: whoever collects it says what is wrong
                one.not_before = self._clock.monotonic() + PAUSE_S
            except NightcrewError as error:
                one.not_before = self._clock.monotonic() + PAUSE_S
                self._jobs.say(f"{attempt_name(*key)}: its commits could not be shown yet: {error.line()}")


def _tip(made: Environment) -> str:
    if made.private is not None:
        collect_work.publish(made)
    return resolve(made.repo, made.branch_ref)


def _publish(one: _Followed) -> None:
    before, one.seen = one.seen, private_repository.branch_now(one.made.path, one.made.branch)
    at_start = not before and one.seen[0] == f"{one.made.base}\n".encode()
    if one.seen != before and not at_start:
        now, one.seen = one.seen, ()  # so that it is tried again when it fails
        collect_work.publish(one.made)
        one.seen = now
