"""A map: begin it, or look how it stands."""

from __future__ import annotations

from typing import Any

from supervisor.core.errors import UsageError
from supervisor.daemon.mapping.desk import MapDesk


async def handle(maps: MapDesk, args: dict[str, Any]) -> dict[str, Any]:
    """`op` is open or look; see `MapDesk`."""
    match args.get("op"):
        case "open":
            return await maps.open(args)
        case "look":
            return await maps.look(args)
    raise UsageError("not a request", on="op", why="it is open or look")
