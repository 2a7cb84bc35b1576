"""The verb `mem`: one function an operation, for people at `daemon.sock` and for agents at `agents.sock`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from supervisor.core.errors import UsageError
from supervisor.daemon.memory import graph, importing, note_waiting, notes, pruning, search_ops
from supervisor.daemon.memory.request import Request

OPS: Mapping[str, Callable[[Request], Coroutine[Any, Any, dict[str, Any]]]] = {
    "append": notes.append,
    "approve": notes.approve,
    "brief": search_ops.brief,
    "graph": graph.graph,
    "import": importing.take,
    "log": notes.log,
    "ls": notes.ls,
    "prune": pruning.prune,
    "put": notes.put,
    "quarantine": notes.quarantine,
    "reject": notes.reject,
    "restore": notes.restore,
    "rm": notes.rm,
    "search": search_ops.search,
    "show": notes.show,
    "wait": note_waiting.wait,
}

_PARKED = (note_waiting.wait, graph.graph)
"""What waits for others, or needs nothing of the thread: it would keep its author's other requests waiting."""


async def mem(asked: Request) -> dict[str, Any]:
    """`op` is one of OPS; what else it takes and returns is said there."""
    op = OPS.get(str(asked.args.get("op")))
    if op is None:
        raise UsageError("not a request", on="op", why=f"it is one of {', '.join(OPS)}")
    if op in _PARKED:
        return await op(asked)
    async with asked.desk.turns.of(asked.author):
        answer = await op(asked)
        if op is notes.show:
            await asked.desk.search.read(asked.project, [str(answer["path"])], asked.author)
        return answer
