"""The account's writer, for the gateway's loop.

A request's open row, with the most that it can take, is on disk before the provider sees the request; whatever happens to us then, its
tokens are not lost: a row that is open when the gateway starts is charged at that bound. What it took in the end is written with the next
commit, at the latest 50 ms later.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from supervisor.core.crew import TaskClass
from supervisor.core.errors import NightcrewError
from supervisor.core.gateway import commands
from supervisor.core.gateway.nouns import Api, LaneKey, PoolKey, Usage
from supervisor.gateway.account import reading, schema
from supervisor.gateway.account.committer import Committer, Write
from supervisor.gateway.account.rows import CRASHED, NEVER_SENT, OpenRow, RecordingRow, SettledRow, TurnedAwayRow

_PRUNED_AT_ONCE = 200
"""Rows of one transaction of `prune`: about 5 ms, so that no request waits for it."""
_TEXT_MAX = 300
"""Characters of what a client says (a model's name, a session's): the rest is cut off."""
_NUMBER_MAX = 2**53


class Listener(Protocol):
    """Who else hears of what is written: the metrics."""

    def settled(self, opened: OpenRow, settled: SettledRow) -> None:
        """A sending is over."""

    def turned_away(self, row: TurnedAwayRow) -> None:
        """We answered a request ourselves."""

    def changed(self, change: commands.Journal) -> None:
        """A breaker changed."""


class Account:
    """Belongs to one event loop. `wall` gives seconds since 1970."""

    def __init__(self, path: Path, wall: Callable[[], float], listener: Listener | None = None) -> None:
        self._path = path
        self._wall = wall
        self._listener = listener
        self._committer = Committer(path)
        self._ids = itertools.count(1)
        self._open: dict[int, OpenRow] = {}

    def start(self) -> list[OpenRow]:
        """Open the file, making it when there is none. Blocks.

        Returns the rows that were open when the last gateway died, now charged at their bound. Raises LedgerError and DiskFull as
        `store.connect` does; the file is then as it was.
        """
        last, crashed = self._committer.start(_recover)
        self._ids = itertools.count(last + 1)
        return crashed

    async def close(self) -> None:
        """Write everything that is waiting and give the file back. Raises DiskFull or LedgerError when something could not be written:
        those rows stay open, and the next start charges them at their bound."""
        await asyncio.to_thread(self._committer.close)

    @property
    def trouble(self) -> NightcrewError | None:
        """Why nothing can be written now; None when all is well."""
        return self._committer.trouble

    # Requests -----------------------------------------------------------------------------------------------------------------------

    async def open(self, row: OpenRow) -> int:
        """Write it down; its id, once it is durable. Raises DiskFull or LedgerError: then the request must not be sent.

        A caller that is cancelled meanwhile has sent nothing, and the row says so.
        """
        row_id = next(self._ids)
        self._open[row_id] = row
        try:
            await self._written(_OPEN, _open_values(row_id, row))
        except asyncio.CancelledError:
            self.settle(row_id, SettledRow(NEVER_SENT, Usage(), cost_usd=0.0))
            raise
        except NightcrewError:
            del self._open[row_id]
            raise
        return row_id

    def settle(self, row_id: int, row: SettledRow) -> None:
        """Say what became of it; durable within 50 ms. The first word counts: settling again changes nothing."""
        opened = self._open.pop(row_id, None)
        if opened is None:
            return
        self._put(_SETTLE, _settled_values(row_id, row))
        if self._listener is not None:
            self._listener.settled(opened, row)

    def turned_away(self, row: TurnedAwayRow) -> None:
        """A request that we answered ourselves."""
        lane = row.lane
        values = (row.at, row.agent, row.epoch, lane.api, _text(lane.model_class), lane.long_context, row.status, _text(row.why))
        self._put("INSERT INTO turned_away VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*values, _number(row.waited_ms) or 0.0))
        if self._listener is not None:
            self._listener.turned_away(row)

    def recorded(self, row: RecordingRow) -> None:
        """Where the bodies of a sending are."""
        values = (row.row_id, row.at, row.run, _text(row.endpoint), row.body_sha256, row.status, row.file)
        self._put("INSERT OR REPLACE INTO recording VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    # History and memory -------------------------------------------------------------------------------------------------------------

    def journal(self, change: commands.Journal) -> None:
        """A breaker changed."""
        numbers = {name: _number(number) for name, number in change.numbers.items()}
        data = {"breaker": change.breaker, "before": change.before, "after": change.after, "why": change.why, "numbers": numbers}
        self._note(str(change.pool), "breaker", data)
        if self._listener is not None:
            self._listener.changed(change)

    def alert(self, told: commands.Alert) -> None:
        """A person was told something."""
        self._note(told.about, "alert", {"text": told.text})

    def _note(self, about: str, event: str, data: Mapping[str, object]) -> None:
        self._put("INSERT INTO journal (at, about, event, data) VALUES (?, ?, ?, ?)", (self._wall(), _text(about), event, json.dumps(data)))

    def remember(self, learned: Mapping[str, Any]) -> None:
        """Keep what `Traffic.learned` gives, in place of what was kept before."""
        self._put("INSERT OR REPLACE INTO memory VALUES ('learned', ?)", (json.dumps(learned),))

    def recall(self) -> dict[str, Any]:
        """What was last kept; empty when nothing was."""
        with contextlib.closing(schema.connect_readonly(self._path)) as db:
            row = db.execute("SELECT value FROM memory WHERE name = 'learned'").fetchone()
        found = json.loads(row["value"]) if row is not None else {}
        return found if isinstance(found, dict) else {}

    # Asked at start ------------------------------------------------------------------------------------------------------------------

    def recent(self, seconds: float) -> list[tuple[PoolKey, float, Usage, str]]:
        """What was charged in the last `seconds`, as (pool, its age in seconds, usage, agent); see `reading.recent`."""
        with contextlib.closing(schema.connect_readonly(self._path)) as db:
            return reading.recent(db, self._wall(), seconds)

    def spent(self, agent: str) -> float:
        """US dollars that the task took so far, over all its attempts; requests without a known price are not in it."""
        with contextlib.closing(schema.connect_readonly(self._path)) as db:
            return reading.of_task(db, agent).known_usd

    def spent_since(self, seconds: float) -> float:
        """US dollars that all took in the last `seconds`; requests without a known price are not in it."""
        with contextlib.closing(schema.connect_readonly(self._path)) as db:
            return reading.spent_since(db, self._wall() - seconds)

    async def window(self, seconds: float) -> reading.Window:
        """The figures of the last `seconds`, read by another thread."""
        return await asyncio.to_thread(self._window, seconds)

    def _window(self, seconds: float) -> reading.Window:
        with contextlib.closing(schema.connect_readonly(self._path)) as db:
            return reading.window(db, self._wall(), seconds)

    # Retention ----------------------------------------------------------------------------------------------------------------------

    async def prune(self, older_than_s: float) -> int:
        """Forget what is older, in small transactions between which requests are written; how many rows. Open rows stay."""
        before, pruned = self._wall() - older_than_s, 0
        for sql in _PRUNE:
            while (rows := await self._written(sql, (before, _PRUNED_AT_ONCE))) > 0:
                pruned += rows
        return pruned

    def _put(self, sql: str, values: tuple[object, ...]) -> None:
        self._committer.put(Write(sql, values))

    async def _written(self, sql: str, values: tuple[object, ...]) -> int:
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._committer.put(Write(sql, values, waiter))
        return await waiter


_OPEN_COLUMNS = (
    "id, at, agent, epoch, class, model, api, model_class, long_context, account, upstream, attempt_no, session, queued_ms, "
    "bound_input, bound_output, bound_cache_read, bound_cache_write, bound_usd"
)
# The digest of its body is kept with its recording alone; older rows have it here.
_OPEN = f"INSERT INTO request ({_OPEN_COLUMNS}, body_sha256) VALUES ({', '.join('?' * 19)}, '')"  # noqa: S608 - our own column names
_SETTLE = """
    UPDATE request SET end = ?, status = ?, input = coalesce(?, bound_input), output = coalesce(?, bound_output),
        cache_read = coalesce(?, bound_cache_read), cache_write = coalesce(?, bound_cache_write),
        estimated = ?, cost_usd = CASE WHEN ? THEN ? ELSE bound_usd END,
        first_byte_ms = ?, total_ms = ?, retries = ?, breaker = ?, flags = ?
    WHERE id = ? AND end IS NULL
