"""Who the token says that one is."""

from __future__ import annotations

from typing import Any

from supervisor.daemon.agent_verbs.asked import Asked


async def handle(asked: Asked) -> dict[str, Any]:
    """The task, the epoch, the run, and what its plan says of its part of the limits."""
    spec = asked.loop.ledger.launch_row(asked.task).spec
    return {
        "task": asked.task,
        "epoch": asked.epoch,
        "run": asked.task.partition("/")[0],
        "class": str(spec.task_class),
        "weight": spec.weight,
        "tpm_max": spec.tpm_max or None,
        "cost_max": spec.cost_max or None,
    }
