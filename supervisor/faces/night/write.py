"""Writes a morning report where people find it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from supervisor.faces.night import html, markdown
from supervisor.host.files import atomic_write, private_dir


def as_json(shape: Mapping[str, Any]) -> str:
    """As text in ASCII: what is hostile to a terminal is an escape there."""
    return json.dumps(shape, indent=1, allow_nan=False) + "\n"


FORMATS: dict[str, Callable[[Mapping[str, Any]], str]] = {"json": as_json, "md": markdown.render, "html": html.render}
"""By the name's ending; each says the same."""


def write(shape: Mapping[str, Any], directory: Path) -> Path:
    """Write night.json, night.md and night.html into `directory` (made, private, when missing), each whole or not at all and readable by
    its owner alone. Returns the page. Raises DiskFull, ToolFailed or Refused."""
    if not directory.exists():
        private_dir(directory)
    for ending, form in FORMATS.items():
        atomic_write(directory / f"night.{ending}", form(shape).encode())
    return directory / "night.html"
