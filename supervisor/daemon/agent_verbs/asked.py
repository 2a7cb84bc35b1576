"""One request of an agent, and which tasks it may speak of."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from supervisor.core.errors import NotFound, UsageError
from supervisor.core.wait_graph import WaitKind
from supervisor.daemon.agent_verbs.rate import AddRate
from supervisor.daemon.loop import Loop
from supervisor.daemon.mapping.desk import MapDesk
from supervisor.daemon.memory.desk import MemoryDesk
from supervisor.host.paths import Home
from supervisor.ledger import added_tasks


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of a living attempt. `args` is the agent's own text: nothing of it is to be believed."""

    loop: Loop
    task: str
    epoch: int
    args: dict[str, Any]
    home: Home
    adds: AddRate
    maps: MapDesk
    memory: MemoryDesk

    @property
    def db(self) -> sqlite3.Connection:
        """The ledger, for queries."""
        return self.loop.ledger.db

    def waits(
        self, kind: WaitKind, what: str, holders: Iterable[str], timeout_s: float, *, any_of: bool = False
    ) -> AbstractAsyncContextManager[int]:
        """`WaitDesk.waiting` for this agent."""
        project = self.loop.ledger.launch_row(self.task).project
        return self.memory.waits.waiting(project, self.task, self.epoch, kind, what, holders, timeout_s, any_of=any_of)

    def descendants(self) -> list[str]:
        """Full ids of the tasks that the agents of this task added by now, with those that were added below them; parents first."""
        found = [self.task]
        for name in found:  # grows while it is walked
            found += added_tasks.children(self.db, name)
        return found[1:]

    def meant(self, names: Any) -> list[str]:
        """The full ids of these descendants: each is an id, or the name of a child of its own, the newest one. Raises UsageError, and
        NotFound for whatever is not below this task."""
        if not isinstance(names, list) or not names:
            raise UsageError("not a request", why="tasks is a list of at least one id")
        known = self.descendants()
        short = {name.partition("/")[2]: name for name in added_tasks.children(self.db, self.task)}
        found = [name if name in known else short.get(name, "") for name in map(str, names)]
        if "" in found:
            raise NotFound("none of its tasks is called", on=str(names[found.index("")])[:100], why="an agent sees what it added itself")
        return list(dict.fromkeys(found))
