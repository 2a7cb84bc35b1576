"""What people ask of the memory of a project: notes, mail, leases and waits. Each verb takes the desk and its words."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from supervisor.daemon.handlers import mail, mem
from supervisor.daemon.memory import lease_verbs
from supervisor.daemon.memory.desk import MemoryDesk


async def watch(desk: MemoryDesk, _: dict[str, Any]) -> dict[str, Any]:
    """How changes on the disk are seen: `overflows`, how often the kernel dropped events since the supervisor started."""
    return {"overflows": desk.watch.overflows}


VERBS: Mapping[str, Callable[[MemoryDesk, dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]] = {
    "mem": mem.handle,
    "lease": lease_verbs.of_person,
    "mail": mail.handle,
    "watch": watch,
}
"""They stop when whoever asked is gone."""
