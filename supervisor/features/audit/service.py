"""Writes anchors: every few seconds the audit log gets digests of the rows that came since, by one thread beside the loop.

Nothing waits for it. A row is durable in its own file when it is acted upon; what no anchor has yet, after a crash too, gets one at the
next look. (docs/decisions/0029-the-audit-log-proves-rows-and-does-not-copy-them.md)
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.contract import Proof
from supervisor.features.audit import rows as audit_rows
from supervisor.features.audit import rules as audit_rules
from supervisor.features.audit.rows import JOURNAL, Followed
from supervisor.features.audit.rules import Place
from supervisor.gateway.account.writer import CALLS
from supervisor.host import audit_log
from supervisor.host.audit_log import Audit
from supervisor.kernel.errors import NightcrewError
from supervisor.kernel.format import rfc3339
from supervisor.server.wakeups import was_set
from supervisor.store import sqlite

if TYPE_CHECKING:
    from supervisor.contract import Supervisor
    from supervisor.host.clock import Clock
    from supervisor.host.paths import Home

EVERY_S = 5.0
_AT_ONCE = 20
"""Anchors of one sync."""


class Anchoring(Proof):
    """One supervisor's. Belongs to one thread a time."""

    def __init__(self, home: Home, secret: bytes, clock: Clock) -> None:
        self._files = ((JOURNAL, home.ledger), (CALLS, home.gateway_account))
        self._audit = Audit(home.audit, secret, clock, "supervisor")
        self._clock = clock
        self._places: dict[str, Place] | None = None
        self._home, self._secret = home, secret

    @property
    def proven(self) -> int:
        """Up to which row of the journal the audit log proves all of them; 0 before the first step."""
        return (self._places or {}).get(JOURNAL.name, Place()).last

    def step(self) -> str:
        """Anchor what is new; what a person should know, empty when all is well. Blocks. Raises NightcrewError; the next step makes up."""
        told = ""
        if self._places is None:
            known = places(self._home, self._secret)
            told = self._begin(known)
            self._places = known
        return "; ".join(filter(None, (told, *(self._follow(what, path, self._places) for what, path in self._files if path.exists()))))

    def _begin(self, known: dict[str, Place]) -> str:
        """Note which rows a supervisor before must have anchored and no record proves, so that it stays visible once they are anchored."""
        now, said = self._clock.wall(), list[tuple[str, dict[str, Any]]]()
        supervised = audit_rows.supervised(self._home.ledger, now)
        for what, path in self._files:
            place = known.get(what.name)
            if place == Place():
                continue  # the table was recovered, and is to be anchored anew
            last, before = (0, now - audit_rows.SETTLING_S) if place is None else (place.last, supervised - audit_rows.OVERDUE_S)
            if (found := audit_rows.unproven(path, what, last, before, now)) is not None:
                said.append((audit_rules.UNPROVEN, {"table": what.name, "rows": found[0], "since": rfc3339(found[1])}))
        if said:
            self._audit.note_all(said)
        return "; ".join(
            f"the audit log did not prove {data['rows']} rows of the {data['table']} since {data['since']}: was it cut or put back?"
            for _, data in said
        )

    def _follow(self, what: Followed, path: Path, known: dict[str, Place]) -> str:
        with contextlib.closing(sqlite.connect_readonly(path, book=what.book)) as db:
            place = known.get(what.name, Place())
            newest = audit_rows.newest(db, what)
            cut = newest < place.last
            known[what.name] = Place(newest, tuple(number for number in place.open if number <= newest)) if cut else place
            while self._anchor(db, what, known):
                pass
        return f"{path} ends at row {newest}, and the audit log knows {place.last}: it was cut or put back" if cut else ""

    def _anchor(self, db: sqlite3.Connection, what: Followed, known: dict[str, Place]) -> bool:
        """Write one sync's worth; whether there may be more."""
        said: list[tuple[str, dict[str, Any]]] = []
        place = known.get(what.name, Place())
        while len(said) < _AT_ONCE:
            rows, after = audit_rows.fresh(db, what, place, self._clock.wall())
            if not rows:
                break
            said.append((audit_rules.EVENT, audit_rules.anchor(what.name, rows, after.open)))
            place = after
        if said:
            self._audit.note_all(said)
        known[what.name] = place
        return len(said) == _AT_ONCE


def places(home: Home, secret: bytes) -> dict[str, Place]:
    """How far each table is anchored, by the log; one that was recovered since begins anew."""
    found: dict[str, Place] = {}
    for record in audit_log.events(home.audit, secret, lambda event: event == audit_rules.EVENT or event.endswith(" recovered")):
        if record["event"] == audit_rules.EVENT:
            known = audit_rules.read(record["data"])
            found[known.table] = known.place
        else:
            found[audit_rules.RECOVERED.get(str(record["event"]).partition(" ")[0], "")] = Place()
    return found


@contextlib.asynccontextmanager
async def serve(supervisor: Supervisor) -> AsyncIterator[None]:
    """Anchor every few seconds inside, and once more at the end."""
    over, loop = asyncio.Event(), supervisor.loop
    loop.services.put(anchoring := Anchoring(supervisor.home, supervisor.secret, loop.clock), Proof)
    task = asyncio.get_running_loop().create_task(_keep(anchoring, loop.alert, over))
    try:
        yield
    finally:
        over.set()
        await asyncio.wait([task])


async def _keep(anchoring: Anchoring, say: Callable[[str], None], over: asyncio.Event) -> None:
    while True:
        last = over.is_set()
        try:
            if told := await asyncio.to_thread(anchoring.step):
                say(told)
        except NightcrewError as error:
            say(f"the audit log falls behind: {error.line()}")
        if last:
            return
        await was_set(over, EVERY_S)
