"""The supervisor's part, which runs in its process."""

from typing import Any

from supervisor.server.loop import Loop


async def hello(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """Return how many agents live. `name`: who asks."""
    return {"hello": str(args["name"])[:100], "living": len(loop.crew.living)}
