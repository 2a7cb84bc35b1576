"""Whether a file is somebody else's: asked of the supervisor before it is written."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

from agents.builtin.tools.given import ToolError

PATIENCE_S = 1.0
"""For the answer: a write waits for it. Without one the file is nobody's."""
ANSWER_MAX = 64 * 1024


def before_write(path: Path) -> str:
    """What the model is told beside the result of a write, on a line of its own; empty: nothing. Raises ToolError when it must not."""
    said = _asked(path)
    if said.get("decision") == "deny":
        raise ToolError(str(said.get("why")))
    return f"\n[{said.get('why')}]" if said.get("decision") == "warn" else ""


def _asked(path: Path) -> dict[str, object]:
    door, token = os.environ.get("NIGHTCREW_AGENTS_SOCKET"), os.environ.get("NIGHTCREW_TOKEN")
    if not door or not token:
        return {}
    line = json.dumps({"version": "", "verb": "lease", "token": token, "args": {"op": "check", "path": str(path)}}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(door)
            connection.sendall(line)
            with connection.makefile("rb") as reader:
                answer = json.loads(reader.readline(ANSWER_MAX))
    except (OSError, ValueError):
        return {}
    value = answer.get("value") if isinstance(answer, dict) else None
    return value if isinstance(value, dict) else {}
