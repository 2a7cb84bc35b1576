"""Kinds of agent: what each needs, as data. One TOML file a kind beside this file.

description  one line, shown by `--help` and in the docs
mode         "headless": stdout and stderr are pipes, logged; "terminal": the agent owns the pane
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of agent."""

    name: str
    description: str
    mode: str


@functools.cache
def kinds() -> dict[str, Kind]:
    """Every kind that exists, by name."""
    found = {}
    for file in resources.files("agents.kinds").iterdir():
        if file.name.endswith(".toml"):
            name = file.name.removesuffix(".toml")
            shape = tomllib.loads(file.read_text(encoding="utf-8"))
            found[name] = Kind(name=name, description=shape["description"], mode=shape["mode"])
    return found
