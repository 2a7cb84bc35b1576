"""The spans of a run and of its tasks, read from the ledger or the archive, the gateway's account, and the agents' transcripts."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from agents import protocols
from agents.kinds import kinds
from supervisor.core import traces
from supervisor.core.errors import NightcrewError
from supervisor.core.trace_facts import AttemptFacts, Life, ToolCall
from supervisor.core.traces import Span
from supervisor.gateway.account import schema, traced
from supervisor.host import foreign
from supervisor.host.paths import Home
from supervisor.ledger import trace_rows
from supervisor.ledger.trace_rows import RunFacts

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
        return [one if one.closed is None else replace(one, last_request=traced.last_ended(account, task, one.epoch)) for one in found]

    def reach(self, facts: RunFacts, task: str, life: Life) -> float:
        """When the last of the spans of a task's attempts in one of its lives ends; 0.0 while there is none."""
        own = (one for one in self.attempts(facts, task) if one.life.number == life.number)
        return max((one.bounds[1] or 0.0 for one in own), default=0.0)

    def whole(self, facts: RunFacts, life: Life) -> Span:
        """The span of a life of a run."""
        own = ((task, each) for task, every in facts.lives.items() for each in every if each.of == life.number)
        reach = max((self.reach(facts, task, each) for task, each in own), default=0.0) if life.last else 0.0
        return traces.of_run(facts.id, facts.title, life, len(facts.tasks), reach)

    def tools(self, one: AttemptFacts) -> Iterator[ToolCall]:
        """The calls of tools that its transcript tells of."""
        protocol = _protocol(one.task.kind)
        if protocol:
            yield from protocols.tools(protocol, self._printed(one))

    def _printed(self, one: AttemptFacts) -> Iterator[bytes]:
        log = self.home.attempt(one.task.id, one.epoch) / "stdout.log"
        begin = 0
        while begin < LOG_MAX and (read := foreign.read_on(log, begin, PIECE)) is not None and read[0]:
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
    yield from traces.of_attempt(one, inner, books.tools(one) if calls else ())


def request_spans(books: Books, one: AttemptFacts, most: int) -> Iterator[Span]:
    """Those of its requests, at most `most` of them."""
    if books.account is not None:
        for request in traced.of_attempt(books.account, one.task.id, one.epoch, most):
            yield from traces.of_request(one.task, one.epoch, one.bounds, request)
