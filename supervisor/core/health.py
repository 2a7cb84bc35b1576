"""Whether an outage goes on, as the crew keeps it: see `core.outage`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Outage:
    """One that goes on. Moments are monotonic seconds."""

    since: float
    why: str
    probe_at: float
    """When the next probe may start, if none lives."""
    provider: bool = False
    """The gateway says so, and says when it is over."""
    victims: frozenset[str] = frozenset()
    """Tasks whose attempts died in it."""
    probe: str = ""
    """The task that is started to see whether it is over."""
    failed: int = 0
    """Probes that died; while no provider serves anything, those that were started."""

    def words(self) -> str:
        """Why nothing else starts, in a person's words."""
        return f"an outage: {self.why}; one agent at a time tries whether it is over"


@dataclass(frozen=True, slots=True)
class Health:
    """What the crew knows of it."""

    deaths: tuple[tuple[float, str, str], ...] = ()
    """Moment, task and cause of the newest deaths, no older than two seconds when the newest came."""
    outage: Outage | None = None


WELL: Final = Health()
