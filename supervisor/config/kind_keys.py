"""Whether the keys of a task fit its kind of agent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from supervisor.core.kind import TASK_KEYS, Kind
from supervisor.core.names import nearest
from supervisor.core.spec import TaskSpec


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
    if kind.internal:
        return Misfit("kind", f"tasks of kind {kind.name} are nightcrew's own")
    return _of_agent(kind, asked) if kind.is_agent else _of_command(kind, asked)


def values(kind: Kind, model: str | None, allow: list[str] | None, interactive: bool) -> Mapping[str, Any]:
    """Those fields of a `TaskSpec` that only agents have: what others inherit means nothing to them."""
    if not kind.is_agent:
        return {}
    return {"model": model or "", "allow": tuple(allow) if allow is not None else None, "interactive": interactive}


def bounds(kind: Kind, said: Mapping[str, float | None], *, bounded: bool) -> Mapping[str, Any]:
    """`timeout_s`, `steps_max` and `cost_max` of a task, and which of them its kind says. `said`: what its plan does. `bounded`: it works
    by itself and may add no others, so that the kind's count."""
    if not kind.is_agent:
        said = {**said, "steps_max": None}
    given = {name: value for name, value in said.items() if value}
    usual = {name: getattr(kind, name) for name in said if bounded and name not in given and getattr(kind, name)}
    none = {"timeout_s": 0.0, "steps_max": 0, "cost_max": 0.0}
    return {**none, **usual, **given, "assumed": tuple(sorted(usual))}


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


def no_parent(parent: str, theirs: str | None, kind: str, known: Collection[str]) -> str:
    """Why a task of `kind` cannot go on with a copy of the conversation of `parent`, whose kind is `theirs`; empty when it can."""
    if theirs is None:
        return f"no task has the id {parent!r}; {nearest(parent, known)}"
    return f"{parent} is of kind {theirs}; only a task of that kind can go on with its conversation" if theirs != kind else ""


def at_one_path(tasks: Sequence[TaskSpec], said: Collection[str]) -> tuple[TaskSpec, ...]:
    """Those whose conversation is copied, and the copies, see their worktrees at one path, so that the paths in it stay true; but for the
    tasks in `said`, which say themselves, and those without a sandbox."""
    parents = {task.continue_from for task in tasks}
    ours = {task.name for task in tasks if task.continue_from or task.name in parents} - set(said)
    return tuple(replace(task, same_path=True) if task.name in ours and task.sandbox != 0 else task for task in tasks)
