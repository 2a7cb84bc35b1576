"""What an agent may ask about the tasks below its own."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from supervisor.core.errors import Refused, UsageError
from supervisor.core.states import FINAL
from supervisor.daemon import handlers
from supervisor.daemon.agent_verbs.asked import Asked
from supervisor.ledger import queries

WAIT_MAX_S = 600.0
"""Of one request; who waits longer asks again, and misses nothing."""
LOOK_S = 0.1
WAITERS_MAX = 64
"""Requests of one task that wait at the same moment."""
RESULT_MAX = 2**18
TEXT_MAX = 128 * 2**10


async def listed(asked: Asked) -> dict[str, Any]:
    """`tasks`: all below its own, oldest first: `task`, `name`, `title`, `state`, `reason`, `parent`, `ended`."""
    return {"tasks": [_shape(asked, name) for name in asked.descendants()]}


async def wait(asked: Asked) -> dict[str, Any]:
    """`tasks`; `timeout_s`, at most WAIT_MAX_S; `any`: until one of them has ended, and not all. Returns `ended` and `unfinished`, as
    `listed`, also when the time ran out; asking again goes on waiting."""
    names, timeout_s = asked.meant(asked.args.get("tasks")), asked.args.get("timeout_s", WAIT_MAX_S)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 <= timeout_s <= WAIT_MAX_S:
        raise UsageError("not a request", on="timeout_s", why=f"a number of seconds, at most {WAIT_MAX_S:.0f}")
    enough = 1 if asked.args.get("any") else len(names)
    if asked.waiting[asked.task] >= WAITERS_MAX:
        raise Refused("too many wait already", on=asked.task, why=f"{WAITERS_MAX} requests of one task")
    asked.waiting[asked.task] += 1
    try:
        ends_at = asked.loop.clock.monotonic() + timeout_s
        left = [name for name in names if not _ended(asked, name)]
        while len(names) - len(left) < enough and asked.loop.clock.monotonic() < ends_at:
            await asyncio.sleep(LOOK_S)
            left = [name for name in left if not _ended(asked, name)]
    finally:
        asked.waiting[asked.task] -= 1
        if not asked.waiting[asked.task]:
            del asked.waiting[asked.task]
    shapes = [_shape(asked, name) for name in names]
    return {"ended": [one for one in shapes if one["ended"]], "unfinished": [one for one in shapes if not one["ended"]]}


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


def _ended(asked: Asked, name: str) -> bool:
    task = asked.loop.crew.tasks.get(name) or asked.loop.ledger.task(name, 0.0)
    return task.state in FINAL


def _shape(asked: Asked, name: str) -> dict[str, Any]:
    view = queries.one(asked.db, name)
    shape = {key: getattr(view, key) for key in ("name", "title", "state", "reason", "parent")}
    return {"task": name, **shape, "ended": view.final}
