"""Notes that tasks wait for: looked at once when a task begins to wait, and at each change of theirs from then on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from memory.layout import Layout
from memory.rescan import is_file
from memory.store import Change
from supervisor.core.errors import NightcrewError
from supervisor.core.events import NoteAppeared
from supervisor.core.note_paths import size_max
from supervisor.core.task import note
from supervisor.daemon.loop import Loop

AGAIN_S = 2.0


class Desk(Protocol):
    """What this asks of its desk."""

    def layout(self, project: str) -> Layout: ...

    def follow(self, project: str) -> None: ...

    async def on_thread(self, work: Callable[[], list[str]]) -> list[str]: ...


class AwaitedNotes:
    """Of all projects. It belongs to one event loop."""

    def __init__(self, loop: Loop, desk: Desk) -> None:
        self._loop, self._desk = loop, desk
        self._pending: set[str] = set()
        self._wake = asyncio.Event()

    def look_for(self, name: str) -> None:
        """Offer `NoteAppeared` when the note is there; when it is not, its next change decides."""
        self._pending.add(name)
        self._wake.set()

    def _again(self, names: Iterable[str]) -> None:
        self._pending.update(names)
        self._wake.set()

    def changed(self, project: str, change: Change) -> None:
        """Look at a note that somebody waits for."""
        if (name := note(project, change.path)) in self._loop.crew.readers:
            self.look_for(name)

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            by_project: dict[str, list[str]] = {}
            for name in sorted(self._pending):
                by_project.setdefault(name.partition(":")[0], []).append(name)
            self._pending.clear()
            for project, names in by_project.items():
                await self._look(project, names)

    async def _look(self, project: str, names: list[str]) -> None:
        try:
            self._desk.follow(project)
            top = self._desk.layout(project).root
            found = await self._desk.on_thread(lambda: [name for name in names if _is_there(top, name)])
        except (NightcrewError, OSError) as error:  # a full disk, or no handle left: it is looked at again
            self._loop.alert(f"memory of {project}: {error.line() if isinstance(error, NightcrewError) else error}")
            asyncio.get_running_loop().call_later(AGAIN_S, self._again, names)
            return
        if found:
            self._loop.events(map(NoteAppeared, found))


def _is_there(top: Path, name: str) -> bool:
    path = name.partition(":")[2]
    return is_file(top, f"memory/{path}", size_max(path))
