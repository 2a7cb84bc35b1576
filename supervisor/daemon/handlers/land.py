"""A train of merges: begin one, stop it, let it go on."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import datetime
from typing import Any

from supervisor.core import names
from supervisor.core.errors import UsageError
from supervisor.core.landing import Entry, Train
from supervisor.core.train_orders import Orders
from supervisor.daemon.trains import TrainDesk


async def handle(desk: TrainDesk, args: dict[str, Any]) -> dict[str, Any]:
    """`op` is begin, stop or resume. `begin`: `project branch base commands width repairs orders`, the last as JSON of `Orders`, and
    `entries`, in their order, each with `task epoch tip title needs trusted repairable`; returns `train`. The others: `train`, and stop
    also `why`."""
    match args.get("op"):
        case "begin":
            orders, wall = Orders.from_json(str(args["orders"])), desk.wall()
            name = _name(wall)
            orders = replace(orders, terms=replace(orders.terms, train=name, began=float(int(wall))))
            return await desk.begin(_train(name, args), orders)
        case "stop":
            return await desk.stop(str(args["train"]), str(args.get("why") or "a person stopped it"))
        case "resume":
            return await desk.resume(str(args["train"]))
    raise UsageError("not a request", on="op", why="it is begin, stop or resume")


def _name(wall: float) -> str:
    today = datetime.fromtimestamp(wall).astimezone()
    return f"train-{names.run_id(today.month, today.day, secrets.randbelow(len(names.RUN_ALPHABET) ** 4))}"


def _train(name: str, args: dict[str, Any]) -> Train:
    entries = tuple(
        Entry(number, **{**shape, "needs": tuple(shape["needs"])}) for number, shape in enumerate(map(dict, args["entries"]), start=1)
    )
    project, branch, base = (str(args[key]) for key in ("project", "branch", "base"))
    return Train(name, project, branch, base, tuple(args["commands"]), int(args["width"]), int(args["repairs"]), entries=entries)
