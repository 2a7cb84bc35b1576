"""Leave. Agents go on; the next supervisor adopts them."""

from __future__ import annotations

from typing import Any

from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`now`: do not wait for launches and finishes under way."""
    loop.stop(now=bool(args.get("now")))
    return {"live": len(loop.crew.living)}
