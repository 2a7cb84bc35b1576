"""How far the exporter of spans has come: a small file beside the ledger. The supervisor lays it, the exporter moves it."""

from __future__ import annotations

from pathlib import Path

from nightcrew.plugins.otel import rules
from nightcrew.plugins.otel.rules import Cursor
from supervisor.host import files


def kept(path: Path) -> Cursor | None:
    """What is there; None for nothing, and for what nobody of us wrote."""
    try:
        return rules.cursor(path.read_text())
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(path: Path, cursor: Cursor) -> None:
    """Durably: nothing up to it is sent again. Raises DiskFull, ToolFailed."""
    files.atomic_write(path, cursor.to_json().encode())
