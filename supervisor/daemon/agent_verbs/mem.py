"""The memory of the agent's own project."""

from __future__ import annotations

from typing import Any

from supervisor.daemon.agent_verbs.asked import Asked
from supervisor.daemon.memory import verbs
from supervisor.daemon.memory.request import Request


async def ask(asked: Asked) -> dict[str, Any]:
    """See `verbs.mem`."""
    project = asked.loop.ledger.launch_row(asked.task).project
    return await verbs.mem(Request(asked.memory, project, asked.task, asked.epoch, asked.args))
