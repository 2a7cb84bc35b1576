"""What headless agents print, read while they run: once a second, and when somebody asks, only what has grown of each log, in a thread, at
most CHUNK of one a time.

Where the runner has capped a log nothing more is heard until the attempt ends. After a restart of the supervisor a log is read again from
its beginning, so nothing needs to be kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from agents import protocols
from agents.kinds import of_task
from agents.protocols import Live
from agents.status import AgentState, Evidence, Source
from supervisor.core import records
from supervisor.core.errors import NightcrewError
from supervisor.daemon.agent_evidence import AgentEvidence
from supervisor.daemon.jobs import Doors, Jobs
from supervisor.host import files, foreign
from supervisor.host.clock import Clock

Key = tuple[str, int]
EVERY_S = 0.9
"""A little less than the loop's tick, so that none is left out."""
STAYS_S = 45.0
"""Time limit for an agent to exit after its result. Claude Code takes 2 s, and waits for its background commands, which count as work
here."""
CHUNK = 2**20
"""Bytes of one log that are read at one look. A longer line is left out."""


@dataclass(slots=True)
class Stream:
    """How far one log was read, and what it has said by then. Belongs to one thread a time."""

    log: Path
    protocol: str
    live: Live = field(default_factory=Live)
    at: float = 0.0
    """When the newest line was written that told of its state, wall-clock seconds."""
    printed: float = 0.0
    """When anything was written."""
    _rests: tuple[int, float] | None = None
    """`live.heard` and the monotonic time when it was first seen to have given its result; None: it has not, or works again."""
    _begin: int = 0
    _inside: bool = False
    """A line that is too long is being passed by."""

    def read(self) -> bool:
        """One look; whether there may be more to read at once. Raises ToolFailed."""
        found = foreign.read_on(self.log, self._begin, CHUNK)
        if found is None:
            return False
        data, written = found
        self.printed = written
        end = data.rfind(b"\n") + 1
        lines = data[data.find(b"\n") + 1 : end] if self._inside else data[:end]
        if end:
            self._begin, self._inside = self._begin + end, False
        elif len(data) == CHUNK:
            self._begin, self._inside = self._begin + CHUNK, True
        before, self.live = self.live, protocols.follow(self.protocol, self.live, lines)
        self.at = written if self.live.heard != before.heard else self.at
        return len(data) == CHUNK

    def stays(self, now: float) -> bool:
        """Return whether its agent has given its result STAYS_S before `now` (monotonic) and has neither left nor gone on."""
        if self.live.state is not AgentState.IDLE or self.live.background:
            self._rests = None
        elif self._rests is None or self._rests[0] != self.live.heard:
            self._rests = self.live.heard, now
        return self._rests is not None and now - self._rests[1] >= STAYS_S

    def evidence(self, now: float) -> Evidence | None:
        """What it says of its agent's state; no clock but ours is believed to be ahead of ours."""
        if self.live.state is None:
            return None
        return Evidence(Source.PROTOCOL, self.live.state, min(self.at, now), self.live.detail, sequence=self.live.heard)


class AgentStreams:
    """The streams of one supervisor. Belongs to the loop's thread, but for what a look reads."""

    def __init__(self, doors: Doors, jobs: Jobs, clock: Clock, evidence: AgentEvidence) -> None:
        self._doors = doors
        self._jobs = jobs
        self._clock = clock
        self._evidence = evidence
        self._known: dict[Key, Stream | None] = {}
        self._look: asyncio.Task[None] | None = None
        self._looked = -EVERY_S

    def step(self, live: Iterable[Key]) -> None:
        """Look at these attempts, the ones that run now, unless the look before is still under way or was a moment ago."""
        now = self._clock.monotonic()
        if now - self._looked < EVERY_S or (self._look is not None and not self._look.done()):
            return
        self._looked = now
        self._known = {key: self._known[key] if key in self._known else self._new(key) for key in live}
        streams = {key: stream for key, stream in self._known.items() if stream is not None}
        if streams:
            self._look = asyncio.get_running_loop().create_task(self._read(streams))

    async def fresh(self, key: Key) -> None:
        """Look at one attempt at once: somebody asks for it."""
        stream = self._known.get(key)
        if stream is None:
            return
        while self._look is not None and not self._look.done():
            await asyncio.wait([self._look])
        self._look = asyncio.get_running_loop().create_task(self._read({key: stream}))
        await asyncio.wait([self._look])

    def of(self, key: Key) -> Live:
        """What an attempt has said by now; empty for one that is not followed."""
        stream = self._known.get(key)
        return stream.live if stream is not None else Live()

    def printed(self, key: Key) -> float:
        """When an attempt printed anything last, wall-clock seconds; 0 when that is not known."""
        stream = self._known.get(key)
        return stream.printed if stream is not None else 0.0

    def _new(self, key: Key) -> Stream | None:
        spec = self._doors.ledger.launch_row(key[0]).spec
        kind = of_task(spec.kind)
        if kind.owns_terminal(interactive=spec.interactive) or kind.protocol not in protocols.PROTOCOLS:
            return None
        return Stream(self._doors.home.attempt(*key) / "stdout.log", kind.protocol)

    async def _read(self, streams: dict[Key, Stream]) -> None:
        try:
            await self._jobs.within(self._jobs.stoppers, _read_all, list(streams.values()))
            stay = [key for key, stream in streams.items() if stream.stays(self._clock.monotonic())]
            if stay:
                await self._jobs.within(self._jobs.stoppers, self._finish, stay)
        except NightcrewError as error:  # a look that failed is no evidence; the next one is in a second
            self._jobs.say(f"what agents print could not be read: {error.line()}")
        now = self._clock.wall()
        for key, stream in streams.items():
            if (piece := stream.evidence(now)) is not None:
                self._evidence.printed(key, piece)

    def _finish(self, keys: list[Key]) -> None:
        """Have the runners of these attempts end their agents. May be repeated."""
        for key in keys:
            files.atomic_write(self._doors.home.attempt(*key) / records.FINISHED, b"", durable=False)


def _read_all(streams: list[Stream]) -> None:
    failure: NightcrewError | None = None
    for stream in streams:
        try:
            stream.read()
        except NightcrewError as error:
            failure = error
    if failure is not None:
        raise failure
