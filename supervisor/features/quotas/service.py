"""Hand out tickets of named quotas."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from memory.service.waits import LONGEST_S
from supervisor.features.quotas.rules import Quotas
from supervisor.host import files, processes, untrusted_fs
from supervisor.host.clock import Clock
from supervisor.kernel.codec import Bound
from supervisor.kernel.errors import NotFound, Refused
from supervisor.kernel.gateway_settings import Quota
from supervisor.kernel.leases import WaitKind
from supervisor.server.gateway import Models

if TYPE_CHECKING:
    from supervisor.contract import Supervisor
    from supervisor.server.agent_requests import Asked
    from supervisor.server.loop import Loop


# Quotas
# ------
# Hands out tickets of quotas. What is left of each quota is on disk before a ticket is handed out, so whatever is killed, no more
# of them are given than the quota allows.
#
# After a restart each quota has what it had, and what it gained since by the machine's monotonic clock; after a reboot, when nobody
# knows how long it was off, just what it had. A file that cannot be read means that nothing is left.


SCHEMA = 1
WAITERS_MAX = 64
"""That one task may have."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A ticket, or the seconds until there is one for somebody who comes now."""

    taken: bool
    next_s: float = 0.0
    waited_s: float = 0.0

    def shape(self, name: str) -> dict[str, Any]:
        """As it crosses the socket."""
        numbers = {"waited_s": round(self.waited_s, 3)} if self.taken else {"next_s": round(self.next_s, 3)}
        return {"quota": name, "taken": self.taken, **numbers}


class QuotaDesk:
    """One supervisor's. It belongs to one event loop; `close` it."""

    def __init__(self, file: Path, quotas: Iterable[Quota], clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._quotas, self.trouble = _restored(file, tuple(quotas), clock.monotonic())
        """`trouble`: what a person should know of the file, or nothing."""
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._parties: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, "quotas")
        self._writing = asyncio.Lock()
        self._given, self._kept = 0, 0

    def close(self) -> None:
        """Hand out nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        self._thread.shutdown(wait=False)

    async def take(self, name: str, party: str, wait_s: float | None) -> Answer:
        """A ticket of quota `name` for `party` (a task's id; empty for a person), after at most `wait_s` seconds; None waits for ever.

        Raises NotFound with the nearest name, Refused when the party waits WAITERS_MAX times already, DiskFull. A ticket that nobody
        was told of, because the caller was cancelled or the disk was full, is spent.
        """
        if name not in self._quotas.names:
            raise _unknown(name, self._quotas.names)
        since = self._clock.monotonic()
        next_s = self._quotas.take(name, since)
        if next_s and wait_s != 0.0:
            next_s = await self._in_queue(name, party, wait_s)
        if next_s:
            return Answer(taken=False, next_s=next_s)
        await self._keep()
        return Answer(taken=True, waited_s=self._clock.monotonic() - since)

    async def _in_queue(self, name: str, party: str, wait_s: float | None) -> float:
        """Wait for one's turn. 0, or the seconds until the next ticket when the time ran out."""
        if self._parties[party] >= WAITERS_MAX:
            raise Refused("too many wait already", on=name, why=f"{WAITERS_MAX} requests of one task", hint=f"nightcrew quota {name}")
        number = next(self._numbers)
        turn = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._parties[party] += 1
        self._quotas.wait(name, party, number)
        self._serve()
        try:
            await asyncio.wait_for(turn, wait_s)
        except TimeoutError:
            self._quotas.leave(name, number)
            return max(self._quotas.next_s(name, self._clock.monotonic()), 1e-3)
        finally:
            self._quotas.leave(name, number)
            del self._waiting[number]
            self._parties[party] -= 1
        return 0.0

    def _serve(self) -> None:
        """Serve every waiter for whom there is a ticket, and set a timer for the next."""
        now = self._clock.monotonic()
        for grant in self._quotas.granted(now):
            turn = self._waiting[grant.waiter]
            if not turn.done():
                turn.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
        due = self._quotas.wakes_at(now)
        self._timer = None if due is None else asyncio.get_running_loop().call_later(max(0.0, due - now), self._serve)

    async def _keep(self) -> None:
        """Write to disk what is left; tickets that are taken meanwhile share the next write."""
        self._given += 1
        mine = self._given
        async with self._writing:
            if self._kept < mine:
                given, now = self._given, self._clock.monotonic()
                shape = {"schema": SCHEMA, "boot_id": processes.boot_id(), "at": now, "levels": self._quotas.levels(now)}
                await asyncio.get_running_loop().run_in_executor(self._thread, files.atomic_write, self._file, json.dumps(shape).encode())
                self._kept = given


def _unknown(name: str, known: Iterable[str]) -> NotFound:
    near = difflib.get_close_matches(name, names := sorted(known), n=1)
    if not names:
        return NotFound("no quota is called", on=name, why="config.toml has no [quota] tables", hint="nightcrew doctor shows the file")
    return NotFound("no quota is called", on=name, why=f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}")


def _restored(file: Path, quotas: tuple[Quota, ...], now: float) -> tuple[Quotas, str]:
    data = untrusted_fs.read_plain(file, 2**20)
    if data is None:
        return Quotas(quotas, now), ""
    try:
        shape = json.loads(data)
        if shape["schema"] != SCHEMA:
            raise ValueError(f"its schema is {shape['schema']}")
        levels = {str(name): float(level) for name, level in dict(shape["levels"]).items()}
        at = float(shape["at"]) if shape["boot_id"] == processes.boot_id() else now
        return Quotas(quotas, min(at, now), levels), ""
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        nothing = {quota.name: 0.0 for quota in quotas}
        return Quotas(quotas, now, nothing), f"{file} cannot be read ({type(error).__name__}), so every quota starts with nothing left"


# Quota
# -----
# A ticket of a named quota, for a person or a script of theirs.


NOBODY = ""
"""Whoever is no task stands in one line of the queue."""


async def handle(loop: Loop, *, quota: str, wait_s: Annotated[float, Bound(0)] | None) -> dict[str, Any]:
    """`quota`: its name. `wait_s`: how long to wait at most, None for ever, 0 not at all. Returns `taken`, and `waited_s` or `next_s`."""
    return (await loop.services.get(QuotaDesk).take(quota, NOBODY, wait_s)).shape(quota)


LATE_S = 5.0
"""Beyond the time-out of a quota, which gives up its turn by itself."""


async def ask(asked: Asked, *, quota: str, wait_s: Annotated[float, Bound(0)] | None) -> dict[str, Any]:
    """A ticket of a named quota, as the verb of the same name gives people; the tasks that wait take turns."""
    take, what = asked.loop.services.get(QuotaDesk).take, f"quota {quota}"
    found = await take(quota, asked.task, 0)
    if found.taken:
        asked.memory.waits.answered(asked.task, asked.epoch, WaitKind.RATE, what)
    elif wait_s != 0:
        async with asked.waits(WaitKind.RATE, what, (), LONGEST_S if wait_s is None else wait_s + LATE_S):
            found = await take(quota, asked.task, wait_s)
    return found.shape(quota)


@contextlib.asynccontextmanager
async def serve(supervisor: Supervisor) -> AsyncIterator[None]:
    """Hand out tickets inside."""
    loop = supervisor.loop
    desk = QuotaDesk(supervisor.home.quotas, loop.services.get(Models).now().quotas, loop.clock)
    loop.services.put(desk)
    if desk.trouble:
        loop.alert(desk.trouble)
    with contextlib.closing(desk):
        yield
