"""What a person says of a result on a page: each is what `nightcrew review` does."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator

from supervisor.cli import common
from supervisor.cli import reviewing as verbs
from supervisor.core.errors import Refused, UsageError
from supervisor.core.reviews import Verdict
from supervisor.daemon import results
from supervisor.faces import conflicts, review
from supervisor.faces.review import Review
from supervisor.host.paths import Home
from supervisor.ledger import queries


class ReviewActs:
    """`Reviewing` of one home."""

    def __init__(self, where: Home) -> None:
        self._where = where

    def comment(self, task: str, tip: str, path: str, line: int, text: str) -> str:
        """As `nightcrew review --comment`."""
        with self._gathered(task) as (_, found):
            self._check(found, tip)
            made = verbs.comment(self._where, found, f"{path}:{line}", text)
        return f"comment {made['comment']} is kept; it is sent when you say so"

    def drop(self, task: str, number: int) -> str:
        """As `nightcrew review --drop`."""
        verbs.drop(self._where, task, number)
        return f"comment {number} is removed"

    def send(self, task: str, more: str) -> str:
        """As `nightcrew review --send`."""
        with self._gathered(task) as (db, found):
            made = verbs.send(self._where, db, found, more, os.environ)
        state = f" ({made['state']})" if made.get("state") else ""
        return f"{made['sent']} comment{'s' if made['sent'] != 1 else ''} sent to {made['to']}{state}"

    def decide(self, task: str, tip: str, verdict: str, why: str) -> str:
        """As `nightcrew review --accept` and `--reject`."""
        if verdict not in (Verdict.ACCEPTED, Verdict.REJECTED):
            raise UsageError("no such verdict", on=verdict)
        with self._gathered(task) as (_, found):
            made = verbs.decide(self._where, found, verdict, why, tip)
        return f"{task} is {made['verdict']} at {made['commit'][:12]}"

    @contextlib.contextmanager
    def _gathered(self, task: str) -> Iterator[tuple[sqlite3.Connection, Review]]:
        with contextlib.closing(common.ledger(self._where, task)) as db:
            view = queries.one(db, task)
            repository, tip = results.seen(db, view)
            yield db, review.gather(db, view, repository, tip, conflicts.known(self._where, view.project))

    @staticmethod
    def _check(found: Review, tip: str) -> None:
        if found.tip != tip:
            why = f"its result is {found.tip[:12]} by now, and its lines may be others"
            raise Refused("not commented", on=found.view.id, why=why, hint="look at it again")
