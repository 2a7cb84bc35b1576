"""The agents and their clients. The package's docstring says how they behave and where the numbers are from."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.bench.fairness.simulation import AdmissionPolicy, Timeline, Turn
from supervisor.core.states import TaskClass

RETRIES = 10
LONGEST_RETRY_AFTER = 60
"""Claude Code 2.1 waits out 60 s and gives up at 61 (measured, gateway field notes 1.1)."""
RETRY_JITTER_S = 0.2
BYTES_PER_TOKEN = (3.0, 4.2)
FIRST_BYTE_S = (1.0, 3.0)
LEAST_TOKENS = 50
"""No turn is smaller, neither way."""


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent's habits."""

    name: str
    mean_input: float
    mean_output: float = 500.0
    sigma: float = 0.4
    """Of the lognormal around both means; 0: every turn is the mean."""
    pause_s: float = 1.0
    """Mean pause between two turns of a stream, exponential."""
    every_s: float | None = None
    """A turn is due so often, whether or not the one before is done; then it follows at once. None: closed loop."""
    streams: int = 1
    """Turns that it has open at once."""
    task_class: TaskClass = TaskClass.NORMAL


class _Stream:
    """One stream of an agent. Its turns and the waits of its client are drawn from two sources, so that neither changes the other."""

    def __init__(self, agent: Agent, seed: int, index: int) -> None:
        self.agent = agent
        self._draw = random.Random(f"{seed}/{agent.name}/{index}")  # noqa: S311 - a simulation, not a secret
        self._wait = random.Random(f"{seed}/{agent.name}/{index}/wait")  # noqa: S311 - the same
        self._bytes_per_token = random.Random(f"{seed}/{agent.name}").uniform(*BYTES_PER_TOKEN)  # noqa: S311 - the same
        self._first = self._draw.random()
        self._begun = 0

    def next_at(self, now: float) -> float:
        """When its next turn begins, now that it has none."""
        if self.agent.every_s is None:
            return now + self._draw.expovariate(1 / self.agent.pause_s)
        return max(now, (self._first + self._begun) * self.agent.every_s)

    def due(self, before: float) -> int:
        """How many turns an open loop wants to begin before then."""
        return 0 if self.agent.every_s is None else math.ceil(before / self.agent.every_s - self._first)

    def turn(self, number: int, now: float) -> Turn:
        """Its next turn."""
        self._begun += 1
        tokens = self._around(self.agent.mean_input)
        return Turn(
            agent=self.agent.name,
            task_class=self.agent.task_class,
            number=number,
            input=tokens,
            output=self._around(self.agent.mean_output),
            body_bytes=round(tokens * self._bytes_per_token * self._draw.uniform(0.95, 1.05)),
            first_byte_s=self._draw.uniform(*FIRST_BYTE_S),
            born=now,
        )

    def jitter(self) -> float:
        """Seconds that its client waits longer than it was told to."""
        return self._wait.uniform(0, RETRY_JITTER_S)

    def _around(self, mean: float) -> int:
        sigma = self.agent.sigma
        return max(LEAST_TOKENS, round(mean * math.exp(self._draw.gauss(0, sigma) - sigma * sigma / 2)))


class ClientStreams:
    """All agents at work. Turns begin before `until_s`; those that are open then are carried to their end."""

    def __init__(self, timeline: Timeline, agents: Sequence[Agent], seed: int, until_s: float) -> None:
        self.turns: list[Turn] = []
        """Every turn that was ever begun."""
        self.refusals: list[float] = []
        """When a client got 429."""
        self.open: set[int] = set()
        """Numbers of turns that have not ended."""
        self._timeline, self._until = timeline, until_s
        self._streams = [_Stream(agent, seed, index) for agent in agents for index in range(agent.streams)]
        self._of: dict[int, _Stream] = {}

    def start(self, policy: AdmissionPolicy) -> None:
        """Let every stream plan its first turn; all requests go to `policy`."""
        self._policy = policy
        for stream in self._streams:
            self._plan(stream)

    def refused(self, turn: Turn, retry_after: int) -> None:
        """Its client waits and comes again, or gives up."""
        self.refusals.append(self._timeline.now)
        turn.refusals += 1
        if turn.refusals > RETRIES or retry_after > LONGEST_RETRY_AFTER:
            turn.failed = True
            self._over(turn)
        else:
            self._timeline.after(retry_after + self._of[turn.number].jitter(), lambda: self._policy.arrived(turn))

    def served(self, turn: Turn) -> None:
        """Its client has everything."""
        self._over(turn)

    def offered(self) -> int:
        """Turns that open-loop agents wanted to begin before the end."""
        return sum(stream.due(self._until) for stream in self._streams)

    def _plan(self, stream: _Stream) -> None:
        when = stream.next_at(self._timeline.now)
        if when < self._until:
            self._timeline.at(when, lambda: self._begin(stream))

    def _begin(self, stream: _Stream) -> None:
        turn = stream.turn(len(self.turns), self._timeline.now)
        self.turns.append(turn)
        self.open.add(turn.number)
        self._of[turn.number] = stream
        self._policy.arrived(turn)

    def _over(self, turn: Turn) -> None:
        if turn.number not in self.open:
            raise RuntimeError(f"turn {turn.number} of {turn.agent} ended twice")
        self.open.remove(turn.number)
        turn.ended_at = self._timeline.now
        self._plan(self._of.pop(turn.number))
