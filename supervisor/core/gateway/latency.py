"""Raises agents whose turns wait much longer than the others' of their class: their weight is multiplied, by RAISE_MOST at most. Pure.

Shares are by tokens, so an agent with long prompts waits longer for each turn than one with short ones. A turn's wait counts from its
arrival, or from when its agent was last sent one: who sends many at once waits for itself. It is measured times the agent's weight: who
has half the weight is meant to wait twice as long.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

HALF_LIFE_S = 300.0
"""What was measured so long ago counts half."""
LOOK_S = 10.0
"""Between two comparisons."""
FEW = 3.0
"""So many turns of an agent, and so many agents, are needed for a comparison."""
MUCH = 2.0
"""An agent is raised when its turns wait longer than this times the median of its class."""
LEAST_S = 5.0
"""A shorter wait raises nobody."""
RAISE_MOST = 1.5
"""An agent at its bound takes half as much again as its share: so many times as much is what the others can lose to it."""


@dataclass(slots=True)
class Waits:
    """One agent's. Sums that halve every HALF_LIFE_S, as of `at`."""

    at: float
    sent_at: float = float("-inf")
    seconds: float = 0.0
    weighed: float = 0.0
    turns: float = 0.0
    raised: float = 1.0

    def fade(self, now: float) -> None:
        """Bring the sums to `now`."""
        left = 0.5 ** (max(0.0, now - self.at) / HALF_LIFE_S)
        self.seconds, self.weighed, self.turns, self.at = self.seconds * left, self.weighed * left, self.turns * left, now

    @property
    def mean_s(self) -> float:
        """How long its turns wait."""
        return self.seconds / self.turns if self.turns else 0.0


class Latency:
    """The agents of one class in one queue. `now` is monotonic seconds."""

    __slots__ = ("_look_at", "agents", "median_s")

    def __init__(self) -> None:
        self.agents: dict[str, Waits] = {}
        self.median_s = 0.0
        """Of what the agents' turns wait at weight 1, when it was last compared."""
        self._look_at = float("-inf")

    def raised(self, agent: str) -> float:
        """By what its weight is multiplied, 1 to RAISE_MOST."""
        waits = self.agents.get(agent)
        return waits.raised if waits is not None else 1.0

    def sent(self, agent: str, arrived_at: float, weight: float, now: float, *, counts: bool = True) -> None:
        """A turn of the agent was sent. Without `counts` its wait says nothing of the queue: it was sent again, or its own cap held it."""
        waits = self.agents.get(agent)
        if waits is None:
            waits = self.agents[agent] = Waits(now)
        if counts:
            seconds = max(0.0, now - max(arrived_at, waits.sent_at))
            waits.fade(now)
            waits.seconds, waits.weighed, waits.turns = waits.seconds + seconds, waits.weighed + seconds * weight, waits.turns + 1
        waits.sent_at = now
        if now >= self._look_at:
            self._look(now)

    def _look(self, now: float) -> None:
        """Compare all. Who has not been sent anything for long is forgotten."""
        self._look_at = now + LOOK_S
        for waits in self.agents.values():
            waits.fade(now)
        self.agents = {name: waits for name, waits in self.agents.items() if waits.turns > 1 / 16 or now - waits.sent_at < HALF_LIFE_S}
        known = [waits for waits in self.agents.values() if waits.turns >= FEW]
        self.median_s = statistics.median(_weighed_s(waits) for waits in known) if len(known) >= FEW else float("inf")
        bound = max(MUCH * self.median_s, LEAST_S)
        for waits in self.agents.values():
            enough = waits.turns >= FEW
            waits.raised = min(RAISE_MOST, max(1.0, _weighed_s(waits) / bound)) if enough else 1.0


def _weighed_s(waits: Waits) -> float:
    return waits.weighed / waits.turns
