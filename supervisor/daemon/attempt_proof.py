"""What proves the outputs of an attempt, and what its kind reports of its tools: for `result.json` and the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents import protocols
from agents.kinds import Kind
from supervisor.core.errors import one_line
from supervisor.daemon import kind_protocol
from supervisor.host import foreign

_NAMES_MAX = 50
"""Tools that are named; an agent can make up any number."""
_NAME_MAX = 80


def proof(kind: Kind, directory: Path) -> dict[str, Any]:
    """Of an attempt whose records are in `directory`: `sha256` of its logs as they are, and `tools` as `of_tools` gives it, null for a kind
    that does not report them on its stdout. Raises ToolFailed."""
    logs = {name: foreign.sha256(directory / name) for name in ("stdout.log", "stderr.log")}
    stdout = kind_protocol.printed(kind, directory)
    called = None if stdout is None else of_tools(_called(kind, stdout))
    return {"sha256": {name: digest for name, digest in logs.items() if digest is not None}, "tools": called}


def of_tools(called: Mapping[str, int]) -> dict[str, Any]:
    """How often tools were called, and which, the most called first."""
    first = sorted(called.items(), key=lambda one: (-one[1], one[0]))[:_NAMES_MAX]
    return {"calls": sum(called.values()), "by": {one_line(name)[:_NAME_MAX]: times for name, times in first}}


def _called(kind: Kind, stdout: bytes) -> Counter[str]:
    return Counter(entry.tool for entry in protocols.transcript(kind.protocol, [stdout]) if entry.kind == "tool")
