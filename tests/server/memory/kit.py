"""A desk of the memory with a real ledger and real files, without the rest of a supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from memory.service import notes
from memory.service.desk import PACE, MemoryDesk, Pace
from memory.service.notes import REQUEST_PERSON, Request
from supervisor.host.clock import Clock, SystemClock
from supervisor.host.paths import Home
from supervisor.kernel.crew import Crew
from supervisor.kernel.events import Event
from supervisor.kernel.settings import Settings
from supervisor.server.loop import Alerts, Loop
from supervisor.store.ledger import Ledger

PROJECT = "0123abcd"


@dataclass
class LoopOfDesk:
    """What a desk asks of the loop."""

    ledger: Ledger
    clock: Clock
    alerts: Alerts = field(default_factory=Alerts)
    crew: Crew = field(default_factory=Crew)
    offered: list[Event] = field(default_factory=list)
    settings: Settings = field(default_factory=Settings)
    jobs: SimpleNamespace = field(default_factory=SimpleNamespace)
    ready: bool = False
    """True: mail is kept."""
    later: Callable[[Event], None] = lambda _: None

    def alert(self, text: str) -> None:
        self.alerts.say(text)

    def events(self, events: Any) -> None:
        self.offered += events


@dataclass
class Kit:
    desk: MemoryDesk
    loop: LoopOfDesk
    home: Home
    journals: list[tuple[str, str]] = field(default_factory=list)
    """What `journal` gives at the end."""

    @property
    def memory(self) -> Path:
        return self.home.memory(PROJECT)

    def journal(self) -> list[tuple[str, str]]:
        return [tuple(row) for row in self.loop.ledger.db.execute("SELECT event, data FROM journal ORDER BY rowid")]

    def write(self, path: str, text: str) -> None:
        """As a person's editor does."""
        (self.memory / path).parent.mkdir(parents=True, exist_ok=True)
        (self.memory / path).write_text(text)

    async def followed(self) -> None:
        """Until the project is watched, and its files were looked at once."""
        self.desk.follow(PROJECT)
        await eventually(lambda: self.desk.watch.walks >= 1, "the first walk")

    async def mem(self, op: str, author: str = REQUEST_PERSON, **args: Any) -> dict[str, Any]:
        return dict(await notes.mem(Request(self.desk, PROJECT, author, None), {"op": op, **args}))


async def eventually(condition: Callable[[], object], what: str, timeout_s: float = 40.0) -> None:
    """As `tests.support.wait_until`, while the loop goes on."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def memory_desk(root: Path, pace: Pace = PACE) -> AsyncIterator[Kit]:
    home = Home(root / "home")
    home.root.mkdir(exist_ok=True)
    clock = SystemClock()
    with contextlib.closing(Ledger(home.ledger, clock.wall)) as ledger:
        ledger.know_project(PROJECT, "/repo", "/repo/.git")
        loop = LoopOfDesk(ledger, clock)
        desk = MemoryDesk(cast(Loop, loop), home, pace=pace)
        kit = Kit(desk, loop, home)
        async with desk.kept():
            yield kit
        kit.journals = kit.journal()
