"""Let suspended agents go on where they stood still."""

from __future__ import annotations

from typing import Any

from supervisor.core.crew import ResumeAsked
from supervisor.daemon.handlers.suspend import stands_still
from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`tasks`: full ids. Returns those that go on now, and those that were not suspended."""
    names = list(dict.fromkeys(str(name) for name in args["tasks"]))
    asked = [name for name in names if stands_still(loop, name)]
    loop.ask(*(ResumeAsked(name) for name in asked))
    for name in asked:
        await loop.settled((name, loop.crew.tasks[name].epoch))
    return {"resumed": asked, "not_suspended": [name for name in names if name not in asked]}
