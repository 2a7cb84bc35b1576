"""What an agent takes, in words, from its account. Standard library only: `status` imports this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from supervisor.core.units import size
from supervisor.faces.status import age
from supervisor.ledger.queries import TaskView

_WHERE = (
    ("model_s", "at models"),
    ("token_queue_s", "waiting for tokens"),
    ("human_s", "waiting for a person"),
    ("paused_s", "paused"),
    ("local_s", "its own work"),
)


def facts(view: TaskView) -> Iterator[tuple[str, str]]:
    """What its newest attempt took, a name and a text each."""
    account = view.account or {}
    sizes = [("now", account.get("memory") if not view.final else None), ("at most", account.get("peak_memory"))]
    said = [f"{name} {_size(value)}" for name, value in [*sizes, ("expected", view.memory_expected)] if value]
    if said and view.epoch:
        yield "memory", ", ".join(said)
    if cpu_s := account.get("cpu_s"):
        tools = account.get("tool_cpu_s")
        yield "processor", f"{age(cpu_s)}" + (f", {age(tools)} of it by tools" if tools else "")
    if account.get("peak_gpu_memory"):
        share = account.get("gpu_utilisation")
        yield "gpu", f"at most {_size(account['peak_gpu_memory'])}" + ("" if share is None else f", {share:.0%} used")
    if account.get("wall_s") is not None:
        yield "time", spent(account)


def spent(account: Mapping[str, Any]) -> str:
    """Where the time of an attempt went: `3m20s: 2m at models, 40s waiting for tokens, 40s its own work; before that 5s in the queue`."""
    spent = ", ".join(f"{age(account[key])} {words}" for key, words in _WHERE if (account.get(key) or 0) >= 1)
    queued = account.get("slot_queue_s") or 0
    return age(account["wall_s"]) + (f": {spent}" if spent else "") + (f"; before that {age(queued)} in the queue" if queued >= 1 else "")


def _size(value: int | None) -> str:
    return size(value) if value else ""
