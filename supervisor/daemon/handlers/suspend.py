"""Have agents stand still where they are, with everything that they started."""

from __future__ import annotations

import json
from typing import Any

from supervisor.core.crew import SuspendAsked
from supervisor.core.decide import may_suspend
from supervisor.core.errors import NotFound, Refused
from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`tasks`: full ids. Returns those that stand still now, those that did already, and why others do not run; `moving` are pids that
    could not be stopped. Raises Refused when no agent of any of them runs.
    """
    names = list(dict.fromkeys(str(name) for name in args["tasks"]))
    before = [name for name in names if stands_still(loop, name)]
    asked = [name for name in names if name in loop.crew.tasks and may_suspend(loop.crew.tasks[name])]
    others = {name: _why_not(loop, name) for name in names if name not in (*before, *asked)}
    if others and not asked and not before:
        name, why = next(iter(others.items()))
        raise Refused("cannot suspend", on=name, why=why, kept="it as it is", hint="nightcrew status")
    loop.ask(*(SuspendAsked(name) for name in asked))
    moving = await _moving(loop, [(name, loop.crew.tasks[name].epoch) for name in asked])
    return {"suspended": asked, "suspended_before": before, "not_running": others, "moving": moving}


async def _moving(loop: Loop, keys: list[tuple[str, int]]) -> list[int]:
    """What could not be stopped of these attempts, once all that can be has been."""
    for key in keys:
        await loop.settled(key)
    rows = [loop.ledger.attempt(*key) for key in keys]
    noted = [json.loads(row.suspended) for row in rows if row is not None and row.suspended]
    return [pid for one in noted for pid in one.get("moving", ())]


def stands_still(loop: Loop, name: str) -> bool:
    """Whether the agent of a task is suspended. Raises NotFound."""
    task = loop.crew.tasks.get(name)
    if task is not None:
        return task.attempt is not None and task.attempt.suspended
    try:
        loop.ledger.task(name, 0.0)
    except KeyError:
        raise NotFound("no task", on=name, hint="nightcrew status") from None
    return False


def _why_not(loop: Loop, name: str) -> str:
    task = loop.crew.tasks.get(name)
    if task is not None and task.attempt is not None:
        return "its command has not begun" if task.attempt.held else f"it is {task.attempt.state}"
    return f"it is {task.state if task is not None else loop.ledger.task(name, 0.0).state}"
