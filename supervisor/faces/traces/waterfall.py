"""A trace as lines of a terminal: a bar for each span on one axis of time, and in words what took the time. Each sort of span has a sign
of its own, so nothing is lost without colours."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from supervisor.core.account import covered
from supervisor.core.analysis.types import many
from supervisor.core.errors import one_line
from supervisor.core.trace_facts import What
from supervisor.core.traces import Span
from supervisor.faces import usage
from supervisor.faces.status import age, columns, cut
from supervisor.faces.traces.gathering import Lived, Ran

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
        yield f"{padded}{bar} {took(row.seconds(now)):>{_TOOK}}{paint('!', '31') if any(span.error for span in row.spans) else ''}"


def _label(row: Row) -> str:
    return "  " * row.depth + one_line(row.label)


def _axis(length: float, room: int) -> str:
    middle = took(length / 2) if room > 40 else ""
    end = took(length)
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


def took(seconds: float) -> str:
    """`3ms`, `1.2s`, and from 10 s on as `status` says it."""
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < 10 else age(seconds)


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
    return usage.spent(account) if account.get("wall_s") is not None else "its time is not known"


def _calls(ran: Ran, now: float) -> str:
    found = Counter(span.what for span in ran.inner)
    failed = Counter(span.what for span in ran.inner if span.error)
    said = []
    for what, word in ((What.MODEL, "model call"), (What.TOOL, "tool call"), (What.TOKENS, "wait for tokens")):
        if found[what]:
            seconds = took(sum(span.seconds(now) for span in ran.inner if span.what is what))
            bad = f", {failed[what]} failed" if failed[what] else ""
            said.append(f"{_many(found[what], word)} ({seconds} added up{bad})")
    return ", ".join(said)


def _many(number: int, word: str) -> str:
    return many(number, word) if not word.startswith("wait") else f"{number:,} {'wait' if number == 1 else 'waits'} for tokens"


def together(lives: Iterable[Lived]) -> str:
    """Where the time of all attempts went, added up; empty without any."""
    summed: Counter[str] = Counter()
    for lived in lives:
        for ran in lived.attempts:
            summed.update({name: float(value) for name, value in ran.account.items() if name.endswith("_s") and value is not None})
    return f"all attempts together: {usage.spent(summed)}" if summed else ""
