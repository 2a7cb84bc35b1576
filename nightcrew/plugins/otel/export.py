"""Send spans that have ended to an OpenTelemetry receiver."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from nightcrew.plugins.otel import cursor as span_cursor
from supervisor import __version__
from supervisor.features.trace import rows as trace_rows
from supervisor.features.trace import rules as trace_rules
from supervisor.features.trace import view as trace_view
from supervisor.features.trace.rows import RunFacts
from supervisor.features.trace.rules import AttemptFacts, Request, Span, What
from supervisor.features.trace.view import Books
from supervisor.gateway.account import queries as reading
from supervisor.gateway.provider_keys import Redactor
from supervisor.host import secrets
from supervisor.host.paths import Home
from supervisor.kernel import telemetry as rules
from supervisor.kernel.errors import NightcrewError, NotFound, one_line
from supervisor.kernel.format import many
from supervisor.kernel.names import trace_id
from supervisor.kernel.telemetry import Cursor, Terms
from supervisor.store import journal, sqlite

# Following
# ---------
# The spans that have ended since a cursor, a bounded number of rows at a time. Each is made of rows that nothing changes any more,
# so a reader that comes again from the same cursor gets the same.


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
    requests: list[tuple[reading.Place, Request]] = field(default_factory=list)
    more: bool = False
    """There is more than was looked at."""
    runs: Runs = field(default_factory=dict)
    """What was read of runs; good while the journal has no newer row."""
    _attempts: dict[reading.Place, list[AttemptFacts]] = field(default_factory=dict)

    def spans(self) -> Iterator[Span]:
        """Requests first: the attempt in which they lie may be among them."""
        for place, request in self.requests:
            yield from self._of_request(place, request)
        for row in self.rows:
            if row["task"] and self.terms.takes(trace_id(row["task"])):
                yield from self._of_row(row)

    def _of_request(self, place: reading.Place, request: Request) -> Iterator[Span]:
        task, epoch = place
        facts = self._facts(task) if self.terms.takes(trace_id(task)) else None
        if facts is None or task not in facts.tasks:
            return
        if place not in self._attempts:
            self._attempts[place] = self.books.attempts(facts, task, epoch)
        for one in self._attempts[place]:
            yield from trace_rules.of_request(one.task, epoch, one.bounds, request)

    def _of_row(self, row: Mapping[str, Any]) -> Iterator[Span]:
        task, facts = str(row["task"]), None
        state = trace_rows.state_after(row["event"], row["data"])
        if _ends(row) or state:
            facts = self._facts(task)
        if facts is None or task not in facts.tasks:
            return
        if _ends(row):
            for one in self.books.attempts(facts, task, int(row["epoch"])):
                yield from trace_view.attempt_spans(self.books, one)
        if state:
            yield from self._lives(facts, task, int(row["seq"]))

    def _lives(self, facts: RunFacts, task: str, number: int) -> Iterator[Span]:
        for life in facts.lives[task]:
            if life.last == number:
                yield trace_rules.of_task(facts.tasks[task], life, self.books.reach(facts, task, life))
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
    ended, last, still_open = reading.ended(books.account, cursor.request, cursor.open, ROWS)
    away, newest = reading.turned_away(books.account, cursor.away, ROWS)
    more = ROWS in (len(rows), last - cursor.request, len(away))
    told = replace(told, request=last, open=tuple(still_open), away=newest)
    return Look(books, terms, told, rows, [*ended, *away], more=more, runs=runs)


def _settled(books: Books, rows: list[dict[str, Any]], now: float) -> list[dict[str, Any]]:
    """Those up to the first end of an attempt that has requests under way."""
    for number, row in enumerate(rows):
        young = abs(now - row["at"]) < SETTLING_S
        if young and _ends(row) and books.account is not None and reading.is_asking(books.account, row["task"], row["epoch"]):
            return rows[:number]
    return rows


def newest_following(books: Books) -> Cursor:
    """Where who begins now begins: the history is not told."""
    request, away = reading.newest(books.account) if books.account is not None else (0, 0)
    return Cursor(journal.newest_entry(books.db), request, (), away)


# Export
# ------
# The exporter: sends spans that have ended, and keeps how far it has come. A process of its own, see `__main__`.
#
# The cursor is written, durably, when a receiver has taken everything up to it. Whoever kills the exporter between the two has the
# spans sent again, with the same ids: none is lost, and a receiver knows one that it has.


SPANS = 500
"""Of one post."""
RUNS = 100
"""Of which what was read is kept for the next look."""
LOOK_S = 5.0


class Posts(Protocol):
    """What hands spans over, as `posting.Post` does."""

    status: int | None
    why: str
    rejected: int

    def __call__(self, spans: list[Span]) -> bool: ...


class NotTaken(NightcrewError):
    """The receiver did not take spans that it may take later."""


class Exporter:
    """One exporter's. `say` is told what a person should know, each thing once while it lasts."""

    def __init__(self, home: Home, terms: Terms, post: Posts, clock: Callable[[], float], say: Callable[[str], None]) -> None:
        self._home, self._terms, self._post, self._clock, self._say = home, terms, post, clock, say
        self._failures = 0
        self._told = ""
        self._agents = trace_view.agent_kinds()
        self._cursor = span_cursor.kept(home.telemetry)
        self._runs: tuple[int, Runs] = (0, {})

    def step(self) -> float:
        """Send what has ended; how many seconds to wait for the next step, 0.0 when there is more. Never raises a NightcrewError."""
        try:
            more = self._look()
        except NightcrewError as error:
            self._failures += 1
            self._tell(error.line())
            return rules.pause_s(self._failures)
        self._failures = 0
        if self._told:
            self._tell("")
        return 0.0 if more else LOOK_S

    def _tell(self, trouble: str) -> None:
        if trouble != self._told:
            self._told = trouble
            self._say(trouble or "spans are taken again")

    def _look(self) -> bool:
        if not self._home.ledger.exists():
            return False
        books = trace_view.Books(self._home, sqlite.connect_readonly(self._home.ledger), trace_view.account_of(self._home), self._agents)
        with contextlib.closing(books):
            cursor = self._from(books)
            found = look(books, self._terms, cursor, self._clock(), self._known(books))
            for spans in _parts(found.spans(), SPANS):
                self._hand_over(spans)
            if found.cursor != cursor:
                self._keep(replace(found.cursor, refused=(self._cursor or cursor).refused))
            return found.more

    def _known(self, books: trace_view.Books) -> Runs:
        newest = journal.newest_entry(books.db)
        if self._runs[0] != newest or len(self._runs[1]) > RUNS:
            self._runs = newest, {}
        return self._runs[1]

    def _from(self, books: trace_view.Books) -> Cursor:
        """Where this look begins. One beyond the newest row was that of a ledger, or an account, which was replaced since."""
        newest = newest_following(books)
        if self._cursor is None:
            self._keep(newest)
        known = self._cursor or newest
        if known.journal > newest.journal:
            known = replace(known, journal=newest.journal)
        if books.account is not None and (known.request > newest.request or known.away > newest.away):
            known = replace(known, request=newest.request, away=newest.away, open=())
        return known

    def _hand_over(self, spans: list[Span]) -> None:
        """Raises NotTaken. What is refused for itself is halved until the spans that are to blame are left out."""
        if self._post(spans):
            if self._post.rejected:
                self._refused(self._post.rejected)
        elif rules.may_change(self._post.status):
            why = self._post.why or "it does not answer"
            raise NotTaken(
                "spans are not taken", on=self._terms.endpoint, why=why, kept="they are sent again", hint="[telemetry] in config.toml"
            )
        elif len(spans) == 1:
            self._refused(1)
        else:
            self._hand_over(spans[: len(spans) // 2])
            self._hand_over(spans[len(spans) // 2 :])

    def _refused(self, spans: int) -> None:
        if self._cursor is not None:
            self._cursor = replace(self._cursor, refused=self._cursor.refused + spans)
        self._say(one_line(f"{self._terms.endpoint} refused {many(spans, 'span')} for good: {self._post.why}"))

    def _keep(self, cursor: Cursor) -> None:
        span_cursor.keep(self._home.telemetry, cursor)
        self._cursor = cursor


def headers(terms: Terms, environ: dict[str, str]) -> dict[str, str]:
    """Their texts. Raises NotFound, and Refused for a file that others can read."""
    found = {}
    for name, source in terms.headers.items():
        kind, _, where = source.partition(":")
        text = secrets.key(Path(where).expanduser()) if kind == "file" else environ.get(where, "").strip()
        if not text:
            raise NotFound("no text for the header", on=name, why=f"{source} is not set where nightcrew was started")
        found[name] = text
    return found


def _parts(spans: Iterable[Span], size: int) -> Iterator[list[Span]]:
    every = iter(spans)
    while part := list(islice(every, size)):
        yield part


# Posting
# -------
# Hands spans to a receiver, by OpenTelemetry's own exporter: the only place that imports it.


POST_S = 10.0
"""For one post, with what the exporter tries again by itself."""
_WHY_MAX, _READ_MAX = 200, 4000
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_RESOURCE = Resource({"service.name": trace_view.SERVICE, "service.version": __version__})
_SCOPE = InstrumentationScope(trace_view.SERVICE, __version__, trace_view.SCHEMA_URL)


class Post:
    """One receiver. `status` and `why` tell of the newest answer: None, when nobody answered."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], *, content: bool) -> None:
        self._content = content
        self.status: int | None = None
        self.why = ""
        self.rejected = 0
        """Spans of the newest post that the receiver did not want, although it took the others."""
        logging.getLogger("opentelemetry").addHandler(_Told(self))
        logging.getLogger("opentelemetry").propagate = False
        session = requests.Session()
        session.trust_env = False  # no proxy and no .netrc: the headers go to the endpoint alone
        session.max_redirects = 0
        session.hooks["response"].append(self._heard)
        self._exporter = OTLPSpanExporter(endpoint, headers=dict(headers), timeout=POST_S, compression=Compression.Gzip, session=session)

    def __call__(self, spans: Sequence[Span]) -> bool:
        """Whether they were taken."""
        self.status, self.why, self.rejected = None, "", 0
        return self._exporter.export([readable(span, content=self._content) for span in spans]) is SpanExportResult.SUCCESS

    def _heard(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self.status = response.status_code
        if response.status_code >= 300:
            self.why = _harmless(f"{response.status_code} {response.reason}: {response.text[:_READ_MAX]}".strip(": "))
            return
        answer = ExportTraceServiceResponse()
        try:
            answer.ParseFromString(response.content)
        except Exception:  # noqa: BLE001 - whatever protobuf raises of an answer that is none: the spans were taken
            return
        self.rejected = answer.partial_success.rejected_spans
        self.why = _harmless(answer.partial_success.error_message)


class _Told(logging.Handler):
    """Keeps what the exporter complains of when nobody answered, instead of printing it."""

    def __init__(self, post: Post) -> None:
        super().__init__(logging.WARNING)
        self._post = post

    def emit(self, record: logging.LogRecord) -> None:
        if self._post.status is None:
            self._post.why = _harmless(record.getMessage())


def _harmless(said: str) -> str:
    """On one short line, without secrets: cleaned before it is cut, since half a secret is not known as one."""
    return one_line(Redactor().clean(said[:_READ_MAX]))[:_WHY_MAX]


def readable(span: Span, *, content: bool) -> ReadableSpan:
    """One span that has ended, as the exporter takes it."""
    trace = int(span.trace, 16)
    return ReadableSpan(
        name=trace_view.plain(span.name),
        context=SpanContext(trace, int(span.id, 16), is_remote=False, trace_flags=_SAMPLED),
        parent=SpanContext(trace, int(span.parent, 16), is_remote=False, trace_flags=_SAMPLED) if span.parent else None,
        resource=_RESOURCE,
        attributes=trace_view.attributes(span, content=content),
        kind=SpanKind.CLIENT if span.what is What.MODEL else SpanKind.INTERNAL,
        instrumentation_scope=_SCOPE,
        status=Status(StatusCode.ERROR) if span.error else Status(),
        start_time=trace_view.nanoseconds(span.start),
        end_time=trace_view.nanoseconds(span.start if span.end is None else span.end),
    )
