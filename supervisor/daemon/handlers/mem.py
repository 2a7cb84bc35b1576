"""The memory of a project, for people."""

from __future__ import annotations

import re
from typing import Any

from supervisor.core.errors import UsageError
from supervisor.daemon.memory import verbs
from supervisor.daemon.memory.desk import MemoryDesk
from supervisor.daemon.memory.request import PERSON, Request

_PROJECT = re.compile(r"[0-9a-f]{12}")


async def handle(desk: MemoryDesk, args: dict[str, Any]) -> dict[str, Any]:
    """`project`, also one in which nothing was run yet, and what `verbs.mem` takes. Raises UsageError for what no project is called."""
    return await verbs.mem(Request(desk, project_of(args), PERSON, None, args))


def project_of(args: dict[str, Any]) -> str:
    """The project that a request names. Raises UsageError for what none is called."""
    project = str(args.get("project"))
    if not _PROJECT.fullmatch(project):
        raise UsageError("not a request", on="project", why="it is 12 hex digits")
    return project
