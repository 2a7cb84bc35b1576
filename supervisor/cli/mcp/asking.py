"""How the tools of an agent ask: at agents.sock, with the token of the attempt that started them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from supervisor.cli.mcp import data
from supervisor.core.errors import NotRunning
from supervisor.daemon import protocol

PATIENCE_S = 30.0


def ask(verb: str, patience_s: float = PATIENCE_S, **args: Any) -> dict[str, Any]:
    """The supervisor's answer, made plain. Raises our errors."""
    path, token = os.environ.get("NIGHTCREW_AGENTS_SOCKET", ""), os.environ.get("NIGHTCREW_TOKEN", "")
    if not path or not token:
        raise NotRunning("no crew to conduct", why="this is not an agent of nightcrew: NIGHTCREW_TOKEN is not set")
    return dict(data.cleaned(protocol.call(Path(path), verb, args, timeout_s=patience_s, token=token)))
