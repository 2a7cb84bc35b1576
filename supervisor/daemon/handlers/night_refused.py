"""An installed night was not started: one alert, and a line of the history."""

from __future__ import annotations

from typing import Any

from supervisor.core.errors import one_line
from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`name` of the night, its `outcome` (`refused`, `missed`, `failed`) and `why`."""
    said = {key: str(args[key]) for key in ("name", "outcome", "why")}
    loop.ledger.journal(None, None, "night refused", said)
    loop.alert(one_line(f"the night {said['name']} was not started: {said['why']}"))
    return {}
