"""Make snapshots and take them away."""

from __future__ import annotations

from typing import Any

from supervisor.core.errors import Refused
from supervisor.daemon.loop import Loop
from supervisor.daemon.snapshot_order import Order
from supervisor.host.paths import Home


async def handle(loop: Loop, home: Home, args: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - the shape of every handler
    """`do`: `create` with an `order`; `remove` with `project` and `names`; `prune` with `remove`: act, or only look.

    Returns `id`, `epoch` and `log` of a build that has begun; `removed` and `kept` (with `why`); or `prunable`.
    """
    if args["do"] == "create":
        row, log = loop.snapshots.create(Order.from_wire(args["order"]))
        return {"id": row.id, "epoch": row.epoch, "log": str(log)}
    if args["do"] == "prune":
        found = await loop.snapshots.prune(act=bool(args["remove"]))
        return {"prunable": [{"id": row.id, "name": row.spec.name, "disk": row.disk, "why": why} for row, why in found]}
    answer: dict[str, Any] = {"removed": [], "kept": []}
    for name in args["names"]:
        row = loop.ledger.snapshots.find(str(name), str(args["project"]))
        try:
            await loop.snapshots.remove(row, "removed by hand")
            answer["removed"].append({"id": row.id, "name": row.spec.name, "disk": row.disk})
        except Refused as error:
            answer["kept"].append({"id": row.id, "name": row.spec.name, "why": error.why or error.line()})
    return answer
