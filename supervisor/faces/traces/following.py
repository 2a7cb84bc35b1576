"""The spans that have ended since a cursor, a bounded number of rows at a time. Each is made of rows that nothing changes any more, so a
reader that comes again from the same cursor gets the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from supervisor.core import traces
from supervisor.core.audit_events import trace_id
from supervisor.core.telemetry import Cursor, Terms
from supervisor.core.trace_facts import AttemptFacts, Request
from supervisor.core.traces import Span
from supervisor.faces.traces import reading
from supervisor.faces.traces.reading import Books
from supervisor.gateway.account import traced
from supervisor.ledger import journal, trace_rows
from supervisor.ledger.trace_rows import RunFacts

ROWS = 1000
"""Of the journal, and of each table of the account, at one look."""
SETTLING_S = 30.0
"""So long the end of an attempt waits for requests of it that are still under way: a gateway that lives settles them within moments."""


Runs = dict[str, RunFacts | None]


@dataclass(slots=True)
class Look:
    """One look: the spans are made as they are asked for, and `cursor` is where the next look begins once all were taken."""

    books: Books
    terms: Terms
    cursor: Cursor
    rows: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[traced.Place, Request]] = field(default_factory=list)
    more: bool = False
    """There is more than was looked at."""
    runs: Runs = field(default_factory=dict)
    """What was read of runs; good while the journal has no newer row."""
    _attempts: dict[traced.Place, list[AttemptFacts]] = field(default_factory=dict)

    def spans(self) -> Iterator[Span]:
        """Requests first: the attempt in which they lie may be among them."""
        for place, request in self.requests:
            yield from self._of_request(place, request)
        for row in self.rows:
            if row["task"] and self.terms.takes(trace_id(row["task"])):
                yield from self._of_row(row)

    def _of_request(self, place: traced.Place, request: Request) -> Iterator[Span]:
        task, epoch = place
        facts = self._facts(task) if self.terms.takes(trace_id(task)) else None
        if facts is None or task not in facts.tasks:
            return
        if place not in self._attempts:
            self._attempts[place] = self.books.attempts(facts, task, epoch)
        for one in self._attempts[place]:
            yield from traces.of_request(one.task, epoch, one.bounds, request)

    def _of_row(self, row: Mapping[str, Any]) -> Iterator[Span]:
        task, facts = str(row["task"]), None
        state = trace_rows.state_after(row["event"], row["data"])
        if _ends(row) or state:
            facts = self._facts(task)
        if facts is None or task not in facts.tasks:
            return
        if _ends(row):
            for one in self.books.attempts(facts, task, int(row["epoch"])):
                yield from reading.attempt_spans(self.books, one)
        if state:
            yield from self._lives(facts, task, int(row["seq"]))

    def _lives(self, facts: RunFacts, task: str, number: int) -> Iterator[Span]:
        for life in facts.lives[task]:
            if life.last == number:
                yield traces.of_task(facts.tasks[task], life, self.books.reach(facts, task, life))
        yield from (self.books.whole(facts, life) for life in facts.whole if life.last == number)

    def _facts(self, task: str) -> RunFacts | None:
        run = task.partition("/")[0]
        if run not in self.runs:
            self.runs[run] = self.books.run(run)
        return self.runs[run]


def _ends(row: Mapping[str, Any]) -> bool:
    return str(row["event"]).startswith("end ") and row["epoch"] is not None


def look(books: Books, terms: Terms, cursor: Cursor, now: float, runs: Runs) -> Look:
    """What has ended beyond `cursor`; `now`: wall clock; `runs`: what an earlier look read, where nothing was journaled since."""
    found = journal.after(books.db, cursor.journal, ROWS)
    rows = _settled(books, found, now)
    told = replace(cursor, journal=rows[-1]["seq"] if rows else cursor.journal)
    if books.account is None:
        return Look(books, terms, told, rows, more=len(rows) == ROWS, runs=runs)
    ended, last, still_open = traced.ended(books.account, cursor.request, cursor.open, ROWS)
    away, newest = traced.turned_away(books.account, cursor.away, ROWS)
    more = ROWS in (len(rows), last - cursor.request, len(away))
    told = replace(told, request=last, open=tuple(still_open), away=newest)
    return Look(books, terms, told, rows, [*ended, *away], more=more, runs=runs)


def _settled(books: Books, rows: list[dict[str, Any]], now: float) -> list[dict[str, Any]]:
    """Those up to the first end of an attempt that has requests under way."""
    for number, row in enumerate(rows):
        young = abs(now - row["at"]) < SETTLING_S
        if young and _ends(row) and books.account is not None and traced.is_asking(books.account, row["task"], row["epoch"]):
            return rows[:number]
    return rows


def newest(books: Books) -> Cursor:
    """Where who begins now begins: the history is not told."""
    request, away = traced.newest(books.account) if books.account is not None else (0, 0)
    return Cursor(journal.newest_entry(books.db), request, (), away)
