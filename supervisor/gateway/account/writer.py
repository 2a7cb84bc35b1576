"""The account's writer, for the gateway's loop.

A request's open row is on disk before the provider sees the request; whatever happens to us then, it is not forgotten. A row that is open
when the gateway starts is charged what was expected of it, and not less than what the provider had said by `note`, at most a second before.
When the same agent sends the same body again, as clients do whose stream was cut, the answer to that says what the prompt took.
What a request took in the end is written with the next commit, at the latest 50 ms later.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from supervisor.core.anchors import ranges
from supervisor.core.audit_events import trace_id
from supervisor.core.errors import NightcrewError
from supervisor.core.gateway import commands
from supervisor.core.gateway.types import Api, End, LaneKey, PoolKey, Usage
from supervisor.core.states import TaskClass
from supervisor.gateway.account import reading, schema
from supervisor.gateway.account.committer import Committer, Write
from supervisor.gateway.account.rows import CRASHED, ELSEWHERE, NEVER_SENT, PAST, OpenRow, RecordingRow, SettledRow, TurnedAwayRow
from supervisor.gateway.account.values import hour, number, text, tokens

_PRUNED_AT_ONCE = 200
"""Rows of one transaction of `prune`: about 5 ms, so that no request waits for it."""
RETRIED_S = 3600.0
"""Who was cut sends the same request again within this time, or never."""

Price = Callable[[str, Usage], float | None]
"""US dollars for what a model took; None: not known."""
Said = tuple[Usage | None, int]
"""What the provider has said of a request, and how much of its output has passed."""
Seen = Callable[[], Said]
_NOTHING_SAID: Said = None, 0


class Account:
    """Belongs to one event loop. `wall` gives seconds since 1970."""

    def __init__(self, path: Path, wall: Callable[[], float]) -> None:
        self.path = path
        self._wall = wall
        self._committer = Committer(path)
        self._ids = itertools.count(1)
        self._open: dict[int, OpenRow] = {}
        self._watched: dict[int, tuple[Seen, Said]] = {}
        """What is seen of an open row, and what was written of that."""
        self._lost: dict[tuple[str, str, str], list[Lost]] = {}
        """Rows whose gateway died, by agent, model and body: until the same body is answered."""
        self.recosted: Callable[[str, float, int, float], None] | None = None
        """Is told when what an agent was charged turns out to be so many dollars and tokens more or less, and by how many dollars the most
        that it could have cost was above the charge."""

    def start(self, price: Price) -> list[OpenRow]:
        """Open the file, making it when there is none. Blocks.

        Returns the rows that were open when the last gateway died; they are charged now. Raises LedgerError and DiskFull as
        `store.connect` does; the file is then as it was.
        """
        last, crashed, lost = self._committer.start(lambda db: _recover(db, price, self._wall() - RETRIED_S))
        self._ids = itertools.count(last + 1)
        self._price = price
        for one in lost:
            self._lost.setdefault(one.row.same, []).append(one)
        return crashed

    async def close(self) -> None:
        """Write everything that is waiting and give the file back. Raises DiskFull or LedgerError when something could not be written:
        those rows stay open, and the next start charges them what was expected."""
        await asyncio.to_thread(self._committer.close)

    @property
    def trouble(self) -> NightcrewError | None:
        """Why nothing can be written now; None when all is well."""
        return self._committer.trouble

    # Requests -----------------------------------------------------------------------------------------------------------------------

    async def open(self, row: OpenRow, with_it: Callable[[int], Write] | None = None) -> int:
        """Write it down; its id, once it is durable. Raises DiskFull or LedgerError: then the request must not be sent. `with_it`, by the
        id, is written no later. A caller that is cancelled meanwhile has sent nothing, and the row says so."""
        row_id = next(self._ids)
        self._open[row_id] = row
        if with_it is not None:
            self._committer.put(with_it(row_id))
        try:
            await self.written(_OPEN, _open_values(row_id, row))
        except asyncio.CancelledError:
            self.settle(row_id, SettledRow(NEVER_SENT, Usage(), cost_usd=0.0))
            raise
        except NightcrewError:
            del self._open[row_id]
            raise
        return row_id

    async def past(self, row: OpenRow, cost_usd: float | None, after: int) -> bool:
        """Charge what an attempt says that it took past the gateway (`row.bound`) beyond the `after` tokens that it was charged so; whether
        that is what it was charged. Raises DiskFull, LedgerError."""
        row_id = next(self._ids)
        if not await self.written(_PAST, (*_open_values(row_id, row), row.agent, row.epoch, PAST, after)):
            return False
        ended = SettledRow(End.SERVED, row.bound, cost_usd=cost_usd, estimated=True, flags=(ELSEWHERE,))
        await self.written(_SETTLE, _settled_values(row_id, ended))  # who charged it looks at the sums next
        return True

    def settle(self, row_id: int, row: SettledRow) -> None:
        """Say what became of it; durable within 50 ms. The first word counts: settling again changes nothing."""
        opened = self._open.pop(row_id, None)
        if opened is None:
            return
        self._watched.pop(row_id, None)
        self._put(_SETTLE, _settled_values(row_id, row))
        if self._lost and row.end == End.SERVED and not row.estimated:
            self._found(opened, row.usage)

    def reopen(self, row_id: int, row: OpenRow) -> None:
        """A row that the last gateway left open, and that this one goes on with: it is to be settled."""
        self._open[row_id] = row

    def watch(self, row_id: int, seen: Seen) -> None:
        """From now until it is settled `note` asks `seen` about this row."""
        self._watched[row_id] = seen, _NOTHING_SAID

    def note(self) -> None:
        """Write down what is seen of all open rows: call it now and then, for a row that is open when we die. Nobody waits for it."""
        if self._committer.trouble is not None:
            return
        for row_id, (seen, written) in self._watched.items():
            said = usage, passed = seen()
            if said != written:
                self._watched[row_id] = seen, said
                new, output, read, wrote = tokens(usage) if usage is not None else (None, 0, None, None)
                self._put(_SEEN, (new, max(output, passed), read, wrote, hour(usage or Usage()), row_id))

    def _found(self, opened: OpenRow, told: Usage) -> None:
        """A body was answered that may be one whose first answer was cut when a gateway died: charge that what is known now."""
        for lost in self._lost.pop(opened.same, ()):
            if lost.row.at < self._wall() - RETRIED_S:
                continue  # the audit log proves it as it is
            usage = lost.like(told)
            cost = _cost(self._price, lost.row, usage)
            self._put(_RECOST, (*tokens(usage), hour(usage), cost, lost.row_id))
            if self.recosted is not None:
                charged = lost.cost_usd or 0.0
                surplus = max(0.0, (lost.row.bound_usd or 0.0) - charged)
                self.recosted(opened.agent, (cost or 0.0) - charged, usage.uncached - lost.usage.uncached, surplus)

    def turned_away(self, row: TurnedAwayRow) -> None:
        """A request that we answered ourselves."""
        lane = row.lane
        values = (row.at, row.agent, row.epoch, lane.api, text(lane.model_class), lane.long_context, row.status, text(row.why))
        self._put("INSERT INTO turned_away VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*values, number(row.waited_ms) or 0.0))

    def recorded(self, row: RecordingRow) -> None:
        """Where the bodies of a sending are."""
        values = (row.row_id, row.at, row.run, text(row.endpoint), row.body_sha256, row.status, row.file)
        self._put("INSERT OR REPLACE INTO recording VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    # History and memory -------------------------------------------------------------------------------------------------------------

    def journal(self, change: commands.Journal) -> None:
        """A breaker changed."""
        numbers = {name: number(value) for name, value in change.numbers.items()}
        data = {"breaker": change.breaker, "before": change.before, "after": change.after, "why": change.why, "numbers": numbers}
        self._note(str(change.pool), "breaker", data)

    def alert(self, told: commands.Alert) -> None:
        """A person was told something."""
        self._note(told.about, "alert", {"text": told.text})

    def _note(self, about: str, event: str, data: Mapping[str, object]) -> None:
        self._put("INSERT INTO journal (at, about, event, data) VALUES (?, ?, ?, ?)", (self._wall(), text(about), event, json.dumps(data)))

    def remember(self, learned: Mapping[str, Any]) -> None:
        """Keep what `Traffic.learned` gives, in place of what was kept before."""
        self._put(_REMEMBER, ("learned", json.dumps(learned)))

    def recall(self) -> dict[str, Any]:
        """What was last kept; empty when nothing was."""
        found = json.loads(self.kept("learned") or "{}")
        return found if isinstance(found, dict) else {}

    async def keep(self, name: str, value: str) -> None:
        """Keep a text under a name, in place of what was kept there; durable when this returns. Raises DiskFull, LedgerError."""
        await self.written(_REMEMBER, (name, value))

    def kept(self, name: str) -> str:
        """What is kept under a name; empty when nothing is. Blocks. Raises LedgerError."""
        with contextlib.closing(schema.connect_readonly(self.path)) as db:
            row = db.execute("SELECT value FROM memory WHERE name = ?", (name,)).fetchone()
        return str(row["value"]) if row is not None else ""

    # Asked at start ------------------------------------------------------------------------------------------------------------------

    def recent(self, seconds: float) -> list[tuple[PoolKey, float, Usage, str]]:
        """What was charged in the last `seconds`, as (pool, its age in seconds, usage, agent); see `reading.recent`."""
        with contextlib.closing(schema.connect_readonly(self.path)) as db:
            return reading.recent(db, self._wall(), seconds)

    def spent(self, agent: str) -> tuple[float, int]:
        """US dollars and tokens (`Usage.uncached`) that the task took so far, over all its attempts, as its caps count them; requests
        without a known price are not in the dollars."""
        with contextlib.closing(schema.connect_readonly(self.path)) as db:
            return reading.counted_of(db, agent), reading.of_task(db, agent).tokens.uncached

    def at_most(self, agents: Sequence[str]) -> float:
        """As `reading.at_most`."""
        with contextlib.closing(schema.connect_readonly(self.path)) as db:
            return reading.at_most(db, agents)

    def spent_since(self, seconds: float) -> float:
        """US dollars that all took in the last `seconds`; requests without a known price are not in it."""
        with contextlib.closing(schema.connect_readonly(self.path)) as db:
            return reading.spent_since(db, self._wall() - seconds)

    async def window(self, seconds: float) -> reading.Window:
        """The figures of the last `seconds`, read by another thread."""
        return await asyncio.to_thread(self._window, seconds)

    def _window(self, seconds: float) -> reading.Window:
        with contextlib.closing(schema.connect_readonly(self.path)) as db:
            return reading.window(db, self._wall(), seconds)

    # Retention ----------------------------------------------------------------------------------------------------------------------

    def prunable(self, older_than_s: float) -> list[list[int]]:
        """The requests that `prune` would forget, as ranges of their numbers. Blocks: call it in a thread."""
        before = self._wall() - older_than_s
        with contextlib.closing(schema.connect_readonly(self.path)) as db:
            return ranges(int(row["id"]) for row in db.execute(f"SELECT id FROM request WHERE at < ? {_PRUNED}", (before,)))  # noqa: S608 - ours

    async def prune(self, older_than_s: float) -> int:
        """Forget what is older, in small transactions between which requests are written; how many rows. Open rows stay, and the newest
        one, so that no number is given twice."""
        before, pruned = self._wall() - older_than_s, 0
        for sql in _PRUNE:
            while (rows := await self.written(sql, (before, _PRUNED_AT_ONCE))) > 0:
                pruned += rows
        return pruned

    def _put(self, sql: str, values: tuple[object, ...]) -> None:
        self._committer.put(Write(sql, values))

    async def written(self, sql: str, values: tuple[object, ...]) -> int:
        """Have it written; the number of rows that it changed, once that is durable. Raises DiskFull, LedgerError."""
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._committer.put(Write(sql, values, waiter))
        return await waiter


_REMEMBER = "INSERT OR REPLACE INTO memory VALUES (?, ?)"
OPEN_COLUMNS = (
    "id, at, agent, epoch, class, model, api, model_class, long_context, account, upstream, attempt_no, session, body_key, queued_ms, "
    "bound_input, bound_output, bound_cache_read, bound_cache_write, bound_usd, "
    "expected_input, expected_output, expected_cache_read, expected_cache_write, asked, trace"
)
_SEEN_COLUMNS = "seen_input, seen_output, seen_cache_read, seen_cache_write, seen_cache_write_1h"
_PAST = f"""INSERT INTO request ({OPEN_COLUMNS}) SELECT {", ".join("?" * 26)}
    WHERE (SELECT total(bound_input + bound_output + bound_cache_read + bound_cache_write) FROM request
           WHERE agent = ? AND epoch = ? AND body_key = ?) = ?"""  # noqa: S608 - our own column names
_OPEN = f"INSERT INTO request ({OPEN_COLUMNS}) VALUES ({', '.join('?' * 26)})"  # noqa: S608 - our own column names
_SETTLE = """
    UPDATE request SET end = ?, status = ?, input = ?, output = ?, cache_read = ?, cache_write = ?, cache_write_1h = ?, estimated = ?,
        cost_usd = ?, counted_usd = ?, first_byte_ms = ?, total_ms = ?, retries = ?, breaker = ?, flags = ?, input_sha256 = sha256(?),
        output_sha256 = ?
    WHERE id = ? AND end IS NULL
