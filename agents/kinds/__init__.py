"""Kinds of agent: what each needs, as data. One TOML file a kind beside this file.

description  one line, shown by `--help` and in the docs
mode         "headless": stdout and stderr are pipes, logged; "terminal": the agent owns the pane
module       optional: a module of ours that this kind runs; its tasks then give no command of their own
sweep        optional: true when nothing is to stay of a task that is done and changed nothing: no worktree, no branch
preload      optional: modules that a warm process has imported for all tasks of this kind, which are then forked from it
output       optional: "one json line": stdout must be exactly that, or the attempt has failed; "json lines": stdout is for programs,
             and the pane shows stderr alone
"""

from __future__ import annotations

import functools
import sys
import tomllib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of agent."""

    name: str
    description: str
    mode: str
    module: str = ""
    output: str = ""
    sweep: bool = False
    preload: tuple[str, ...] = ()

    def command(self) -> tuple[str, ...]:
        """The command that this kind brings, apart from whatever PATH and directory it runs in; empty when each task gives its own."""
        return (sys.executable, "-I", "-m", self.module) if self.module else ()


@functools.cache
def kinds() -> dict[str, Kind]:
    """Every kind that exists, by name."""
    found = {}
    for file in resources.files("agents.kinds").iterdir():
        if file.name.endswith(".toml"):
            name = file.name.removesuffix(".toml")
            shape = tomllib.loads(file.read_text(encoding="utf-8"))
            found[name] = Kind(name=name, **{**shape, "preload": tuple(shape.get("preload", ()))})
    return found
