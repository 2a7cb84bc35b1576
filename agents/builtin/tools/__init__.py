"""The tools, and which calls of one turn run at once.

    result = await Tools(root).run(calls, seen)      # one result block for each call, in their order

Paths outside the worktree are refused. That is manners, not a wall: bash can go wherever the sandbox lets it (docs/environments.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.builtin.tools import files, search, shell
from agents.builtin.tools import memory as memories
from agents.builtin.tools.given import Given, Place, ToolError

AT_ONCE = 16
"""Tool calls that run side by side."""
_ALL_FILES = frozenset({"bash", "grep", "glob"})
_WRITERS = frozenset({"write", "edit"})


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool call came to."""

    text: str
    is_error: bool = False

    def block(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """As the API takes it."""
        shape: dict[str, Any] = {"type": "tool_result", "tool_use_id": call["id"], "content": self.text or "(nothing)"}
        return shape | ({"is_error": True} if self.is_error else {})


Seen = Callable[[Mapping[str, Any], Result], None]


class Tools:
    """The tools for one worktree."""

    def __init__(self, place: Place, grace_s: float = shell.GRACE_S) -> None:
        self._place = place
        self._grace_s = grace_s
        self._threads = ThreadPoolExecutor(AT_ONCE, "tool")

    def close(self) -> None:
        """Wait for what runs, and take no more."""
        self._threads.shutdown()

    async def run(self, calls: list[dict[str, Any]], seen: Seen) -> None:
        """Run them; `seen` is told of each as it ends. When this is cancelled, everything that a command started is ended first."""
        for group in groups(calls):
            await asyncio.gather(*(self._one(call, seen) for call in group))

    async def _one(self, call: Mapping[str, Any], seen: Seen) -> None:
        try:
            result = Result(await self._call(str(call["name"]), Given(call["input"])))
        except ToolError as error:
            result = Result(str(error), is_error=True)
        except OSError as error:
            result = Result(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""), is_error=True)
        seen(call, result)

    async def _call(self, name: str, given: Given) -> str:
        order = shell.Order(self._place.root, self._grace_s, self._threads)
        match name:
            case "bash":
                return await shell.bash(given, order)
            case "grep":
                return await search.grep(given, self._place, order)
            case "glob":
                return await search.glob(given, self._place, order)
            case "read" | "write" | "edit":
                work = {"read": files.read, "write": files.write, "edit": files.edit}[name]
                return await asyncio.get_running_loop().run_in_executor(self._threads, work, given, self._place)
            case "memory":
                return await asyncio.get_running_loop().run_in_executor(self._threads, memories.memory, given)
            case _:
                raise ToolError(f"there is no tool {name!r}")


def groups(calls: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Which calls run at once: each joins the ones before it unless it may need what one of them does. A change of a file comes after and
    before everything that could see it; two commands are taken to be independent, as the model was told."""
    found: list[list[dict[str, Any]]] = []
    for call in calls:
        if found and not any(_depend(before, call) for before in found[-1]):
            found[-1].append(call)
        else:
            found.append([call])
    return found


def _depend(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    names = {one["name"], other["name"]}
    if names == {"memory"}:
        return True  # one may read what the other writes
    return bool(names & _WRITERS) and (bool(names & _ALL_FILES) or _path(one) == _path(other))


def _path(call: Mapping[str, Any]) -> str:
    given = call["input"]
    return str(Path(str(given.get("path", "")))) if isinstance(given, dict) else ""
