"""A message to every receiver, sent as any other is: by this supervisor, with its settings and its environment."""

from __future__ import annotations

from typing import Any

from supervisor.core.errors import NotRunning
from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - the shape of every handler
    """`answers`: by the name of each receiver why it has not taken it, empty when it has. Raises ToolMissing without the extra, NotRunning
    before it is ready."""
    if not loop.ready:
        raise NotRunning("the supervisor is still beginning", hint="nightcrew status")
    return {"answers": await loop.try_receivers()}
