"""Texts that people send to agents: their states, and what the supervisor keeps of each.

A text is typed at most once. That it will be typed is committed before tmux is asked, so a supervisor that dies in between leaves
`typing`; the next one asks tmux whether it was typed. A text that was typed is not kept: size and digest are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from supervisor.core.units import rfc3339


class DeliveryState(StrEnum):
    """How far a text has come."""

    PENDING = "pending"
    """It waits until the agent can take it."""
    TYPING = "typing"
    """tmux is being asked to type it."""
    CONFIRMED = "confirmed"
    """It was typed, and the agent's own record says that a turn began."""
    UNCONFIRMED = "unconfirmed"
    """It was typed, or may have been; nothing says that the agent took it. It is not typed again."""
    DROPPED = "dropped"
    """It was not typed: its task ended first."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One text for one task."""

    id: int
    task: str
    epoch: int | None
    """The attempt that it was typed into; None while it waits."""
    state: DeliveryState
    text: str
    """As it will be typed; empty once it was typed or dropped."""
    size: int
    """Bytes of UTF-8."""
    digest: str
    """SHA-256 of these bytes, in hex."""
    reason: str
    """Why it waits, or why nothing confirms it."""
    created: float
    changed: float
    """Wall clock, seconds since 1970."""

    def shape(self) -> dict[str, Any]:
        """As `--json` prints it: without its words."""
        return {
            "id": self.id,
            "task": self.task,
            "epoch": self.epoch,
            "state": str(self.state),
            "bytes": self.size,
            "sha256": self.digest,
            "why": self.reason,
            "sent": rfc3339(self.created),
        }
