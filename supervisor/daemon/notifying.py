"""Tells a person what matters: looks at the journal, at who waits for an answer, at the gateway and at the caps, every few seconds, and
sends what `core.notify` says is due. What it knows is in `notices.json`, which is written before anything is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from supervisor.core import notify
from supervisor.core.errors import NightcrewError, ToolMissing
from supervisor.core.notify import Kind, Known, Message, Notice, Terms
from supervisor.daemon import notify_environment, notify_post
from supervisor.daemon.handlers import needs
from supervisor.daemon.loop import Loop
from supervisor.daemon.wakeups import was_set
from supervisor.gateway.redact import Redactor
from supervisor.host import files
from supervisor.host.clock import Clock
from supervisor.host.paths import Home
from supervisor.ledger import journal
from supervisor.ledger.ledger import Ledger

LOOK_S = 2.0
LEAVE_S = 5.0
"""So long a supervisor that leaves waits for a message that is being sent."""
ROWS = 1000
"""Of the journal at one look."""
KEPT_MAX = 2**22


def kept(home: Home) -> Known | None:
    """What the last supervisor knew; None when there is no such file, or one that nobody of us wrote."""
    try:
        data = home.notices.read_bytes()
        return notify.known(data.decode()) if len(data) <= KEPT_MAX else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


@dataclass(frozen=True, slots=True)
class Sources:
    """Where it looks, and whom it tells that a message was given up."""

    ledger: Ledger
    goes_on: Callable[[], Awaitable[list[Notice]]]
    """What is so at this moment."""
    say: Callable[[str], None]
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Where addresses of receivers are."""


class Notifying:
    """One supervisor's messages. `look` belongs to the loop's thread."""

    def __init__(self, home: Home, terms: Terms, clock: Clock, sources: Sources) -> None:
        self._home = home
        self._terms = terms
        self._clock = clock
        self._sources = sources
        found = kept(home)
        self._known = found or Known(journal.newest_entry(sources.ledger.db))  # whoever begins to listen is not told the history
        if found is None:
            self._keep(self._known)

    async def look(self) -> None:
        """Hear what is new, and send what is due. Raises LedgerError, DiskFull: nothing is lost then."""
        now = self._clock.wall()
        rows = list(journal.after(self._sources.ledger.db, self._known.cursor, ROWS))
        happened = [notice for row in rows if (notice := self._of_row(row)) is not None]
        goes_on = await self._sources.goes_on()
        known = notify.hear(self._known, happened, goes_on, now, self._terms)
        shown = time.localtime(now)
        known = notify.pack(known, now, 60 * shown.tm_hour + shown.tm_min, self._terms)
        self._move(known, rows[-1]["seq"] if rows else known.cursor)
        while (message := notify.due(self._known, self._clock.wall())) is not None:
            await self._send(message)

    def _move(self, known: Known, cursor: int) -> None:
        """A look that heard nothing is not written down: the next supervisor reads those rows once more, and hears nothing either."""
        heard = known is not self._known
        known = replace(known, cursor=cursor)
        if heard:
            self._keep(known)
        self._known = known

    def _keep(self, known: Known) -> None:
        files.atomic_write(self._home.notices, known.to_json().encode(), durable=False)
        self._known = known

    def _of_row(self, row: dict[str, Any]) -> Notice | None:
        data = {name: _without_secrets(value) if isinstance(value, str) else value for name, value in row["data"].items()}
        return notify.of_journal(row["event"], row["task"], data, row["at"], text=self._terms.text)

    async def _send(self, message: Message) -> None:
        left = [receiver for receiver in self._terms.receivers if receiver.name in message.left]
        self._keep(notify.sending(self._known, message.number, self._clock.wall()))
        answers = await notify_post.post(left, message.title, message.body, self._sources.environ)
        failed = {name: why for name, why in answers.items() if why}
        known, given_up = notify.sent(self._known, message.number, failed, self._clock.wall())
        self._keep(known)
        outcome = "given up" if given_up else "sent" if not failed else "tried"
        data = {"what": message.title, "urls": len(left), "failed": sorted(failed), "outcome": outcome}
        self._sources.ledger.journal(None, None, "notified", data)
        if given_up:
            why = "; ".join(f"{name}: {why}" for name, why in failed.items())
            self._sources.say(f"a message was given up ({why}): nightcrew notify test")


def _without_secrets(text: str) -> str:
    """To be done before text is cut: half a secret is not known as one."""
    return Redactor().clean(text)


async def goes_on(loop: Loop, terms: Terms) -> list[Notice]:
    """Who waits for a person, what a person has to mend for the gateway, and which cap is near."""
    now = loop.clock.wall()
    found = notify.cap_near("cost_per_night", loop.crew.traffic.night, now)
    for night in loop.crew.nights.values():
        if night.terms.cost_max:
            found += notify.cap_near(f"cost_max of the night {night.run}", night.spent.usd / night.terms.cost_max, now)
    if Kind.NEEDS_PERSON in terms.on:
        who = await needs.handle(loop, {})
        for mail in who["mail"]:
            subject = _without_secrets(mail["subject"]) if terms.text else mail["id"]
            found.append(notify.needs_person(mail["from"], f"asks by mail: {subject}", now))
        for one in who["agents"]:
            asks, detail = str(one["state"]).replace("_", " "), _without_secrets(one["detail"]) if terms.text else ""
            found.append(notify.needs_person(one["task"], f"{asks}: {detail}" if detail else asks, now))
        found += [notify.needs_person(one["task"], one["detail"], now) for one in who["choices"]]
    word = loop.of_gateway()
    for trouble in word.troubles if word is not None else ():
        found.append(Notice(Kind.BREAKER_OPEN, f"gateway {trouble}", notify.line(_without_secrets(trouble)), now))
    return found


@contextlib.asynccontextmanager
async def told(loop: Loop, home: Home, terms: Terms) -> AsyncIterator[None]:
    """Send messages while inside, where the settings name a receiver."""
    environ = notify_environment.take(home, terms)
    loop.try_receivers = functools.partial(notify_post.try_out, terms.receivers, environ)
    if not terms.receivers:
        home.notices.unlink(missing_ok=True)
        yield
        return
    try:
        notify_post.require()
    except ToolMissing as error:
        loop.alert(error.line())
        yield
        return
    over = asyncio.Event()
    sources = Sources(loop.ledger, lambda: goes_on(loop, terms), loop.alert, environ)
    task = asyncio.create_task(_run(loop, Notifying(home, terms, loop.clock, sources), over))
    try:
        yield
    finally:
        over.set()
        await asyncio.wait([task], timeout=LEAVE_S)
        task.cancel()
        await asyncio.wait([task])


async def _run(loop: Loop, notifying: Notifying, over: asyncio.Event) -> None:
    while not over.is_set():
        await was_set(over, LOOK_S)
        try:
            if loop.ready:
                await notifying.look()
        except NightcrewError as error:
            loop.alert(f"messages wait: {error.line()}")
