"""Whether the keys of a task fit its kind of agent."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.core.kind import TASK_KEYS, Kind


@dataclass(frozen=True, slots=True)
class Misfit:
    """What is wrong with a task."""

    key: str
    why: str
    what: str = "bad value"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a task says that depends on its kind."""

    given: Collection[str]
    """The keys that the task itself has; what it inherits may be for other kinds."""
    command: bool
    prompt: str | None
    interactive: bool


def misfit(kind: Kind, asked: Asked) -> Misfit | None:
    """The first thing that is wrong; None when all fits."""
    return _of_agent(kind, asked) if kind.is_agent else _of_command(kind, asked)


def values(kind: Kind, model: str | None, steps_max: int | None, allow: list[str] | None, interactive: bool) -> Mapping[str, Any]:
    """Those fields of a `TaskSpec` that only agents have: what others inherit means nothing to them."""
    if not kind.is_agent:
        return {}
    return {
        "model": model or "",
        "steps_max": steps_max or 0,
        "allow": tuple(allow) if allow is not None else None,
        "interactive": interactive,
    }


def _of_command(kind: Kind, asked: Asked) -> Misfit | None:
    if asked.command and kind.program:
        return Misfit("command", f"a task of kind {kind.name} brings its own command; give it params")
    if not asked.command and not kind.program:
        return Misfit("command", f"a task of kind {kind.name} needs a command", "missing key")
    unknown = next((key for key in (*TASK_KEYS, "interactive") if key in asked.given), "")
    return Misfit(unknown, f"a task of kind {kind.name} has no {unknown}") if unknown else None


def _of_agent(kind: Kind, asked: Asked) -> Misfit | None:
    name, prompt, interactive = kind.name, asked.prompt, asked.interactive
    if kind.takes_command and not asked.command:
        return Misfit("command", f"a task of kind {name} needs the command of its agent; write it into a plan", "missing key")
    if asked.command and not kind.takes_command:
        return Misfit("command", f"a task of kind {name} takes a prompt and no command; for a command say kind = 'shell'")
    if not kind.template(interactive=interactive):
        why = "only works by itself" if interactive else "only works with a person at it: say interactive = true"
        return Misfit("interactive", f"kind {name} {why}")
    if prompt is None and not interactive:
        return Misfit("prompt", f"a task of kind {name} needs a prompt", "missing key")
    if prompt is not None and not prompt.strip():
        return Misfit("prompt", "a prompt must not be empty")
    if prompt is not None and "\0" in prompt:
        return Misfit("prompt", "a prompt cannot hold a NUL character")
    if prompt is not None and not kind.takes_prompt(interactive=interactive):
        return Misfit("prompt", f"kind {name} takes no prompt {'with a person at it' if interactive else 'when it works by itself'}")
    unknown = next((key for key in TASK_KEYS if key in asked.given and not kind.knows(key, interactive=interactive)), "")
    return Misfit(unknown, f"kind {name} has no {unknown}{' with a person at it' if interactive else ''}") if unknown else None
