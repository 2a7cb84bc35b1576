"""Let paused tasks go on: agents where they stood still, as soon as a slot is free, and what waited waits for its start again."""

from __future__ import annotations

from typing import Any

from supervisor.core.events import ResumeAsked
from supervisor.core.requests import is_held_back
from supervisor.core.states import TaskState
from supervisor.daemon import choosing
from supervisor.daemon.handlers.pause import known
from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`tasks`: full ids. Returns those that were paused or parked and go on; those of them that wait for a slot first; and those that
    nobody had paused."""
    loop.emergency.refuse()
    names = choosing.members(loop.ledger, list(map(str, args["tasks"])))
    asked = [name for name in names if is_held_back(task := known(loop, name)) or task.state is TaskState.PARKED]
    loop.ask(*(ResumeAsked(name) for name in asked))
    waiting = [name for name in asked if _waits(loop, name)]
    for name in asked:
        await loop.settled((name, known(loop, name).epoch))
    return {"resumed": asked, "waiting_for_slot": waiting, "not_paused": [name for name in names if name not in asked]}


def _waits(loop: Loop, name: str) -> bool:
    task = loop.crew.tasks.get(name)
    return task is not None and task.attempt is not None and task.attempt.paused is not None
