"""Where a person's own files lie. Standard library only: completion imports this."""

from __future__ import annotations

import os
import re
from pathlib import Path

_KIND = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,31})\.toml")


def path() -> Path:
    """The settings file, whether or not it exists. `NIGHTCREW_CONFIG` overrides."""
    if override := os.environ.get("NIGHTCREW_CONFIG"):
        return Path(override)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "nightcrew" / "config.toml"


def kind_file(name: str) -> Path | None:
    """The file of one kind that a person describes; None if there is none."""
    file = path().parent / "kinds" / f"{name}.toml"
    return file if _KIND.fullmatch(file.name) and "/" not in name and os.path.lexists(file) else None


def kind_files() -> dict[str, Path]:
    """The kinds of agent that a person describes, by name: `kinds/NAME.toml` beside the settings. A file with another name is none."""
    try:
        files = list((path().parent / "kinds").iterdir())
    except OSError:
        return {}
    return {found[1]: file for file in files if (found := _KIND.fullmatch(file.name))}
