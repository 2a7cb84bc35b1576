"""`nightcrew trace`."""

from __future__ import annotations

import contextlib
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.client import common
from supervisor.client.resolving import any_name
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import NotFound, UsageError, one_line
from supervisor.kernel.format import rfc3339
from supervisor.store import archive

if TYPE_CHECKING:
    from supervisor.features.trace.rows import RunFacts
    from supervisor.features.trace.rules import Span
    from supervisor.features.trace.view import Books

SPANS_MAX = 50_000
"""In `--json`; OTLP has all of them."""
PIPE, PIPE_FROM = 120, 1000
"""Columns where there is no terminal."""


@click.command()
@click.argument("name", required=False, shell_complete=any_name)
@click.option("--all", "every", is_flag=True, help="A line for everything: nothing is put together.")
@click.option(
    "--otlp", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True), help="Write OTLP as JSON to this file; - is stdout."
)
@click.option("--content", is_flag=True, help="With --otlp: also what people and agents wrote (titles, what tools were called with).")
@common.json_option
def command(name: str | None, every: bool, otlp: Path | None, content: bool, as_json: bool) -> None:
    """Show what took the time of a task or of a run (the newest without a name): waits, launch, model calls, tools.

    \b
    nightcrew trace fix-login
    nightcrew trace 1121-k3f9
    nightcrew trace 1121-k3f9 --otlp trace.json
    """
    if content and otlp is None:
        raise UsageError("--content is for --otlp", hint="nightcrew trace --otlp trace.json --content")
    where = home()
    run, tasks = _named(where, name)
    with _books(where, run) as books:
        facts = books.run(run)
        if facts is None:
            raise NotFound("no run", on=run, hint="nightcrew status --all")
        chosen = tasks or list(facts.tasks)
        if otlp is not None:
            _write(otlp, _spans(books, facts, chosen, whole=not tasks), content=content)
        elif as_json:
            common.print_json(**_shape(books, facts, chosen, whole=not tasks))
        else:
            _draw(books, facts, chosen, every=every)


def _named(where: Home, name: str | None) -> tuple[str, list[str]]:
    """The run, and the one task that was meant; none: the whole run."""
    from supervisor.cli import reporting

    if name is None:
        return reporting.run_named(where, None), []
    found = common.tasks_meant(where, name)
    run = found[0].partition("/")[0]
    return run, found if len(found) == 1 and name != run else []


@contextlib.contextmanager
def _books(where: Home, run: str) -> Iterator[Books]:
    from supervisor.features.trace import view as trace_view

    books = trace_view.Books(where, archive.reader(where.ledger, where.archive, run), trace_view.account_of(where))
    try:
        yield books
    finally:
        books.close()


def _spans(books: Books, facts: RunFacts, tasks: list[str], *, whole: bool) -> Iterator[Span]:
    from supervisor.features.trace import view as trace_view

    if whole:
        yield from trace_view.run_spans(facts, books)
    yield from trace_view.every_span(books, facts, tasks, time.time())


def _write(file: Path, spans: Iterator[Span], *, content: bool) -> None:
    from supervisor.features.trace import view as trace_view

    with click.open_file(str(file), "w", encoding="utf-8") as out:
        for piece in trace_view.document(spans, content=content):
            out.write(piece)


def _shape(books: Books, facts: RunFacts, tasks: list[str], *, whole: bool) -> dict[str, Any]:
    from supervisor.features.trace import view as trace_view
    from supervisor.kernel.names import trace_id

    now, shown, left_out = time.time(), list[dict[str, Any]](), 0
    for span in _spans(books, facts, tasks, whole=whole):
        if len(shown) == SPANS_MAX:
            left_out += 1
            continue
        times = {"start": rfc3339(span.start), "end": rfc3339(span.end), "seconds": round(span.seconds(now), 6)}
        told = {"attributes": trace_view.attributes(span, content=True), "error": span.error or None}
        shown.append({"id": span.id, "parent": span.parent or None, "what": str(span.what), "name": span.name, **times, **told})
    return {"run": facts.id, "trace": trace_id(facts.id), "tasks": len(tasks), "spans": shown, "left_out": left_out}


def _draw(books: Books, facts: RunFacts, tasks: list[str], *, every: bool) -> None:
    from supervisor.features.trace import view as trace_view
    from supervisor.kernel.names import trace_id

    now, width, color = time.time(), common.width(), common.use_color()
    width = width if width < PIPE_FROM else PIPE

    def paint(text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if color and text.strip() else text

    one = len(tasks) == 1
    lives = [trace_view.task(books, facts, task, now, calls=one) for task in (tasks if every else tasks[: trace_view.TASKS])]
    rows = trace_view.of_task(lives[0], every=every) if one else trace_view.of_run(trace_view.run_spans(facts, books), lives)
    title = one_line(facts.tasks[tasks[0]].title if one else facts.title)
    for line in (f"{tasks[0] if one else facts.id}  {title}".rstrip(), f"trace {trace_id(facts.id)}", ""):
        common.show(line)
    for line in trace_view.lines(rows, now, width, paint):
        common.show(line.rstrip())
    if len(lives) < len(tasks):
        common.show(f"  {len(tasks) - len(lives)} more tasks: nightcrew trace {facts.id} --all")
    common.show("")
    said = trace_view.words(lives[0], now) if one else filter(None, [trace_view.together(life for task in lives for life in task)])
    for line in (*said, trace_view.LEGEND):
        common.show("\n".join(textwrap.wrap(line, width, subsequent_indent="  ", drop_whitespace=False)))
