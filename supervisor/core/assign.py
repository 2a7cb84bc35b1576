"""Which kind of agent and which model a task gets that does not say so itself: the user's `[[assign]]` rules. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from supervisor.core.states import TaskClass


@dataclass(frozen=True, slots=True)
class Rule:
    """One `[[assign]]`. What is empty is not asked for, or not given."""

    where: str
    """`config.toml:LINE`."""
    task_class: TaskClass | None = None
    size: str = ""
    tags: tuple[str, ...] = ()
    """The task has all of them."""
    kind: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """What a task says; `kind` and `model` are empty where it leaves them to the rules."""

    task_class: TaskClass
    size: str = ""
    tags: Collection[str] = ()
    kind: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """What a rule gives a task beyond what that says."""

    kind: str = ""
    model: str = ""
    by: str = ""
    """For people: what was given, and by which rule. Empty: nothing."""


def assign(rules: Iterable[Rule], task: Task) -> Given:
    """By the first rule that fits, and by no other. A rule for another kind of agent than the task says does not fit."""
    rule = next((rule for rule in rules if _fits(rule, task)), None)
    if rule is None:
        return Given()
    kind, model = rule.kind if not task.kind else "", rule.model if not task.model else ""
    what = ", ".join(f"{name} {value}" for name, value in (("kind", kind), ("model", model)) if value)
    return Given(kind, model, f"{what} by {rule.where}" if what else "")


def _fits(rule: Rule, task: Task) -> bool:
    if rule.task_class not in (None, task.task_class) or rule.size not in ("", task.size):
        return False
    return set(rule.tags) <= set(task.tags) and (not task.kind or rule.kind in ("", task.kind))
