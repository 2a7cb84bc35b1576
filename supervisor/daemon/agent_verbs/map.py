"""What a worker of a map asks: its next items, and whether it still has those that it got."""

from __future__ import annotations

from typing import Any

from supervisor.daemon.agent_verbs.asked import Asked


async def ask(asked: Asked) -> dict[str, Any]:
    """See `MapDesk.ask`."""
    return await asked.maps.ask((asked.task, asked.epoch), asked.args)
