"""Archive and remove what `[keep]` lets go, now."""

from __future__ import annotations

from typing import Any

from supervisor.core.errors import NotRunning
from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """Work for some seconds; with `goes_on`, at what the last question left. Returns `done`, each with `what`, `name`, `bytes` and `why`,
    and `more`: whether to ask again."""
    if loop.jobs.keeping is None or not loop.ready:
        raise NotRunning("the supervisor is still recovering", kept="everything", hint="try again")
    done, more = await loop.jobs.keeping.once(goes_on=args.get("goes_on") is True)
    return {"done": done, "more": more}
