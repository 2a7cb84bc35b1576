"""Remove worktrees whose work is safe; say why the rest stays."""

from __future__ import annotations

from typing import Any

from supervisor.daemon.loop import Loop
from supervisor.host.paths import Home


async def handle(loop: Loop, home: Home, args: dict[str, Any]) -> dict[str, Any]:
    raise NotImplementedError
