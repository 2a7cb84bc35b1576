"""What agents said of themselves by hooks, for who asks how an agent is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from supervisor.core.errors import UsageError
from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`attempts`: pairs of a task's id and an epoch. Returns for each that there is, by task, `session`, `evidence`, a list, and
    `refused`, how many of its hooks were left out."""
    wanted = args.get("attempts")
    if not isinstance(wanted, list):
        raise UsageError("no attempts given")
    found = {}
    for task, epoch in wanted:
        if loop.ledger.attempt(str(task), int(epoch)) is None:
            continue
        session, evidence, refused = loop.evidence.of((str(task), int(epoch)))
        found[str(task)] = {"session": session, "evidence": [asdict(piece) for piece in evidence], "refused": refused}
    return {"agents": found}
