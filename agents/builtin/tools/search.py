"""grep and glob, by git: what it ignores is left out, and binary files are."""

from __future__ import annotations

import os
from pathlib import Path

from agents.builtin.tools.given import Given, Place, ToolError, shortened
from agents.builtin.tools.shell import Order, run

SEARCH_S = 60.0
KEEP = 2**20
"""Bytes of what git says that are looked at."""
MATCHES_MAX = 200
FILES_MAX = 500
LINE_MAX = 400
_NO_MATCH = 1
"""What `git grep` exits with."""


async def grep(given: Given, place: Place, order: Order) -> str:
    """Matching lines as `path:line:text`. Raises ToolError."""
    options = ["-I", "-n", "-E", "--untracked", "--no-color", *(["-i"] if given.flag("ignore_case") else [])]
    where = _where(given.text("path", "."), given.text("glob", ""), place)
    out, status = await _git(["grep", *options, "-e", given.text("pattern"), "--", where], order)
    if status == _NO_MATCH and not out:
        return "(no match)"
    if status:
        raise ToolError(f"git grep: {out.strip()}")
    return _listed([line[:LINE_MAX] for line in out.splitlines()], MATCHES_MAX, "matches")


async def glob(given: Given, place: Place, order: Order) -> str:
    """Paths from the root. Raises ToolError."""
    pattern = given.text("pattern")
    words = ["-c", "core.quotePath=false", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    out, status = await _git([*words, "--", _where(".", pattern, place)], order)
    if status:
        raise ToolError(f"git ls-files: {out.strip()}")
    found = [line for line in out.splitlines() if os.path.lexists(order.cwd / line) or line.startswith('"')]
    return _listed(sorted(found), FILES_MAX, "files") if found else "(no file)"


def _where(path: str, pattern: str, place: Place) -> str:
    """The pathspec of git's: literal but for the pattern. One without a slash fits at any depth."""
    inside = os.path.relpath(place.resolve(path), place.root)
    if inside.startswith(".."):
        raise ToolError(f"{path} is not in the worktree")
    if not pattern:
        return f":(literal){inside}"
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise ToolError("a pattern is taken from the worktree's root, without '..'")
    deep = pattern if "/" in pattern else f"**/{pattern}"
    return f":(glob){deep}" if inside == "." else f":(glob){_quoted(inside)}/{deep}"


def _quoted(path: str) -> str:
    return "".join(f"\\{char}" if char in "*?[\\" else char for char in path)


async def _git(words: list[str], order: Order) -> tuple[str, int]:
    ended = await run(["git", *words], order, SEARCH_S, KEEP)
    if ended.timed_out:
        raise ToolError(f"it took longer than {SEARCH_S:g} s: search less at once")
    return ended.output.text(), ended.status


def _listed(lines: list[str], most: int, what: str) -> str:
    more = f"\n[{len(lines) - most} more {what}: ask for less at once]" if len(lines) > most else ""
    return shortened("\n".join(lines[:most]) + more)
