"""Conversations of agents that go on in another attempt: whose it is, and what the agent is told first.

The transcript of a conversation is the agent's own; we keep its id, and the commit at which its work stood.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from enum import StrEnum

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

    def to_json(self) -> str:
        """The form in the ledger."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Origin:
        """What `to_json` wrote."""
        shape = json.loads(text)
        return cls(How(shape["how"]), *(shape[name] for name in ("session", "task", "epoch", "start")))


@dataclass(frozen=True, slots=True)
class Where:
    """Where an agent finds itself."""

    directory: str
    branch: str
    moved: bool
    """Before it was at another path."""


def is_session(text: str) -> bool:
    """Whether an agent may call its conversation so. The id becomes an argument of its command line and a part of a path: it names no
    option and leads nowhere."""
    return _SESSION.fullmatch(text) is not None and ".." not in text


def is_limited(reason: str) -> bool:
    """Whether an agent gave up, as it says itself, because a limit of the provider was spent."""
    return bool(_LIMITED.search(reason))


def told(origin: Origin, where: Where, prompt: str | None, *, own: bool, missed: str = "", stopped: str = "") -> str:
    """The first message of an agent that continues a conversation. `own`: it is the same task's, which was interrupted, or which `missed`
    its gate, as that text says, or was `stopped` by us, as that one says."""
    said = [
        f"You are now in {where.directory}, on the branch {where.branch}.",
        "Every file is as it was left, but those that git ignores are gone, and so is every process that was started.",
        *(["Paths of the worktree that you saw before are not yours any more: change nothing there."] if where.moved else []),
    ]
    if own and missed:
        return "\n\n".join([missed, " ".join(said)])
    if own:
        return " ".join([f"[nightcrew] {stopped or 'You were interrupted.'}", *said, "Go on with your task where you stopped."])
    begun = "goes on from" if origin.how is How.RESUME else "is a copy of that of"
    return " ".join([f"[nightcrew] This conversation {begun} the task {origin.task}.", *said]) + f"\n\n{prompt or ''}"
