"""The agents that live: what is known of them, and what they are given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from supervisor.host.clock import Clock
from supervisor.kernel.events import Event
from supervisor.kernel.spec import Settings
from supervisor.server.attempts.isolation import LoginDesk
from supervisor.server.attempts.jobs import Doors, Jobs, Key
from supervisor.server.attempts.limits import Measuring, Watching
from supervisor.server.attempts.observe import AgentEvidence, AgentStreams, LookedAt
from supervisor.server.attempts.publishing import Publishing
from supervisor.server.attempts.sending import Sending
from supervisor.server.attempts.session_desk import SessionDesk


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
