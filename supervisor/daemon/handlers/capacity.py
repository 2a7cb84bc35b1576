"""How many agents the machine and the models carry, and what each kind takes."""

from __future__ import annotations

from typing import Any

from supervisor.daemon import capacity
from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - every handler is called so
    """As `capacity.shape`."""
    return capacity.shape(loop.capacity, loop.crew, loop.settings)
