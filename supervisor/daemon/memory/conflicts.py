"""Who is told when two texts of one note did not fit, and when an agent's text waits for a person."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from memory import layout
from memory.store import QUARANTINE, Action, Change, Store
from supervisor.core.errors import NightcrewError

PERSON = "person"
UNTOLD_MAX = 1000


class Desk(Protocol):
    """What is asked of the desk."""

    async def of(self, project: str, work: Any) -> Any: ...

    @property
    def mail(self) -> Any: ...


class ConflictNotices:
    """Of all projects. It belongs to one event loop."""

    def __init__(self, desk: Desk, alert: Callable[[str], None]) -> None:
        self._desk, self._alert = desk, alert
        self._untold: deque[tuple[str, Change]] = deque(maxlen=UNTOLD_MAX)
        self._wake = asyncio.Event()

    def changed(self, project: str, change: Change) -> None:
        """See `MemoryDesk.on_change`."""
        if change.action in (Action.CONFLICT, Action.QUARANTINE):
            self._untold.append((project, change))
            self._wake.set()

    async def run(self) -> None:
        """Send mail, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._untold:
                project, change = self._untold.popleft()
                try:
                    await (self._conflict(project, change) if change.action is Action.CONFLICT else self._proposal(project, change))
                except NightcrewError as error:  # the log of the memory says it too
                    self._alert(f"nobody is told of {change.path}: {error.line()}")

    async def _conflict(self, project: str, change: Change) -> None:
        path = layout.meant(change.path)
        other = await self._desk.of(project, lambda store: _writer(store, path, change.number))
        text = (
            f"{change.author} wrote {path} without knowing what {other} had written there. Both are kept: {path} as {other} left it, "
            f"and the other text as {change.path}. Merge them into {path}, then remove {change.path}."
        )
        for to in dict.fromkeys(PERSON if who == "unknown" else who for who in (change.author, other)):
            await self._desk.mail.tell(project, to, f"conflict about {path}", text, key=f"conflict {change.number} {to}")

    async def _proposal(self, project: str, change: Change) -> None:
        path = change.path.removeprefix(QUARANTINE)
        text = (
            f"{change.author} wrote {path}. No agent reads it until you approve it: nightcrew mem show quarantine/{path}, "
            f"nightcrew mem approve {path}."
        )
        await self._desk.mail.tell(project, PERSON, f"{path} waits for you", text, key=f"quarantine {change.path}")


def _writer(store: Store, path: str, before: int) -> str:
    """Who wrote what is there."""
    return next((change.author for change in store.changes(path, 20) if change.number < before and change.version), "unknown")
