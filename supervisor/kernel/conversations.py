"""Conversations that go on in another attempt, and texts that people send to agents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from supervisor.kernel.format import rfc3339

# Conversations
# -------------
# Conversations of agents that go on in another attempt: whose it is, and what the agent is told first.
#
# The transcript of a conversation is the agent's own; we keep its id, and the commit at which its work stood.


COULD_NOT = "could not go on with its conversation"
"""How the cause of an attempt's end begins that is then run again from the beginning."""
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LIMITED = re.compile(r"\b429\b|rate[ _-]?limit|usage[ _-]?limit|limit (?:was |is )?(?:reached|exceeded)|quota|overloaded", re.IGNORECASE)


class How(StrEnum):
    """How a conversation is continued."""

    RESUME = "resume"
    """The same one, under its id: nobody else may at the same time."""
    FORK = "fork"
    """A copy, under a new id."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The conversation that an attempt continues."""

    how: How
    session: str
    """Its id, as the agent calls it."""
    task: str
    epoch: int
    """The attempt that had it last."""
    start: str
    """The commit at which that one's work stood."""


def is_session(text: str) -> bool:
    """Whether an agent may call its conversation so. The id becomes an argument of its command line and a part of a path: it names no
    option and leads nowhere."""
    return _SESSION.fullmatch(text) is not None and ".." not in text


def is_limited(reason: str) -> bool:
    """Whether an agent gave up, as it says itself, because a limit of the provider was spent."""
    return bool(_LIMITED.search(reason))


# Deliveries
# ----------
# Texts that people send to agents: their states, and what the supervisor keeps of each.
#
# A text is typed at most once. That it will be typed is committed before tmux is asked, so a supervisor that dies in between leaves
# `typing`; the next one asks tmux whether it was typed. A text that was typed is not kept: size and digest are.


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


@dataclass(frozen=True, slots=True)
class Remarks:
    """Remarks on a pull request that a text holds: its row in the ledger, and the keys of the remarks."""

    pull: int
    keys: tuple[str, ...]
