"""The supervisor's part, which runs in its process."""

from typing import Annotated, Any

from supervisor.kernel.codec import Bound
from supervisor.server.loop import Loop


async def hello(loop: Loop, *, name: Annotated[str, Bound(1, 100)]) -> dict[str, Any]:
    """Return how many agents live. `name`: who asks."""
    return {"hello": name, "living": len(loop.crew.living)}
