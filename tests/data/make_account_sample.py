"""Writes `gateway-6.sql`, an account of schema 6 as text, that every later version must be able to load.

    python -m tests.data.make_account_sample > tests/data/gateway-6.sql

It was run once, by the version that introduced the schema, and its output is never written again: that is its use. For the next
schema, run this with that version and commit the output under that number.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from supervisor.gateway.account import schema
from supervisor.gateway.account.charges import REFUSED, RecordingRow
from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission import types as events
from supervisor.gateway.admission.types import BreakerState, LaneKey, PoolKey, Usage
from supervisor.kernel.gateway_settings import Api
from supervisor.kernel.states import TaskClass
from tests.gateway.account.kit import LANE, NOW, Wall, away, opened, served, unpriced

LONG = LaneKey(Api.GEMINI, "gemini-3-pro", long_context=True)


async def _write(path: Path) -> None:
    book = Account(path, Wall())
    book.start(unpriced)
    settled = [
        (opened(), served()),
        (opened(), served(end=REFUSED, usage=Usage(), status=429, cost_usd=0.0, first_byte_ms=None)),
        (
            opened(attempt_no=2),
            served(
                end="cut",
                usage=Usage(20_000, 64_000),
                estimated=True,
                cost_usd=1.7,
                flags=("usage missing", "our fault"),
                retries=1,
                breaker="half-open",
            ),
        ),
        (
            opened(agent="1121-k3f9/night", epoch=2, task_class=TaskClass.BATCH, lane=LONG, model="gemini-3-pro\ud800"),
            served(cost_usd=None),
        ),
        (opened(agent="1121-k3f9/left", bound_usd=None), served(end="client gone", usage=Usage(10, 7), estimated=True, status=None)),
    ]
    for row, ended in settled:
        book.settle(await book.open(row), ended)
    row_id = await book.open(opened(at=NOW + 5))
    book.watch(row_id, lambda: (Usage(1000, 1, 9000), 420))
    book.note()
    book.turned_away(away())
    book.recorded(RecordingRow(1, "1121-k3f9", "POST /v1/messages?beta=true", "ab" * 32, 200, "1121-k3f9/1.tape", NOW))
    numbers = {"level": -5.0, "outside": 3.25}
    book.journal(events.Journal(PoolKey("work", LANE), "limit", BreakerState.CLOSED, BreakerState.OPEN, "429", numbers))
    book.alert(events.Alert("key of work", "the key of work was refused"))
    book.remember({"pools": {"work": {"margin": 0.97}}})
    await book.close()


def write(path: Path) -> None:
    """Requests that ended in every way, one that is open, and something in every other table."""
    asyncio.run(_write(path))


def dump(path: Path) -> Iterator[str]:
    """The file as SQL. `iterdump` leaves the schema's number out."""
    with closing(sqlite3.connect(path)) as db:
        yield from db.iterdump()
    yield f"PRAGMA user_version={schema.SCHEMA};"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory) / "gateway.db")
        sys.stdout.write("\n".join(dump(Path(directory) / "gateway.db")) + "\n")