"""
_SEEN = f"UPDATE request SET {_SEEN_COLUMNS.replace(',', ' = ?,')} = ? WHERE id = ? AND end IS NULL"  # noqa: S608 - our own column names
_CRASHED = f"""
    UPDATE request SET end = '{CRASHED}', input = ?, output = ?, cache_read = ?, cache_write = ?, cache_write_1h = ?, estimated = 1,
        cost_usd = ? WHERE id = ?
"""  # noqa: S608 - our own word
_RECOST = """
    UPDATE request SET input = ?, output = ?, cache_read = ?, cache_write = ?, cache_write_1h = ?, cost_usd = ?, flags = 'told_by_retry'
    WHERE id = ?
"""
_LOST = f"SELECT {OPEN_COLUMNS}, {_SEEN_COLUMNS}, end, cost_usd FROM request WHERE"  # noqa: S608 - our own names
_LIVING = "AND id NOT IN (SELECT request FROM batch)"
_CUT_OFF = f"{_LOST} end IS NULL {_LIVING} UNION ALL {_LOST} at >= ? AND end = '{CRASHED}' AND flags = '' ORDER BY id"
_OVER = "AND request NOT IN (SELECT id FROM request WHERE end IS NULL)"
_PRUNED = "AND end IS NOT NULL AND id < (SELECT max(id) FROM request)"
_PRUNE = tuple(
    f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE at < ? {which} LIMIT ?)"  # noqa: S608 - our own tables
    for table, which in (("request", _PRUNED), ("turned_away", ""), ("journal", ""), ("recording", ""), ("batch", _OVER))
)


@dataclass(frozen=True, slots=True)
class Lost:
    """A row that was open when its gateway died."""

    row_id: int
    row: OpenRow
    said: Usage | None
    """By the provider, before that."""
    passed: int
    """Output that was seen."""
    cost_usd: float | None = None
    """What it is charged."""

    @property
    def usage(self) -> Usage:
        """What it is charged for: the input as it was said, or as expected; the output as expected, and not below what was seen."""
        return replace(self.said or self.row.expected, output=max(self.passed, self.row.expected.output))

    def like(self, told: Usage) -> Usage:
        """The same, when the same request was answered again and took `told`: it may have read from the cache what this one wrote."""
        output = max(told.output, self.passed)
        if self.said is not None:
            return replace(self.said, output=output)
        read = min(self.row.expected.cache_read, told.cache_read)
        found = told.cache_read - read
        for_an_hour = told.cache_write_1h == told.cache_write  # as what it wrote itself; when that is nothing, the dearer
        return Usage(told.input, output, read, told.cache_write + found, told.cache_write_1h + (found if for_an_hour else 0))


def _recover(db: sqlite3.Connection, price: Price, since: float) -> tuple[int, list[OpenRow], list[Lost]]:
    """The highest id there is; the rows that were open, which are charged and closed by this; and those whose bodies may come again."""
    found, lost, crashed = db.execute(_CUT_OFF, (since,)).fetchall(), list[Lost](), list[OpenRow]()
    for row in found:
        one = Lost(row["id"], open_row(row), _usage(row, "seen"), row["seen_output"] or 0, row["cost_usd"])
        if row["end"] is None:
            one = replace(one, cost_usd=_cost(price, one.row, one.usage))
            db.execute(_CRASHED, (*tokens(one.usage), hour(one.usage), one.cost_usd, one.row_id))
            crashed.append(one.row)
        if one.row.body_key and one.row.at >= since:
            lost.append(one)
    return int(db.execute("SELECT coalesce(max(id), 0) FROM request").fetchone()[0]), crashed, lost


def _cost(price: Price, row: OpenRow, usage: Usage) -> float | None:
    """What was known as the most when its price was known is more than nothing now that it is not."""
    cost = number(price(row.model, usage))
    return row.bound_usd if cost is None else cost if row.bound_usd is None else min(cost, row.bound_usd)


def _open_values(row_id: int, row: OpenRow) -> tuple[object, ...]:
    lane, bound = row.lane, row.bound
    return (
        row_id, row.at, row.agent, row.epoch, str(row.task_class), text(row.model), str(lane.api), text(lane.model_class),
        int(lane.long_context), row.account, row.upstream, row.attempt_no, text(row.session), row.body_key,
        number(row.queued_ms) or 0.0, *tokens(bound), number(row.bound_usd), *tokens(row.expected),
        text(row.asked), trace_id(row.agent),
    )  # fmt: skip


def _settled_values(row_id: int, row: SettledRow) -> tuple[object, ...]:
    return (
        row.end, row.status, *tokens(row.usage), hour(row.usage), int(row.estimated), number(row.cost_usd), number(row.counted_usd),
        number(row.first_byte_ms), number(row.total_ms), row.retries, row.breaker, text(",".join(row.flags)),
        row.body, row.output_sha256, row_id,
    )  # fmt: skip


def _usage(row: sqlite3.Row, which: str) -> Usage | None:
    """Null where a row of schema 1 was not told, or nothing was seen."""
    tokens = [row[f"{which}_{kind}"] for kind in ("input", "output", "cache_read", "cache_write")]
    for_an_hour = (row["seen_cache_write_1h"] or 0) if which == "seen" else 0
    return None if None in tokens else replace(Usage(*tokens), cache_write_1h=for_an_hour)


def open_row(row: sqlite3.Row) -> OpenRow:
    """The opened half of a row that has OPEN_COLUMNS."""
    bound = Usage(row["bound_input"], row["bound_output"], row["bound_cache_read"], row["bound_cache_write"])
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
        bound=bound,
        expected=_usage(row, "expected") or bound,
        bound_usd=row["bound_usd"],
        session=row["session"],
        body_key=row["body_key"],
        asked=row["asked"],
    )
