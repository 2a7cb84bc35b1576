"""Make snapshots and take them away."""

from __future__ import annotations

from typing import Any

from supervisor.core.errors import Refused
from supervisor.daemon.loop import Loop
from supervisor.daemon.snapshot_order import Order


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`do`: `create` with an `order`, and whether a person agrees to what it runs (`agreed`); `remove` with `project` and `names`; `prune`
    with `remove`: act, or only look.

    Returns `id`, `epoch`, `log` and whether a build of it has begun now (`new`); `removed` and `kept` (with `why`); or `prunable`.
    """
    if args["do"] == "create":
        begun = await loop.snapshots.create(Order.from_wire(args["order"]), agreed=args.get("agreed") is True)
        return {"id": begun.row.id, "epoch": begun.row.epoch, "log": str(begun.log), "new": begun.new}
    if args["do"] == "prune":
        found = await loop.snapshots.prune(act=bool(args["remove"]))
        return {"prunable": [{"id": row.id, "name": row.spec.name, "disk": row.disk, "why": why} for row, why in found]}
    answer: dict[str, Any] = {"removed": [], "kept": []}
    for row in [loop.ledger.snapshots.find(str(name), str(args["project"])) for name in args["names"]]:
        try:
            await loop.snapshots.remove(row, "removed by hand")
            answer["removed"].append({"id": row.id, "name": row.spec.name, "disk": row.disk})
        except Refused as error:
            answer["kept"].append({"id": row.id, "name": row.spec.name, "why": error.why or error.line()})
    return answer
