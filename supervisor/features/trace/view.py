"""A trace as lines of a terminal."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agents import protocols
from agents.kinds import kinds
from supervisor import __version__
from supervisor.features.trace import rows as trace_rows
from supervisor.features.trace import rules as trace_rules
from supervisor.features.trace.rows import RunFacts
from supervisor.features.trace.rules import CONVENTIONS, AttemptFacts, Span, ToolCall, Value, What
from supervisor.features.trace.rules import Life as RulesLife
from supervisor.gateway.account import queries as reading
from supervisor.gateway.account import schema
from supervisor.host import untrusted_fs
from supervisor.host.paths import Home
from supervisor.kernel import account
from supervisor.kernel.account import Life, Measured, Used, covered
from supervisor.kernel.errors import NightcrewError, one_line
from supervisor.kernel.format import duration, many
from supervisor.views import figures
from supervisor.views.status import columns, cut

# Reading
# -------
# The spans of a run and of its tasks, read from the ledger or the archive, the gateway's account, and the agents' transcripts.


PIECE = 2**20
LOG_MAX = 256 * 2**20
"""Bytes of a transcript that are read; a task's own `log_max` is below it."""


def agent_kinds() -> frozenset[str]:
    """The kinds that are kinds of agent; of a person's own those that can be read."""
    known, found = kinds(), set[str]()
    for name in known:
        with contextlib.suppress(NightcrewError):
            found |= {name} if known[name].is_agent else set()
    return frozenset(found)


@dataclass(slots=True)
class Books:
    """Where it is read: `db` is the ledger or the archive, `account` the gateway's, None when there is none."""

    home: Home
    db: sqlite3.Connection
    account: sqlite3.Connection | None
    agents: Collection[str] = field(default_factory=agent_kinds)

    def close(self) -> None:
        """Idempotent."""
        self.db.close()
        if self.account is not None:
            self.account.close()

    def run(self, run: str) -> RunFacts | None:
        """What the ledger says of a run and its tasks."""
        return trace_rows.run(self.db, run, self.agents)

    def attempts(self, facts: RunFacts, task: str, epoch: int = 0) -> list[AttemptFacts]:
        """The attempts of a task; of `epoch` that one alone."""
        account, found = self.account, trace_rows.attempts(self.db, facts, task, epoch)
        if account is None:
            return found
        return [one if one.closed is None else replace(one, last_request=reading.last_ended(account, task, one.epoch)) for one in found]

    def reach(self, facts: RunFacts, task: str, life: RulesLife) -> float:
        """When the last of the spans of a task's attempts in one of its lives ends; 0.0 while there is none."""
        own = (one for one in self.attempts(facts, task) if one.life.number == life.number)
        return max((one.bounds[1] or 0.0 for one in own), default=0.0)

    def whole(self, facts: RunFacts, life: RulesLife) -> Span:
        """The span of a life of a run."""
        own = ((task, each) for task, every in facts.lives.items() for each in every if each.of == life.number)
        reach = max((self.reach(facts, task, each) for task, each in own), default=0.0) if life.last else 0.0
        return trace_rules.of_run(facts.id, facts.title, life, len(facts.tasks), reach)

    def tools(self, one: AttemptFacts) -> Iterator[ToolCall]:
        """The calls of tools that its transcript tells of."""
        protocol = _protocol(one.task.kind)
        if protocol:
            yield from protocols.tools(protocol, self._printed(one))

    def _printed(self, one: AttemptFacts) -> Iterator[bytes]:
        log = self.home.attempt(one.task.id, one.epoch) / "stdout.log"
        begin = 0
        while begin < LOG_MAX and (read := untrusted_fs.read_on(log, begin, PIECE)) is not None and read[0]:
            begin += len(read[0])
            yield read[0]


def _protocol(kind: str) -> str:
    with contextlib.suppress(NightcrewError, KeyError):
        return kinds()[kind].protocol
    return ""


def account_of(home: Home) -> sqlite3.Connection | None:
    """The gateway's account; None when there is none. Raises LedgerError for one that cannot be read."""
    return schema.connect_readonly(home.gateway_account) if home.gateway_account.exists() else None


def attempt_spans(books: Books, one: AttemptFacts, *, calls: bool = True) -> Iterator[Span]:
    """The spans of an attempt: its wait for a slot, its own, those of what it did; with `calls` those of its tools."""
    inner = trace_rows.stretches(books.db, one.task.id, one.epoch)
    yield from trace_rules.of_attempt(one, inner, books.tools(one) if calls else ())


