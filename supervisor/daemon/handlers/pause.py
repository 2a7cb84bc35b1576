"""Hold tasks back until they are resumed: agents stand still with everything that they started, and what waits does not start."""

from __future__ import annotations

import json
from typing import Any

from supervisor.core.errors import NotFound, Refused
from supervisor.core.events import PauseAsked
from supervisor.core.requests import is_held_back, may_pause
from supervisor.core.task import Task
from supervisor.daemon import choosing
from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`tasks`: full ids. Returns those that are paused now, those that were already, and why others cannot be; `moving` are pids that
    could not be stopped. Raises Refused when none of them can be.
    """
    loop.emergency.refuse()
    tasks = [known(loop, name) for name in choosing.members(loop.ledger, list(map(str, args["tasks"])))]
    before = [task.id for task in tasks if is_held_back(task)]
    asked = [task.id for task in tasks if may_pause(task)]
    others = {task.id: _why_not(task) for task in tasks if task.id not in {*before, *asked}}
    if others and not asked and not before:
        name, why = next(iter(others.items()))
        raise Refused("cannot pause", on=name, why=why, kept="it as it is", hint="nightcrew status")
    loop.ask(*(PauseAsked(name) for name in asked))
    moving = await _moving(loop, [(task.id, task.epoch) for task in tasks if task.id in asked and task.attempt is not None])
    return {"paused": asked, "paused_before": before, "not_paused": others, "moving": moving}


async def _moving(loop: Loop, keys: list[tuple[str, int]]) -> list[int]:
    """What could not be stopped of these attempts, once all that can be has been."""
    for key in keys:
        await loop.settled(key)
    rows = [loop.ledger.attempt(*key) for key in keys]
    noted = [json.loads(row.paused) for row in rows if row is not None and row.paused]
    return [pid for one in noted for pid in one.get("moving", ())]


def known(loop: Loop, name: str) -> Task:
    """A task, also one that ended. Raises NotFound."""
    try:
        return loop.crew.tasks.get(name) or loop.ledger.task(name, 0.0)
    except KeyError:
        raise NotFound("no task", on=name, hint="nightcrew status") from None


def _why_not(task: Task) -> str:
    return f"it is {task.state if task.attempt is None else task.attempt.state}"
