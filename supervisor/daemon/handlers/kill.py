"""End tasks: those that run are stopped with their whole tree, those that wait never start."""

from __future__ import annotations

from typing import Any

from supervisor.core.errors import NotFound
from supervisor.core.events import CancelAsked
from supervisor.core.states import FINAL
from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`tasks`: full ids. Returns those that were asked to end and those that had ended already."""
    names = [str(name) for name in args["tasks"]]
    known = {name: _state(loop, name) for name in names}
    asked = [name for name in names if known[name] not in FINAL]
    loop.ask(*(CancelAsked(name) for name in asked))
    return {"asked": asked, "ended_before": [name for name in names if name not in asked]}


def _state(loop: Loop, name: str) -> str:
    try:
        return loop.crew.tasks[name].state if name in loop.crew.tasks else loop.ledger.task(name, 0.0).state
    except KeyError:
        raise NotFound("no task", on=name, hint="nightcrew status") from None
