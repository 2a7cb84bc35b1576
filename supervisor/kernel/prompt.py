"""What an agent reads when it begins: every sentence of ours that stands around the words of its task. Pure.

`compose_prompt` puts the whole together for an attempt that begins. The other functions make the prompt of a task that a person or an
agent submits, which follows another task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from supervisor.kernel.conversations import How, Origin

if TYPE_CHECKING:
    from supervisor.kernel.retry import Missed

TASK = "Your task:"
ARGUMENT_MAX = 120_000
"""Bytes of a prompt that is given as an argument. Linux takes at most 131,072 in one word, its NUL included."""


@dataclass(frozen=True, slots=True)
class Where:
    """Where an agent finds itself."""

    directory: str
    branch: str
    moved: bool
    """Before it was at another path."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Of what the first message of an attempt is made."""

    prompt: str | None
    """Of its task; a judge's with the changes that it judges."""
    brief: str = ""
    """What it is told of the memory before."""
    missed: Missed | None = None
    """The gate that the attempt before did not pass, for whose sake this one runs."""
    gate: str = ""
    """The command of that gate."""
    has_work: bool = False
    """The work that did not pass is in its worktree."""
    memory: str = ""
    """What the attempt before held of its memory, when it was stopped for that and this one goes on."""
    origin: Origin | None = None
    """The conversation that it continues; None: it begins anew."""
    is_own: bool = False
    """That conversation is the same task's."""
    where: Where | None = None
    """Where it continues."""
    is_attended: bool = False
    """A person sits at it, and says how it goes on."""


def compose_prompt(parts: Parts) -> str | None:
    """The first message of an attempt; None when it is told nothing."""
    missed = _missed(parts.missed, parts.gate, has_work=parts.has_work) if parts.missed is not None else ""
    stopped = f"You were stopped for your memory: {parts.memory}. Do it with less." if parts.memory else ""
    prompt = f"{parts.brief}\n\n{TASK}\n\n{parts.prompt}" if parts.brief else parts.prompt
    if missed or (stopped and prompt):
        prompt = "\n\n".join(filter(None, (prompt, missed, f"[nightcrew] {stopped}" if stopped else "")))
    if parts.origin is None or parts.where is None:
        return prompt
    if parts.is_own and missed:
        return f"{missed}\n\n{_place(parts.where)}"
    if parts.is_own and parts.is_attended:
        return None
    if parts.is_own:
        why = stopped or "You were interrupted."
        return f"[nightcrew] {why} {_place(parts.where)} Go on with your task where you stopped."
    begun = "goes on from" if parts.origin.how is How.RESUME else "is a copy of that of"
    told = f"[nightcrew] This conversation {begun} the task {parts.origin.task}. {_place(parts.where)}"
    return f"{prompt}\n\n{told}" if prompt else told  # what several agents share stands before what is this one's


def _missed(missed: Missed, command: str, *, has_work: bool) -> str:
    where = "that work is in this worktree" if has_work else "this worktree has none of that work"
    printed = ["The end of what it printed:", missed.said] if missed.said else ["It printed nothing."]
    return "\n\n".join(
        [
            f"[nightcrew] The work of the attempt before this one did not pass its gate ({missed.why}); {where}. The gate is:",
            command,
            *printed,
            "It runs again once you are done: see that the work passes it.",
        ]
    )


def _place(where: Where) -> str:
    said = [
        f"You are now in {where.directory}, on the branch {where.branch}.",
        "Every file is as it was left, but those that git ignores are gone, and so is every process that was started.",
    ]
    if where.moved:
        said.append("Paths of the worktree that you saw before are not yours any more: change nothing there.")
    return " ".join(said)


def as_argument(prompt: str, file: str) -> str:
    """The prompt, or where it is when it is too long for an argument."""
    too_long = len(prompt.encode("utf-8", "surrogateescape")) > ARGUMENT_MAX
    return f"Read the file {file} and do what it says." if too_long else prompt


def follow_up(prompt: str, text: str) -> str:
    """The prompt of a new agent that goes on with the work of another, which had `prompt`."""
    return f"{prompt}\n\n[nightcrew] An agent has done that, and its work is in this worktree. What follows is about that work.\n\n{text}"


def handed_over(number: str, sender: str, subject: str, quoted: str, prompt: str) -> str:
    """The prompt of an agent that begins with a handoff: the message as data, then what it is to do."""
    return f"[nightcrew mail {number}] handoff from {sender}: {subject}\n{quoted}\n\n{prompt}"
