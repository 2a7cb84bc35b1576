"""Whether the audit log is whole, and whether the rows that it proves are as they were."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from supervisor.core import anchors
from supervisor.core.anchors import Anchor, Numbers
from supervisor.core.audit import Verdict
from supervisor.core.errors import NotFound
from supervisor.core.units import rfc3339
from supervisor.gateway.account.anchored import CALLS
from supervisor.host import audit
from supervisor.host.paths import Home
from supervisor.ledger import anchored, archive, store
from supervisor.ledger.anchored import JOURNAL, Followed


@dataclass(slots=True)
class _Said:
    """What the log says of the rows."""

    anchors: dict[str, list[tuple[int, Anchor]]] = field(default_factory=dict)
    """By table, each with its line; those that came after a recovery of the table."""
    recovered: set[str] = field(default_factory=set)
    """Tables that were recovered and not anchored since."""
    ledger_recovered: float = 0.0
    """When it last was, wall-clock seconds: what it holds of attempts from before may have been repaired."""
    warnings: tuple[str, ...] = ()
    pruned: list[list[int]] = field(default_factory=list)

    def hear(self, line: int, record: Mapping[str, Any]) -> None:
        event, data = str(record["event"]), record["data"]
        if event == anchors.EVENT:
            known = anchors.read(data)
            self.anchors.setdefault(known.table, []).append((line, known))
            self.recovered.discard(known.table)
        elif event == anchors.UNPROVEN:
            found = f"{data['rows']} rows of the {data['table']} without a proof, the oldest of {data['since']}"
            self.warnings += (f"line {line}: the supervisor of {record['at']} found {found}, and anchored them as they were",)
        elif event == anchors.PRUNED:
            self.pruned += data["rows"]
        elif event.endswith(" recovered"):
            table = anchors.RECOVERED.get(event.partition(" ")[0], "")
            self.anchors.pop(table, None)
            self.recovered.add(table)
            if table == JOURNAL.name:
                self.ledger_recovered = datetime.fromisoformat(record["at"]).timestamp()


def verify(home: Home, secret: bytes, now: float) -> Verdict:
    """Look at the log, then at the rows; `now` is wall-clock seconds. Raises NotFound when there is no log and no row that it should prove,
    LedgerError for a damaged file of rows."""
    said, files = _Said(), ((JOURNAL, home.ledger), (CALLS, home.gateway_account))
    supervised = anchored.supervised(home.ledger, now)
    absent: NotFound | None = None
    try:
        verdict = replace(audit.verify(home.audit, secret, said.hear), warnings=said.warnings)
    except NotFound as error:
        absent, verdict = error, Verdict(0)
    for what, path in files:
        if not verdict.why:
            verdict = _rows(verdict, what, path, (said, home))
        if not verdict.why:
            verdict = _late(verdict, what, path, said, supervised, now)
    if absent is not None and not verdict.why:
        raise absent
    return verdict


def _late(verdict: Verdict, what: Followed, path: Path, said: _Said, supervised: float, now: float) -> Verdict:
    """The same, or what is wrong: rows that a supervisor must have anchored have no anchor, since a log was begun anew or put back."""
    if what.name in said.recovered:
        return verdict
    line, last = (known[-1][0], known[-1][1].place.last) if (known := said.anchors.get(what.name, [])) else (0, 0)
    found = anchored.unproven(path, what, last, supervised - anchored.OVERDUE_S, now)
    if found is None:
        return verdict
    why = f"no record proves {found[0]} rows, the oldest of {rfc3339(found[1])}, though a supervisor ran since: the log was cut or put back"
    return replace(verdict, line=line, table=what.name, row=0, why=why)


def _rows(verdict: Verdict, what: Followed, path: Path, of: tuple[_Said, Home]) -> Verdict:
    said, home = of
    known = said.anchors.get(what.name, [])
    if not path.exists():
        if not known:
            return verdict
        line, first = known[0]
        return replace(verdict, line=line, table=what.name, row=first.numbers[0], why=f"{path.name} is gone")
    with contextlib.closing(store.connect_readonly(path, book=what.book)) as db, _archived(home, what, said) as kept:
        gone = Numbers(pairs=said.pruned if what is CALLS else ())
        wrong = _first_other((db, *kept), what, known, gone) or _first_more((db, *kept), what, known)
        for each in (db, *kept) if wrong is None and what is JOURNAL else ():
            if wrong is None and (found := anchored.first_undigested(each, said.ledger_recovered)) is not None:
                wrong = next((line for line, one in known if found[0] in one.numbers), 0), *found
        if wrong is not None:
            line, row, why = wrong
            return replace(verdict, line=line, table=what.name, row=row, why=why)
        last = known[-1][1].place.last if known else 0
        count = sum(len(one.numbers) for _, one in known)
        newer = anchored.beyond(db, what, last)
    return replace(verdict, proven={**verdict.proven, what.name: count}, newer={**verdict.newer, what.name: newer})


@contextlib.contextmanager
def _archived(home: Home, what: Followed, said: _Said) -> Iterator[tuple[sqlite3.Connection, ...]]:
    """The archive, where rows of the journal may be that the ledger has no more; none that were archived before the ledger was recovered
    are proven since."""
    if what is not JOURNAL or said.ledger_recovered or not home.archive.exists():
        yield ()
        return
    with contextlib.closing(archive.connect(home.archive)) as db:
        yield (db,)


def _first_other(
    files: Sequence[sqlite3.Connection], what: Followed, known: list[tuple[int, Anchor]], gone: Numbers
) -> tuple[int, int, str] | None:
    """Line, row and what became of it, for the first row that is not as it was anchored. Of a file that was cut and grew again a number has
    two anchors, and its row cannot be as both say. The first of `files` has the row that counts."""
    for line, one in known:
        sought, rows = [number for number in one.numbers if number not in gone], dict[int, tuple[object, ...]]()
        for db in files:
            rows = anchored.rows_of(db, what, sought) | rows  # asked in this order a row on its way is met
        if (found := anchors.first_other(one, rows, gone)) is not None:
            return line, *found
    return None


def _first_more(files: Sequence[sqlite3.Connection], what: Followed, known: list[tuple[int, Anchor]]) -> tuple[int, int, str] | None:
    """The first row that was put between anchored ones."""
    if not known:
        return None
    line, newest = known[-1]
    proven = Numbers((number for _, one in known for number in one.numbers))
    every = (number for db in files for number in anchored.up_to(db, what, newest.place.last))
    number = next((number for number in every if number not in proven and number not in newest.open), None)
    return None if number is None else (line, number, "it was added between those that were anchored")