def request_spans(books: Books, one: AttemptFacts, most: int) -> Iterator[Span]:
    """Those of its requests, at most `most` of them."""
    if books.account is not None:
        for request in reading.of_attempt_traced(books.account, one.task.id, one.epoch, most):
            yield from trace_rules.of_request(one.task, one.epoch, one.bounds, request)


# Gathering
# ---------
# What a waterfall shows of a run or of one task: its spans in the order in which they are drawn, and what took the time.


CALLS_MAX = 20_000
"""Requests of an attempt, and calls of tools, that are read; what is left out is counted."""


@dataclass(frozen=True, slots=True)
class Ran:
    """An attempt with what it did, and its account: that of its result, or for one that goes on what its spans come to by now."""

    facts: AttemptFacts
    queue: Span
    own: Span
    inner: tuple[Span, ...]
    account: Mapping[str, Any]
    left_out: int = 0
    """Requests that were not read."""


@dataclass(frozen=True, slots=True)
class Lived:
    """A task's life, and its attempts in it."""

    own: Span
    attempts: tuple[Ran, ...]


def run_spans(facts: RunFacts, books: Books) -> list[Span]:
    """Those of the run itself."""
    return [books.whole(facts, life) for life in facts.whole]


def task(books: Books, facts: RunFacts, name: str, now: float, *, calls: bool) -> list[Lived]:
    """A task's lives; without `calls` with nothing of what its attempts did."""
    ran = [_ran(books, one, now, calls=calls) for one in books.attempts(facts, name)]
    found = []
    for life in facts.lives[name]:
        own = [one for one in ran if one.facts.life.number == life.number]
        reach = max((one.own.end or 0.0 for one in own), default=0.0)
        found.append(Lived(trace_rules.of_task(facts.tasks[name], life, reach), tuple(own)))
    return found


def every_span(books: Books, facts: RunFacts, tasks: Iterable[str], now: float) -> Iterator[Span]:
    """All spans of these tasks, parents first, a task at a time."""
    for name in tasks:
        for lived in task(books, facts, name, now, calls=True):
            yield lived.own
            for ran in lived.attempts:
                yield from (ran.queue, ran.own, *ran.inner)


def _ran(books: Books, one: AttemptFacts, now: float, *, calls: bool) -> Ran:
    queue, own, *inner = attempt_spans(books, one, calls=calls)
    inner = inner[:CALLS_MAX]
    goes_on = one.closed is None
    requests = list(request_spans(books, one, CALLS_MAX)) if calls or goes_on else []
    known = reading.count_spans(books.account, one.task.id, one.epoch) if calls and books.account is not None else 0
    spent = one.account if one.account.get("wall_s") is not None else _so_far(one, [*inner, *requests], now)
    every = sorted([*inner, *requests] if calls else inner, key=lambda span: (span.start, span.end or now))
    return Ran(one, queue, own, tuple(every), spent, max(0, known - CALLS_MAX))


def _so_far(one: AttemptFacts, spans: Iterable[Span], now: float) -> dict[str, Any]:
    """The account of an attempt that has none, from its spans."""
    until = one.bounds[1] or max(now, one.created)
    times: dict[What, list[tuple[float, float]]] = {}
    for span in spans:
        times.setdefault(span.what, []).append((span.start, until if span.end is None else span.end))
    began = one.started or one.created
    life = Life(
        queued=one.ready or one.created,
        spawned=one.created,
        started=one.started,
        ended=until,
        model=tuple(times.get(What.MODEL, ())),
        waited=tuple(times.get(What.TOKENS, ())),
        paused_s=account.covered(times.get(What.PAUSE, ()), (began, until)),
    )
    return account.closed(Measured(), Used(), life)


# Waterfall
# ---------
# A trace as lines of a terminal: a bar for each span on one axis of time, and in words what took the time. Each sort of span has a
# sign of its own, so nothing is lost without colours.


Paint = Callable[[str, str], str]
"""A text in the colour of an SGR number."""

SIGNS = {
    What.RUN: ("=", "1"), What.TASK: ("=", "1"), What.ATTEMPT: ("-", "0"), What.QUEUE: (".", "2"), What.LAUNCH: ("~", "36"),
    What.GATE: ("g", "35"), What.SECURING: ("~", "36"), What.PAUSE: ("p", "2"), What.WAIT: ("w", "33"), What.TOKENS: ("t", "33"),
    What.MODEL: ("#", "32"), What.TOOL: ("+", "34"),
}  # fmt: skip
"""The sign of which a bar is made, and its colour."""
LEGEND = "# model  + tool  t waits for tokens  . waits for a slot  w other waits  p paused  g gate  ~ launch and end  ! failed  > goes on"
ROWS = 60
"""Rows of what one attempt did; with more, those of one sort are one row."""
TASKS = 100
"""Tasks of a run that have rows of their own."""
_BAR_MIN = 12
_LABEL_MAX = 44
_TOOK = 7


