"""Leases on files of the repository: what an agent asks for, and whether a write is welcome."""

from __future__ import annotations

from typing import Any

from supervisor.daemon.agent_verbs.asked import Asked
from supervisor.daemon.memory import lease_verbs


async def lease(asked: Asked) -> dict[str, Any]:
    """See `lease_verbs`."""
    return await lease_verbs.of_agent(asked.loop, asked.home, asked.memory.leases, (asked.task, asked.epoch), asked.args)
