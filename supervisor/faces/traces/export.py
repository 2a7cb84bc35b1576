"""The exporter: sends spans that have ended, and keeps how far it has come. A process of its own, see `__main__`.

The cursor is written, durably, when a receiver has taken everything up to it. Whoever kills the exporter between the two has the spans sent
again, with the same ids: none is lost, and a receiver knows one that it has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Protocol

from supervisor.core import telemetry
from supervisor.core.errors import NightcrewError, NotFound, one_line
from supervisor.core.telemetry import Cursor, Terms
from supervisor.core.traces import Span
from supervisor.faces.traces import following, reading
from supervisor.host import secrets
from supervisor.host.paths import Home
from supervisor.ledger import journal, span_cursor, store

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
        self._agents = reading.agent_kinds()
        self._cursor = span_cursor.kept(home.telemetry)
        self._runs: tuple[int, following.Runs] = (0, {})

    def step(self) -> float:
        """Send what has ended; how many seconds to wait for the next step, 0.0 when there is more. Never raises a NightcrewError."""
        try:
            more = self._look()
        except NightcrewError as error:
            self._failures += 1
            self._tell(error.line())
            return telemetry.pause_s(self._failures)
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
        books = reading.Books(self._home, store.connect_readonly(self._home.ledger), reading.account_of(self._home), self._agents)
        with contextlib.closing(books):
            cursor = self._from(books)
            found = following.look(books, self._terms, cursor, self._clock(), self._known(books))
            for spans in _parts(found.spans(), SPANS):
                self._hand_over(spans)
            if found.cursor != cursor:
                self._keep(replace(found.cursor, refused=(self._cursor or cursor).refused))
            return found.more

    def _known(self, books: reading.Books) -> following.Runs:
        newest = journal.newest_entry(books.db)
        if self._runs[0] != newest or len(self._runs[1]) > RUNS:
            self._runs = newest, {}
        return self._runs[1]

    def _from(self, books: reading.Books) -> Cursor:
        """Where this look begins. One beyond the newest row was that of a ledger, or an account, which was replaced since."""
        newest = following.newest(books)
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
        elif telemetry.may_change(self._post.status):
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
        self._say(one_line(f"{self._terms.endpoint} refused {spans} span{'s' if spans > 1 else ''} for good: {self._post.why}"))

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
