"""What an agent may ask about the tasks below its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from supervisor.core.errors import TimedOut, UsageError
from supervisor.core.states import FINAL
from supervisor.core.wait_graph import WaitKind
from supervisor.daemon import handlers
from supervisor.daemon.agent_verbs.asked import Asked
from supervisor.ledger import queries

WAIT_MAX_S = 600.0
"""Of one request; who waits longer asks again, and misses nothing."""
LOOK_S = 0.1
RESULT_MAX = 2**18
TEXT_MAX = 128 * 2**10


async def listed(asked: Asked) -> dict[str, Any]:
    """`tasks`: all below its own, oldest first: `task`, `name`, `title`, `state`, `reason`, `parent`, `ended`."""
    return {"tasks": [_shape(asked, name) for name in asked.descendants()]}


async def wait(asked: Asked) -> dict[str, Any]:
    """`tasks`; `timeout_s`, at most WAIT_MAX_S; `any`: until one of them has ended, and not all. Returns `ended` and `unfinished`, as
    `listed`, also when the time ran out; asking again goes on waiting. Raises Deadlock when they wait for this task."""
    names, timeout_s = asked.meant(asked.args.get("tasks")), asked.args.get("timeout_s", WAIT_MAX_S)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 <= timeout_s <= WAIT_MAX_S:
        raise UsageError("not a request", on="timeout_s", why=f"a number of seconds, at most {WAIT_MAX_S:.0f}")
    any_of = bool(asked.args.get("any"))
    left = _unfinished(asked, names)
    if timeout_s and left and not (any_of and len(left) < len(names)):
        with contextlib.suppress(TimedOut):
            await _until_ended(asked, names, left, timeout_s, any_of=any_of)
    else:
        asked.memory.waits.answered(asked.task, asked.epoch, WaitKind.TASK, ", ".join(names))
    shapes = [_shape(asked, name) for name in names]
    return {"ended": [one for one in shapes if one["ended"]], "unfinished": [one for one in shapes if not one["ended"]]}


async def _until_ended(asked: Asked, names: list[str], left: list[str], timeout_s: float, *, any_of: bool) -> None:
    many = len(left)
    async with asked.waits(WaitKind.TASK, ", ".join(names), left, timeout_s, any_of=any_of) as number:
        while left and not (any_of and len(left) < many):
            await asyncio.sleep(LOOK_S)
            left = _unfinished(asked, left)
            asked.memory.waits.change_holders(number, left)


async def result(asked: Asked) -> dict[str, Any]:
    """`tasks`: one of them. Returns its `task`, `title`, `state`, `reason` and `result`, as in result.json, null before its first attempt
    has ended."""
    name = asked.meant(asked.args.get("tasks"))[0]
    shape = {**_shape(asked, name), "result": queries.one(asked.db, name).result}
    if len(json.dumps(shape)) > RESULT_MAX:
        shape["result"] = {**shape["result"], "output": None, "agent": None, "notes": ["output and agent are too large to be handed over"]}
    return shape


async def send(asked: Asked) -> dict[str, Any]:
    """`tasks`, and `text`, as `nightcrew send`; returns what became of each."""
    text = asked.args.get("text")
    if not isinstance(text, str) or len(text.encode("utf-8", "replace")) > TEXT_MAX:
        raise UsageError("not a request", on="text", why=f"text of at most {TEXT_MAX} bytes")
    from agents.tmux import typed_text

    args = {"tasks": asked.meant(asked.args.get("tasks")), "text": typed_text(text), "now": bool(asked.args.get("now")), "some": False}
    return await handlers.send.handle(asked.loop, args)


async def kill(asked: Asked) -> dict[str, Any]:
    """`tasks`, as `nightcrew kill`: what was added below them ends too."""
    return await handlers.kill.handle(asked.loop, {"tasks": asked.meant(asked.args.get("tasks"))})


def _unfinished(asked: Asked, names: list[str]) -> list[str]:
    return [name for name in names if not _ended(asked, name)]


def _ended(asked: Asked, name: str) -> bool:
    task = asked.loop.crew.tasks.get(name) or asked.loop.ledger.task(name, 0.0)
    return task.state in FINAL


def _shape(asked: Asked, name: str) -> dict[str, Any]:
    view = queries.one(asked.db, name)
    shape = {key: getattr(view, key) for key in ("name", "title", "state", "reason", "parent")}
    return {"task": name, **shape, "ended": view.final}
