"""What was done, and whether the audit log is whole."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from supervisor.features.audit import rows as audit_rows
from supervisor.features.audit import rules as audit_rules
from supervisor.features.audit.rows import JOURNAL, Followed
from supervisor.features.audit.rules import Anchor, Numbers, Recorded, recorded
from supervisor.gateway.account import schema
from supervisor.gateway.account.writer import CALLS
from supervisor.host import audit_log
from supervisor.host.paths import Home
from supervisor.kernel.audit import Verdict
from supervisor.kernel.errors import NotFound
from supervisor.kernel.format import rfc3339
from supervisor.kernel.names import trace_id
from supervisor.store import archive, sqlite
from supervisor.store.archive import ARCHIVE
from supervisor.store.sqlite import LEDGER

# Audit check
# -----------
# Whether the audit log is whole, and whether the rows that it proves are as they were.


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
        if event == audit_rules.EVENT:
            known = audit_rules.read(data)
            self.anchors.setdefault(known.table, []).append((line, known))
            self.recovered.discard(known.table)
        elif event == audit_rules.UNPROVEN:
            found = f"{data['rows']} rows of the {data['table']} without a proof, the oldest of {data['since']}"
            self.warnings += (f"line {line}: the supervisor of {record['at']} found {found}, and anchored them as they were",)
        elif event == audit_rules.PRUNED:
            self.pruned += data["rows"]
        elif event.endswith(" recovered"):
            table = audit_rules.RECOVERED.get(event.partition(" ")[0], "")
            self.anchors.pop(table, None)
            self.recovered.add(table)
            if table == JOURNAL.name:
                self.ledger_recovered = datetime.fromisoformat(record["at"]).timestamp()


def verify(home: Home, secret: bytes, now: float) -> Verdict:
    """Look at the log, then at the rows; `now` is wall-clock seconds. Raises NotFound when there is no log and no row that it should prove,
    LedgerError for a damaged file of rows."""
    said, files = _Said(), ((JOURNAL, home.ledger), (CALLS, home.gateway_account))
    supervised = audit_rows.supervised(home.ledger, now)
    absent: NotFound | None = None
    try:
        verdict = replace(audit_log.verify(home.audit, secret, said.hear), warnings=said.warnings)
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
    found = audit_rows.unproven(path, what, last, supervised - audit_rows.OVERDUE_S, now)
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
    with contextlib.closing(sqlite.connect_readonly(path, book=what.book)) as db, _archived(home, what, said) as kept:
        gone = Numbers(pairs=said.pruned if what is CALLS else ())
        wrong = _first_other((db, *kept), what, known, gone) or _first_more((db, *kept), what, known)
        for each in (db, *kept) if wrong is None and what is JOURNAL else ():
            if wrong is None and (found := audit_rows.first_undigested(each, said.ledger_recovered)) is not None:
                wrong = next((line for line, one in known if found[0] in one.numbers), 0), *found
        if wrong is not None:
            line, row, why = wrong
            return replace(verdict, line=line, table=what.name, row=row, why=why)
        last = known[-1][1].place.last if known else 0
        count = sum(len(one.numbers) for _, one in known)
        newer = audit_rows.beyond(db, what, last)
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
            rows = audit_rows.rows_of(db, what, sought) | rows  # asked in this order a row on its way is met
        if (found := audit_rules.first_other(one, rows, gone)) is not None:
            return line, *found
    return None


def _first_more(files: Sequence[sqlite3.Connection], what: Followed, known: list[tuple[int, Anchor]]) -> tuple[int, int, str] | None:
    """The first row that was put between anchored ones."""
    if not known:
        return None
    line, newest = known[-1]
    proven = Numbers((number for _, one in known for number in one.numbers))
    every = (number for db in files for number in audit_rows.up_to(db, what, newest.place.last))
    number = next((number for number in every if number not in proven and number not in newest.open), None)
    return None if number is None else (line, number, "it was added between those that were anchored")


# Audit log
# ---------
# What was done, newest last: the ledger's journal, the records of the audit log and, of one task, its model calls.


Entry = dict[str, Any]
"""`at`, `who`, what `Recorded` has, `trace`, and where it stands: `in` and `number`."""


def entries(home: Home, secret: bytes, *, most: int, task: str = "", since: float = 0.0) -> list[Entry]:
    """The newest entries, at most `most`, of the task whose full id is given or of all; none from before `since`, wall-clock seconds."""
    found = [
        *_records(home, secret, task, since),
        *_journal(home, task, since, most),
        *(_calls(home, task, since, most) if task else ()),
    ]
    return sorted(found, key=lambda entry: (entry["at"], entry["in"], entry["number"]))[-most:]


def _records(home: Home, secret: bytes, task: str, since: float) -> Iterator[Entry]:
    for record in audit_log.events(home.audit, secret, lambda event: event != audit_rules.EVENT):
        one = recorded(str(record["event"]), None, None, record["data"])
        if (not task or one.task == task) and record["at"] >= (rfc3339(since) or ""):
            yield _entry(record["at"], record["who"], one, home.audit.name, record["seq"])


def _journal(home: Home, task: str, since: float, most: int) -> Iterator[Entry]:
    """Of the ledger and of what was archived of it; rows on their way are in both."""
    found: dict[int, sqlite3.Row] = {}
    for path, book in ((home.ledger, LEDGER), (home.archive, ARCHIVE)):
        if path.exists():
            with contextlib.closing(sqlite.connect_readonly(path, book=book)) as db:
                rows = _newest(db, "seq, at, task, epoch, event, data FROM journal", "task", task, since, most)
                found = {int(row["seq"]): row for row in rows} | found
    for row in found.values():
        one = recorded(row["event"], row["task"], row["epoch"], json.loads(row["data"]))
        yield _entry(rfc3339(row["at"]), "supervisor", one, "journal", row["seq"])


def _calls(home: Home, task: str, since: float, most: int) -> Iterator[Entry]:
    if not home.gateway_account.exists():
        return
    with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
        for row in _newest(db, f"id AS seq, *, {_TAPE} FROM request", "agent", task, since, most):
            data = {name: row[name] for name in _OF_A_CALL if name in row.keys()}  # noqa: SIM118 - `in row` looks at values
            one = Recorded("model call", row["agent"], row["epoch"], str(row["end"] or "under way"), row["flags"], data)
            yield _entry(rfc3339(row["at"]), "gateway", one, "account", row["seq"])


_OF_A_CALL = (
    "model", "asked", "upstream", "account", "attempt_no", "status", "input", "output", "cache_read", "cache_write", "cost_usd",
    "input_sha256", "output_sha256", "recording",
)  # fmt: skip
_TAPE = "(SELECT file FROM recording WHERE recording.request = request.id) AS recording"


def _newest(db: sqlite3.Connection, what: str, column: str, task: str, since: float, most: int) -> list[sqlite3.Row]:
    which = f"AND {column} = :task" if task else ""
    return db.execute(
        f"SELECT {what} WHERE at >= :since {which} ORDER BY 1 DESC LIMIT :most",
        {"since": since, "task": task, "most": most},
    ).fetchall()


def _entry(at: str | None, who: str, one: Recorded, where: str, number: int) -> Entry:
    shape: Mapping[str, Any] = asdict(one)
    return {"at": at, "who": who, **shape, "trace": trace_id(one.task) if one.task else None, "in": where, "number": number}
