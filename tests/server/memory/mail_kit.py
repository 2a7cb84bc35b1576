"""A desk for mail with a real ledger and real files, without the rest of a supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar

from memory import mail as mail_rows
from memory.files import Layout
from memory.lease_rows import Waits
from memory.service import mail_requests
from memory.service.mail import MailDesk
from memory.service.mail_requests import Asker
from memory.service.waits import WaitDesk
from supervisor.host import files
from supervisor.host.clock import SystemClock
from supervisor.kernel.conversations import DeliveryState
from supervisor.kernel.crew import Crew
from supervisor.kernel.decision import MarkRunning, Start
from supervisor.kernel.states import TaskState
from supervisor.store.ledger import Ledger
from tests.store.kit import RUN, ended, spec, submit

T = TypeVar("T")
P = ParamSpec("P")
PROJECT = "0123456789ab"
A, B, C, AGENT = (f"{RUN}/{name}" for name in ("a", "b", "c", "agent"))
"""Three tasks whose agents read by the socket, and one that is given texts."""
PERSON = Asker("person", PROJECT)


class Typist:
    """Keeps texts for agents in the ledger, and types none."""

    def __init__(self, ledger: Ledger) -> None:
        self._rows = ledger.deliveries

    def post(self, task: str, text: str, mails: Collection[str]) -> object:
        return self._rows.keep([task], text, mails)[0]

    async def withdraw(self, number: int, why: str) -> bool:
        if self._rows.one(number).state is not DeliveryState.PENDING:
            return False
        self._rows.ended(number, DeliveryState.DROPPED, why)
        return True


class Clock(SystemClock):
    """The machine's, some seconds ahead."""

    ahead = 0.0

    def wall(self) -> float:
        return time.time() + self.ahead


@dataclass
class Kit:
    desk: MailDesk
    ledger: Ledger
    clock: Clock
    loop: Any
    layout: Layout
    said: list[str] = field(default_factory=list)

    async def ask(self, who: str | Asker, op: str, **args: Any) -> dict[str, Any]:
        asker = who if isinstance(who, Asker) else Asker(who, PROJECT, 1)
        return await mail_requests.ask(self.desk, asker, {"op": op, **args})

    async def send(self, who: str | Asker, to: str, text: str = "hello", **args: Any) -> str:
        return str((await self.ask(who, "send", to=to, text=text, **args))["mail"]["id"])

    async def step(self) -> None:
        """What the desk does from time to time."""
        await self.desk.step()

    def runs(self, task: str, epoch: int = 1) -> None:
        """An attempt of a task lives."""
        self.ledger.commit([Start(task, epoch, "again" if epoch > 1 else ""), MarkRunning(task, epoch)])
        self.loop.crew = Crew(self.ledger.unfinished(0.0))

    def ends(self, task: str, epoch: int = 1, state: TaskState = TaskState.DONE) -> None:
        self.ledger.commit(ended(task, epoch, state=state))
        self.loop.crew = Crew(self.ledger.unfinished(0.0))

    def state(self, mail: str) -> str:
        found = mail_rows.one(self.ledger.db, mail)
        return str(found.state) if found is not None else "none"

    def file(self, owner: str, name: str) -> Path:
        """Where somebody puts a file of his own."""
        folder = self.layout.mailbox(owner) / "new"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / name

    async def boxes(self, owner: str) -> dict[str, list[str]]:
        """Names of the files of a mailbox that are not hidden, once they are in their places."""
        while self.desk.under_way:
            await asyncio.wait(self.desk.under_way)
        place = self.layout.mailbox(owner)
        found = {box: (place / box).glob("[!.]*") if (place / box).is_dir() else () for box in ("new", "cur")}
        return {box: sorted(file.name for file in files) for box, files in found.items()}


@contextlib.asynccontextmanager
async def mail_desk(root: Path, *, recovered: bool = True) -> AsyncIterator[Kit]:
    """The same `root` again is the next supervisor. Not `recovered`: nobody was there yet to look what the one before left."""
    clock, fresh = Clock(), not (root / "ledger.db").exists()
    with contextlib.closing(Ledger(root / "ledger.db", clock.wall)) as ledger:
        if fresh:
            submit(ledger, "a", "b", "c", spec("agent", kind="claude", argv=(), prompt="work"))
        layout = Layout(root / "project")
        for folder in (layout.root, layout.mail):
            files.private_dir(folder)
        said: list[str] = []
        thread = ThreadPoolExecutor(1, "memory")
        loop: Any = SimpleNamespace(
            ledger=ledger,
            clock=clock,
            crew=Crew(ledger.unfinished(0.0)),
            alert=said.append,
            ready=True,
            agents=SimpleNamespace(sending=Typist(ledger)),
        )
        waits = WaitDesk(ledger.of(Waits), loop.crew, clock, lambda one: said.append(str(one)))

        async def on_thread(work: Callable[[], T]) -> T:
            return await asyncio.get_running_loop().run_in_executor(thread, work)

        desk = MailDesk(loop, waits, on_thread, lambda _: layout)
        if recovered:
            await desk.recover()
        yield Kit(desk, ledger, clock, loop, layout, said)
        waits.close()
        thread.shutdown()


def in_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine, in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def eventually(condition: Callable[[], object], what: str) -> None:
    """As `tests.support.wait_until`, while the loop goes on."""
    deadline = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        await asyncio.sleep(0.01)
