"""Look after the agents that live: their evidence, streams, texts, limits, logins, sessions and commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.kinds import of_task
from supervisor.host.clock import Clock
from supervisor.kernel.errors import HostError, NightcrewError, NotFound
from supervisor.kernel.events import Event
from supervisor.kernel.names import attempt_name
from supervisor.kernel.settings import Settings
from supervisor.sandbox.homes import SharedLogins
from supervisor.sandbox.policy import Tier
from supervisor.server.attempts.jobs import Doors, Jobs, Key
from supervisor.server.attempts.limits import Measuring, Watching
from supervisor.server.attempts.observe import AgentEvidence, AgentStreams, LookedAt
from supervisor.server.attempts.sending import Sending
from supervisor.server.attempts.sessions import Session, has
from supervisor.server.wakeups import Follower
from supervisor.store.conversations import Held
from supervisor.store.rows import AttemptRow, LaunchRow
from worktrees import collect_work, private_repository
from worktrees.environments import Environment
from worktrees.repository import resolve


class Agents:
    """Of one supervisor. Belongs to the loop's thread."""

    def __init__(self, doors: Doors, jobs: Jobs, clock: Clock, settings: Settings, tell: Callable[[Event], None]) -> None:
        self.asked = asyncio.Event()
        """An agent has just said that it needs a person."""
        self.evidence = AgentEvidence(doors.home, clock, self.asked.set)
        self.streams = AgentStreams(doors, jobs, clock, self.evidence)
        self.sending = Sending(doors, jobs, clock, self.evidence, self.streams)
        self.looked_at: dict[Key, LookedAt] = {}
        """The newest look at each agent that rests or asks, for `needs`."""
        self.publishing = Publishing(doors, jobs, clock)
        self.sessions = SessionDesk(doors, jobs, clock)
        measuring = Measuring(doors, jobs, clock, settings, tell)
        watching = Watching(doors, jobs, clock, tell, measuring.cpu_s)
        self._steps = (measuring, watching, self.streams, self.publishing, LoginDesk(doors, jobs, clock), self.sessions)

    def step(self, live: Sequence[Key]) -> None:
        """Look after the attempts that live, after each look at them."""
        for part in self._steps:
            part.step(live)


# Shared logins
# -------------
# A login that an agent's command line renews is taken from the attempt's copy of the home, and given to the person and to every other
# agent. A failure loses nothing: the copy stays, and the end of the attempt tries again.


class LoginDesk(Follower[Path]):
    """Compare the logins of the agents that live."""

    every_s = 2.0
    failed = "a renewed login could not be kept yet"

    def __init__(self, doors: Doors, jobs: Jobs, clock: Clock) -> None:
        super().__init__(doors, jobs, clock)
        self._shared = SharedLogins()

    def _follow(self, key: Key) -> Path:
        return self._doors.home.attempt(*key)

    async def _look(self, followed: Mapping[Key, Path]) -> None:
        await self._jobs.within(self._jobs.stoppers, self._shared.share, list(followed.values()), self._clock.wall() * 1000)


# Sessions
# --------
# What living agents in their own interface took is compared with what the gateway saw, also before a person sends a text.


HELD_MAX = 200
"""Files that are held open at most: a process may have 1,024."""


@dataclass(slots=True)
class _Session:
    row: AttemptRow
    launch: LaunchRow
    session: Session


class SessionDesk(Follower[_Session]):
    """Count the tokens of the sessions of agents that live."""

    every_s = 15.0
    failed = "the tokens of a session could not be counted yet"

    def _follow(self, key: Key) -> _Session | None:
        row, launch = self._doors.ledger.attempt(*key), self._doors.ledger.launch_row(key[0])
        kind = of_task(launch.spec.kind)
        if row is None or not has(kind, interactive=launch.spec.interactive):
            return None
        held = sum(one is not None for one in self._known.values())
        return _Session(row, launch, Session(kind.protocol, lives=True, holds=held < HELD_MAX))

    def _leave(self, followed: _Session) -> None:
        followed.session.close()

    async def _look(self, followed: Mapping[Key, _Session]) -> None:
        asked = [(one, self._jobs.conversation(one.row, one.launch)) for one in followed.values()]
        uncounted = await self._jobs.within(self._jobs.stoppers, self._compare, asked)
        for (one, _), said in zip(asked, uncounted, strict=True):
            self._jobs.tell_session(one.row, one.session, said)

    def _compare(self, asked: Sequence[tuple[_Session, Held | None]]) -> list[str]:
        return [self._doors.ending.count_session(one.row, one.launch, held, one.session) for one, held in asked]


# Commits
# -------
# Commits of living confined agents arrive in the person's repository: its branch follows that of each agent's own repository. Each look
# asks whether the files that hold the agent's branch changed; only then a helper starts. A failure loses nothing: the end of the attempt
# secures all commits.


PAUSE_S = 60.0
"""Before another try with an attempt whose commits could not be shown: an agent can make each try slow."""


@dataclass(slots=True)
class _Branch:
    made: Environment
    seen: tuple[object, ...] = ()
    """What held the branch when it was looked at last."""
    not_before: float = 0.0
    """On the monotonic clock: one that failed is left alone for a while."""


class Publishing(Follower[_Branch]):
    """Publish what living agents have committed."""

    every_s = 2.0
    failed = "commits could not be shown yet"

    async def tip(self, key: Key) -> tuple[str, str]:
        """The branch of a living attempt and its newest commit, once that is in the person's repository. Raises NotFound for an attempt
        without a worktree, and what `securing.publish` raises."""
        row = self._doors.ledger.attempt(*key)
        made = self._doors.environments.of(row, self._doors.ledger.launch_row(key[0]).root) if row is not None else None
        if made is None:
            raise NotFound("no commit of", on=attempt_name(*key), why="it has no worktree")
        await self._idle()  # two helpers of one attempt would meet
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._task = asyncio.get_running_loop().create_task(self._found(made, found))
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

    def _follow(self, key: Key) -> _Branch | None:
        row = self._doors.ledger.attempt(*key)
        if row is None or not row.tier or Tier(row.tier) is Tier.NONE:
            return None
        made = self._doors.environments.of(row, self._doors.ledger.launch_row(key[0]).root)
        return _Branch(made) if made is not None and made.private is not None else None

    async def _look(self, followed: Mapping[Key, _Branch]) -> None:
        for key, one in followed.items():
            if self._clock.monotonic() < one.not_before:
                continue
            try:
                await self._jobs.within(self._jobs.stoppers, _publish, one)
            except HostError:  # mostly that it ended meanwhile: whoever collects it says what is wrong
                one.not_before = self._clock.monotonic() + PAUSE_S
            except NightcrewError as error:
                one.not_before = self._clock.monotonic() + PAUSE_S
                self._jobs.say(f"{attempt_name(*key)}: its {self.failed}: {error.line()}")


def _tip(made: Environment) -> str:
    if made.private is not None:
        collect_work.publish(made)
    return resolve(made.repo, made.branch_ref)


def _publish(one: _Branch) -> None:
    before, one.seen = one.seen, private_repository.branch_now(one.made.path, one.made.branch)
    at_start = not before and one.seen[0] == f"{one.made.base}\n".encode()
    if one.seen != before and not at_start:
        now, one.seen = one.seen, ()  # so that it is tried again when it fails
        collect_work.publish(one.made)
        one.seen = now
