"""Which attempt is paused so that a more important task can start, and which paused attempts wait for a slot. Pure.

A task that says `preempt`, and an interactive one while the means are short, takes the slot of the least important attempt that is less
important than itself. That attempt is paused at a moment without a request under way, or after a bounded wait; then the task starts
on its slot, whoever else waits. The paused one goes on when a slot is free.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from supervisor.core.draft import Draft, RanksByNight
from supervisor.core.states import AttemptState, TaskClass, Until
from supervisor.core.task import PauseState, Rank, Task, importance, is_startable


def waiting_for_a_slot(crew: Draft) -> list[str]:
    """The attempts that stand still and go on when a slot is free, the most important first, then the one that has waited longest."""
    found = [(importance(task), paused.since, task.id) for task, paused in _paused(crew) if paused.still and paused.until is Until.SLOT]
    return [name for _, _, name in sorted(found)]


def places(crew: Draft) -> list[str]:
    """The tasks that could start on a slot that was made free for them."""
    names = {paused.made_for for _, paused in _paused(crew) if paused.still and paused.until is Until.SLOT}
    return [task.id for task in crew.known(sorted(names)) if is_startable(task)]


def preempted(
    crew: Draft, passed: Container[str], in_order: Callable[[RanksByNight], Iterator[Rank]], *, under_pressure: bool
) -> dict[str, str]:
    """The attempts to pause, each with the task that it makes room for. `passed`: tasks that start anyway, or may not."""
    expected = {paused.made_for for _, paused in _paused(crew) if paused.until is Until.SLOT}
    lowest: list[Task] | None = None
    found: dict[str, str] = {}
    for pressing in (crew.preempting(), crew.oldest(TaskClass.INTERACTIVE) if under_pressure else {}):
        for task in crew.known(name for *_, name in in_order(pressing)):
            if task.id in passed or task.id in expected or task.id in found.values():
                continue
            lowest = _lowest_last(crew) if lowest is None else lowest
            if not lowest or importance(lowest[-1]) <= importance(task):
                break
            found[lowest.pop().id] = task.id
    return found


def _lowest_last(crew: Draft) -> list[Task]:
    return sorted((task for task in crew.living() if _may_be_paused(crew, task)), key=lambda task: (importance(task), task.order))


def _may_be_paused(crew: Draft, task: Task) -> bool:
    """Whether pausing it frees a slot: it runs by itself, and holds one."""
    attempt = task.attempt
    runs = attempt is not None and attempt.state is AttemptState.RUNNING and not attempt.held and attempt.paused is None
    return runs and not any(crew.unfinished_children(task.id))


def _paused(crew: Draft) -> Iterator[tuple[Task, PauseState]]:
    for task in crew.living():
        if task.attempt is not None and task.attempt.paused is not None and task.attempt.state is AttemptState.RUNNING:
            yield task, task.attempt.paused