"""
_CRASHED = f"""
    UPDATE request SET end = '{CRASHED}', input = bound_input, output = bound_output, cache_read = bound_cache_read,
        cache_write = bound_cache_write, estimated = 1, cost_usd = bound_usd WHERE end IS NULL
"""  # noqa: S608 - our own word
_PRUNE = tuple(
    f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE at < ? {which} LIMIT ?)"  # noqa: S608 - our own tables
    for table, which in (("request", "AND end IS NOT NULL"), ("turned_away", ""), ("journal", ""), ("recording", ""))
)


def _recover(db: sqlite3.Connection) -> tuple[int, list[OpenRow]]:
    """The highest id there is, and the rows that were open, which are closed by this."""
    found = [_open_row(row) for row in db.execute(f"SELECT {_OPEN_COLUMNS} FROM request WHERE end IS NULL ORDER BY id").fetchall()]  # noqa: S608 - as above
    if found:
        db.execute(_CRASHED)
    return int(db.execute("SELECT coalesce(max(id), 0) FROM request").fetchone()[0]), found


def _open_values(row_id: int, row: OpenRow) -> tuple[object, ...]:
    lane, bound = row.lane, row.bound
    return (
        row_id, row.at, row.agent, row.epoch, row.task_class, _text(row.model), lane.api, _text(lane.model_class), lane.long_context,
        row.account, row.upstream, row.attempt_no, _text(row.session), _number(row.queued_ms) or 0.0,
        *_tokens(bound), _number(row.bound_usd),
    )  # fmt: skip


def _settled_values(row_id: int, row: SettledRow) -> tuple[object, ...]:
    usage, known = row.usage, row.usage is not None
    tokens = _tokens(usage) if usage is not None else (None,) * 4
    return (
        row.end, row.status, *tokens, row.estimated or not known, known, _number(row.cost_usd),
        _number(row.first_byte_ms), _number(row.total_ms), row.retries, row.breaker, _text(",".join(row.flags)), row_id,
    )  # fmt: skip


def _open_row(row: sqlite3.Row) -> OpenRow:
    return OpenRow(
        agent=row["agent"],
        epoch=row["epoch"],
        model=row["model"],
        lane=LaneKey(Api(row["api"]), row["model_class"], bool(row["long_context"])),
        upstream=row["upstream"],
        account=row["account"],
        task_class=TaskClass(row["class"]),
        at=row["at"],
        queued_ms=row["queued_ms"],
        attempt_no=row["attempt_no"],
        bound=Usage(row["bound_input"], row["bound_output"], row["bound_cache_read"], row["bound_cache_write"]),
        bound_usd=row["bound_usd"],
        session=row["session"],
    )


# Whatever a client or a provider said, SQLite takes it: one row that it refused would take down those that are committed with it.


def _text(said: str) -> str:
    return said[:_TEXT_MAX] if said.isascii() else said[:_TEXT_MAX].encode("utf-8", "backslashreplace").decode()


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _tokens(usage: Usage) -> tuple[int, int, int, int]:
    return _count(usage.input), _count(usage.output), _count(usage.cache_read), _count(usage.cache_write)


def _count(tokens: int) -> int:
    return min(max(0, tokens), _NUMBER_MAX)
