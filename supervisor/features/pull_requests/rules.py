"""A result on its way to a host: what is known of its pull request, and what one push may do. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from supervisor.kernel.errors import Refused, UsageError

ROUNDS_MAX = 5
"""How often an agent is given what came back from one pull request, unless a person says another number."""


class Tool(StrEnum):
    """What opens a pull request."""

    GH = "gh"
    GLAB = "glab"
    LINK = "link"
    """Nothing: the person follows a link."""


class State(StrEnum):
    """Of a pull request, as its host says."""

    NONE = ""
    OPEN = "open"
    CLOSED = "closed"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class PullRequest:
    """One branch of one remote that holds the work of a task, and of the tasks that went on with it."""

    id: int
    task: str
    """The newest of them."""
    project: str
    remote: str
    """Its URL, without user and password."""
    branch: str
    base: str
    """What the remote calls the branch that it is to be merged into."""
    intent: str
    """The commit that was last about to be pushed."""
    pushed: str
    """The commit at which our last push left the branch; empty: none ended."""
    tool: Tool
    number: int
    """The host's; 0: none is known."""
    link: str
    state: State
    draft: bool
    rounds: int
    """How often its agent was given what came back."""
    changed: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Push, when the branch is at `expected`; empty: when the remote has none of that name."""

    expected: str


def short_branch(task: str, *, taken: bool) -> str:
    """Return what a remote calls the branch of a task's result: `nightcrew/lint`; with the random part of its run, `nightcrew/lint-k3f9`,
    where another task's result is `taken` there by that name."""
    run, _, name = task.partition("/")
    return f"nightcrew/{name}-{run.rpartition('-')[2]}" if taken else f"nightcrew/{name}"


def lease(known: PullRequest | None, branch: str, there: str, commit: str) -> Lease | None:
    """How a branch that is at `there` on the remote (empty: it has none) may be moved to `commit`; None: it is there.

    Only what we pushed ourselves is ever replaced. A push that was begun and of which nobody knows the end counts as ours when the branch
    is at exactly its commit. Raises Refused.
    """
    if there == commit:
        return None
    ours = {one for one in (known.pushed, known.intent) if one} if known is not None else set()
    if not there or there in ours:
        return Lease(there)
    why = f"the remote has a branch of that name, at {there[:12]}, which is not what we pushed"
    if known is not None and known.pushed:
        why = f"it is at {there[:12]} there, and our last push left it at {known.pushed[:12]}: somebody else pushed to it"
    raise Refused(
        "not pushed", on=branch, why=why, kept="that branch, and the result", hint="git fetch, look what is there; or --branch OTHER"
    )


def refuse_ended(state: State, link: str) -> None:
    """Raises Refused for a pull request that its host has closed or merged."""
    if state in (State.CLOSED, State.MERGED):
        hint = "open it again there, or make another one with --branch OTHER"
        raise Refused("not done", on=link, why=f"that pull request is {state}", kept="the result", hint=hint)


def rounds(text: int | None) -> int:
    """A bound on how often an agent is given what came back. Raises UsageError."""
    if text is not None and not 1 <= text <= 100:
        raise UsageError("not a number of rounds", on=str(text), why="1 to 100 are")
    return ROUNDS_MAX if text is None else text