@dataclass(frozen=True, slots=True)
class Row:
    """A line: one span, or several of one sort."""

    depth: int
    label: str
    spans: tuple[Span, ...]

    def seconds(self, now: float) -> float:
        """Of what at least one of them covers."""
        every = [(span.start, now if span.end is None else span.end) for span in self.spans]
        return covered(every, (min(begin for begin, _ in every), max(end for _, end in every)))


def of_task(lives: Sequence[Lived], *, every: bool) -> list[Row]:
    """The rows of a task and of all that its attempts did; `every`: nothing is put together."""
    rows = []
    for lived in lives:
        rows.append(Row(0, lived.own.name, (lived.own,)))
        for ran in lived.attempts:
            rows += [Row(1, ran.queue.name, (ran.queue,)), Row(1, _attempt(ran), (ran.own,)), *_inner(ran, every=every)]
    return rows


def of_run(run: Sequence[Span], tasks: Iterable[Sequence[Lived]]) -> list[Row]:
    """The rows of a run, of its tasks, and of their attempts where there was more than one."""
    rows = [Row(0, span.name, (span,)) for span in run]
    for lives in tasks:
        for lived in lives:
            rows.append(Row(1, lived.own.name.removeprefix("task "), _life(lived)))
            rows += [Row(2, _attempt(ran), (ran.own,)) for ran in lived.attempts if len(lived.attempts) > 1]
    return rows


def _life(lived: Lived) -> tuple[Span, ...]:
    """A task's life in one bar: its attempts, its waits for a slot, and before and between them what else it waited for."""
    tried = [replace(span, what=what, error="") for ran in lived.attempts for span, what in ((ran.queue, What.QUEUE), (ran.own, What.TASK))]
    return (replace(lived.own, what=What.WAIT), *tried)


def _attempt(ran: Ran) -> str:
    return f"attempt {ran.facts.epoch} ({ran.facts.task.kind})"


def _inner(ran: Ran, *, every: bool) -> Iterator[Row]:
    if every or len(ran.inner) <= ROWS:
        yield from (Row(2, span.name, (span,)) for span in ran.inner)
        return
    sorts: dict[tuple[What, str], list[Span]] = {}
    for span in ran.inner:
        sorts.setdefault((span.what, span.name), []).append(span)
    kept, rest = list(sorts.items())[: ROWS - 1], list(sorts.items())[ROWS - 1 :]
    for (_, name), spans in kept:
        yield Row(2, f"{name} x{len(spans)}" if len(spans) > 1 else name, tuple(spans))
    if rest:
        yield Row(2, f"{len(rest)} other sorts", tuple(span for _, spans in rest for span in spans))


