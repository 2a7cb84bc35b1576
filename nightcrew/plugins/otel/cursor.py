"""How far the exporter of spans has come: a small file beside the ledger. The supervisor lays it, the exporter moves it."""

from __future__ import annotations

import json
from pathlib import Path

from supervisor.host import files
from supervisor.kernel import codec
from supervisor.kernel.telemetry import Cursor


def read(text: str) -> Cursor:
    """What `keep` wrote. Raises ValueError, TypeError for anything else."""
    shape = json.loads(text)
    if "journal" not in shape:
        raise ValueError("no cursor")
    return codec.check(Cursor, shape, whole=False)


def kept(path: Path) -> Cursor | None:
    """What is there; None for nothing, and for what nobody of us wrote."""
    try:
        return read(path.read_text())
    except (OSError, ValueError, TypeError):
        return None


def keep(path: Path, cursor: Cursor) -> None:
    """Durably: nothing up to it is sent again. Raises DiskFull, ToolFailed."""
    files.atomic_write(path, codec.dumps({"schema": 1, **codec.shape(cursor)}).encode())
