"""What a waterfall shows of a run or of one task: its spans in the order in which they are drawn, and what took the time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.core import account, traces
from supervisor.core.account import Life, Measured, Used
from supervisor.core.trace_facts import AttemptFacts, What
from supervisor.core.traces import Span
from supervisor.faces.traces import reading
from supervisor.faces.traces.reading import Books
from supervisor.gateway.account import traced
from supervisor.ledger.trace_rows import RunFacts

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
        found.append(Lived(traces.of_task(facts.tasks[name], life, reach), tuple(own)))
    return found


def every_span(books: Books, facts: RunFacts, tasks: Iterable[str], now: float) -> Iterator[Span]:
    """All spans of these tasks, parents first, a task at a time."""
    for name in tasks:
        for lived in task(books, facts, name, now, calls=True):
            yield lived.own
            for ran in lived.attempts:
                yield from (ran.queue, ran.own, *ran.inner)


def _ran(books: Books, one: AttemptFacts, now: float, *, calls: bool) -> Ran:
    queue, own, *inner = reading.attempt_spans(books, one, calls=calls)
    inner = inner[:CALLS_MAX]
    goes_on = one.closed is None
    requests = list(reading.request_spans(books, one, CALLS_MAX)) if calls or goes_on else []
    known = traced.count(books.account, one.task.id, one.epoch) if calls and books.account is not None else 0
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
