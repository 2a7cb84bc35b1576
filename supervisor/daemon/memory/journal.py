"""The changes of the memories as lines of the ledger's journal: one line for all of a second, however many there are."""

from __future__ import annotations

import asyncio
from collections import Counter

from memory.store import Change
from supervisor.core.errors import NightcrewError
from supervisor.daemon.loop import Loop

EVERY_S = 1.0
NAMED = 20
"""Changes of a project that one line names; it counts the others."""
EVENT = "memory changed"


class ChangeJournal:
    """Of all projects. It belongs to one event loop."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._counts: Counter[str] = Counter()
        self._named: dict[str, list[dict[str, object]]] = {}
        self._wake = asyncio.Event()

    def add(self, project: str, change: Change) -> None:
        """Write it down soon."""
        self._counts[project] += 1
        named = self._named.setdefault(project, [])
        if len(named) < NAMED:
            named.append({key: getattr(change, key) for key in ("number", "path", "action", "author", "version")})
        self._wake.set()

    async def run(self) -> None:
        """Write, until cancelled; what is left then is written too."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                self._write()
                await asyncio.sleep(EVERY_S)
        finally:
            self._write()

    def _write(self) -> None:
        for project, count in list(self._counts.items()):
            named = self._named[project]
            data = {"project": project, "changes": named, **({"more": count - len(named)} if count > len(named) else {})}
            try:
                self._loop.ledger.journal(None, None, EVENT, data)
            except NightcrewError as error:  # the versions say it too; the line is written with the next change
                self._loop.alert(error)
                return
            del self._counts[project], self._named[project]
