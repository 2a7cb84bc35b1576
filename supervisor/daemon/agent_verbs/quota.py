"""A ticket of a named quota, for an agent's task."""

from __future__ import annotations

from typing import Any

from supervisor.daemon.agent_verbs.asked import Asked


async def handle(asked: Asked) -> dict[str, Any]:
    """As the verb of the same name for people; the tasks that wait take turns."""
    return await asked.loop.quotas.ask(asked.task, asked.args)