def lines(rows: Sequence[Row], now: float, width: int, paint: Paint) -> Iterator[str]:
    """The rows on an axis that begins with the first of them."""
    if not rows:
        return
    spans = [span for row in rows for span in row.spans]
    begin = min(span.start for span in spans)
    length = max(1e-3, max(now if span.end is None else span.end for span in spans) - begin)
    labels = min(_LABEL_MAX, max(8, width * 2 // 5), max(columns(_label(row)) for row in rows))
    room = width - labels - _TOOK - 4
    if room >= _BAR_MIN:
        yield f"{'':{labels}}  {_axis(length, room)}"
    for row in rows:
        label = cut(_label(row), labels)
        padded = label + " " * (labels - columns(label))
        bar = f"  {_bar(row, begin, length, room, now, paint)}" if room >= _BAR_MIN else ""
        yield f"{padded}{bar} {duration(row.seconds(now)):>{_TOOK}}{paint('!', '31') if any(span.error for span in row.spans) else ''}"


def _label(row: Row) -> str:
    return "  " * row.depth + one_line(row.label)


def _axis(length: float, room: int) -> str:
    middle = duration(length / 2) if room > 40 else ""
    end = duration(length)
    left = "0s".ljust(room // 2) + middle
    return left + end.rjust(room - len(left))


def _bar(row: Row, begin: float, length: float, room: int, now: float, paint: Paint) -> str:
    drawn = [" "] * room
    for span in row.spans:
        sign = SIGNS[span.what][0]
        first = min(room - 1, max(0, math.floor((span.start - begin) / length * room)))
        last = math.ceil(((now if span.end is None else span.end) - begin) / length * room)
        last = min(room, max(first + 1, last))
        drawn[first:last] = sign * (last - first)
        if span.end is None:
            drawn[last - 1] = ">"
    return paint("".join(drawn), SIGNS[row.spans[-1].what][1])


# In words ---------------------------------------------------------------------------------------------------------------------------


def words(lives: Iterable[Lived], now: float) -> Iterator[str]:
    """Of each attempt how it ended and where its time went."""
    for lived in lives:
        for ran in lived.attempts:
            end = ran.facts.end or "goes on"
            why = f", {one_line(ran.facts.cause)}" if ran.facts.cause else ""
            yield f"attempt {ran.facts.epoch} {end}{why}: {_spent(ran.account)}"
            if calls := _calls(ran, now):
                yield f"  {calls}"
            if ran.left_out:
                yield f"  {many(ran.left_out, 'request')} made beyond those shown"


def _spent(account: Mapping[str, Any]) -> str:
    return figures.spent(account) if account.get("wall_s") is not None else "its time is not known"


def _calls(ran: Ran, now: float) -> str:
    found = Counter(span.what for span in ran.inner)
    failed = Counter(span.what for span in ran.inner if span.error)
    said = []
    for what, word in ((What.MODEL, "model call"), (What.TOOL, "tool call"), (What.TOKENS, "token wait")):
        if found[what]:
            seconds = duration(sum(span.seconds(now) for span in ran.inner if span.what is what))
            bad = f", {failed[what]} failed" if failed[what] else ""
            said.append(f"{many(found[what], word)} ({seconds} added up{bad})")
    return ", ".join(said)


def together(lives: Iterable[Lived]) -> str:
    """Where the time of all attempts went, added up; empty without any."""
    summed: Counter[str] = Counter()
    for lived in lives:
        for ran in lived.attempts:
            summed.update({name: float(value) for name, value in ran.account.items() if name.endswith("_s") and value is not None})
    return f"all attempts together: {figures.spent(summed)}" if summed else ""


# Otlp
# ----
# Spans as OTLP has them in JSON: one document of any length, a span at a time.


SCHEMA_URL = f"https://opentelemetry.io/schemas/{CONVENTIONS}"
SERVICE = "nightcrew"
_INTERNAL, _CLIENT = 1, 3
_ERROR = 2
_TEXT_MAX = 4000
"""Characters of one value."""


def document(spans: Iterable[Span], *, content: bool) -> Iterator[str]:
    """The pieces of the document. A span that goes on is left out: OTLP has none."""
    resource = {"attributes": _attributes({"service.name": SERVICE, "service.version": __version__})}
    scope = {"name": SERVICE, "version": __version__}
    head = f'"resource":{json.dumps(resource)},"schemaUrl":{json.dumps(SCHEMA_URL)}'
    yield f'{{"resourceSpans":[{{{head},"scopeSpans":[{{"scope":{json.dumps(scope)},"spans":['
    first = True
    for span in spans:
        if span.end is not None:
            yield ("" if first else ",") + "\n" + json.dumps(shape(span, content=content), separators=(",", ":"))
            first = False
    yield "\n]}]}]}\n"


def shape(span: Span, *, content: bool) -> dict[str, Any]:
    """One span that has ended."""
    found: dict[str, Any] = {
        "traceId": span.trace,
        "spanId": span.id,
        "name": plain(span.name),
        "kind": _CLIENT if span.what is What.MODEL else _INTERNAL,
        "startTimeUnixNano": str(nanoseconds(span.start)),
        "endTimeUnixNano": str(nanoseconds(span.end or span.start)),
        "attributes": _attributes(attributes(span, content=content)),
    }
    return {**found, **({"parentSpanId": span.parent} if span.parent else {}), **({"status": {"code": _ERROR}} if span.error else {})}


def attributes(span: Span, *, content: bool) -> dict[str, Value]:
    """Those that leave the machine: with `content` also what a person or an agent wrote."""
    error: dict[str, Value] = {"error.type": span.error} if span.error else {}
    every = {**span.attributes, **(span.content if content else {}), **error}
    return {name: plain(value) if isinstance(value, str) else value for name, value in every.items()}


def nanoseconds(seconds: float) -> int:
    """Since 1970, without what a float cannot say: it is right to a microsecond."""
    return round(seconds * 1_000_000) * 1000


def plain(text: str) -> str:
    """What UTF-8 can hold, and not too long."""
    return text[:_TEXT_MAX].encode("utf-8", "backslashreplace").decode()


def _attributes(values: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: Value) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case _:
            return {"stringValue": value}
