"""Write the account: one thread commits everything that waits."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from supervisor.features.audit.rows import Followed
from supervisor.features.audit.rules import ranges
from supervisor.gateway.account import schema
from supervisor.gateway.account.charges import (
    CRASHED,
    ELSEWHERE,
    NEVER_SENT,
    PAST,
    BodyDigest,
    OpenRow,
    RecordingRow,
    SettledRow,
    TurnedAwayRow,
    hour,
    number,
    text,
    tokens,
)
from supervisor.gateway.account.prefixes import KEPT, Prefixes
from supervisor.gateway.account.schema import ACCOUNT
from supervisor.gateway.admission import types
from supervisor.gateway.admission.types import End, LaneKey, Usage
from supervisor.kernel.errors import LedgerError, NightcrewError, from_wire
from supervisor.kernel.gateway_settings import Api
from supervisor.kernel.names import trace_id
from supervisor.kernel.states import TaskClass
from supervisor.store import sqlite

# Committer
# ---------
# The one thread that writes the account. Everything that waits is committed at once: fifty requests that are opened together cost
# one sync of the disk, not fifty.
#
# To wake the thread and to commit cost far more than to write a row, so it is woken once for all that comes before it looks, and
# while many are waiting it lets some more come first.


GROUP_S = 0.05
"""A write for which nobody waits is committed with the next one for which somebody does, at the latest after this time."""
AGAIN_S = 1.0
"""What could not be written is tried again after this time, or together with the next write."""
_CROWD = 3
"""When so many waited for a commit, the next one ..."""
_CROWD_S = 0.004
"""... waits so long for more of them: with 50 clients twice as many share a commit (PostgreSQL's commit_siblings and commit_delay)."""
_MOST = 1000
"""Writes of one transaction: the first of them must not wait for ever because others keep coming."""

_QUIET, _PATIENT, _URGENT = range(3)
"""How the thread was called since it last looked: not at all; to look within GROUP_S; at once."""

T = TypeVar("T")
P = ParamSpec("P")


class Write(NamedTuple):
    """One statement. Whoever waits gets the number of rows that it changed, after the commit, or the error that nothing was written."""

    sql: str
    values: Sequence[object]
    waiter: asyncio.Future[int] | None = None


class Committer:
    """Writes in the order in which it is told, in transactions, by its own thread and its own connection."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: deque[Write] = deque()
        self._bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """True when somebody waits."""
        self._rung = _QUIET
        self._thread = threading.Thread(target=self._run, name="account", daemon=True)
        self._started: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._first: Callable[[sqlite3.Connection], object] = lambda _: None
        self._held: list[Write] = []
        self._has_written = False
        self._is_crowded = False
        self._closing = False
        self.trouble: NightcrewError | None = None
        """Why the last commit failed; None when it did not. Writes for which nobody waits are kept until one succeeds."""

    def start(self, first: Callable[[sqlite3.Connection], T]) -> T:
        """Open the file, do `first` with it, and begin. Raises what opening or `first` raises; then no thread is left."""
        self._first = first
        self._thread.start()
        outcome = self._started.get()
        if isinstance(outcome, Exception):
            self._thread.join()
            raise outcome
        return outcome  # type: ignore[return-value]  # it is what `first` returned

    def put(self, write: Write) -> None:
        """Have it written; never blocks. Raises LedgerError when somebody would wait for it in vain: the thread has ended."""
        if write.waiter is not None and not self._thread.is_alive():
            raise LedgerError("the account is closed", on=str(self._path), kept="everything committed before")
        self._pending.append(write)
        self._ring(_URGENT if write.waiter is not None else _PATIENT)

    def close(self) -> None:
        """Write what waits, give the file back, and end the thread. Blocks. Raises what kept something from being written."""
        self._closing = True
        self._bell.put(True)
        self._thread.join()
        if self.trouble is not None and self._held:
            raise self.trouble

    def _ring(self, how: int) -> None:
        """Wake the writer unless it is already due. Nothing is overlooked: it resets to `_QUIET` before it takes what is pending."""
        if self._rung < how:
            self._rung = how
            self._bell.put(how == _URGENT)

    # In the thread ------------------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            db = schema.connect(self._path)
        except Exception as error:  # noqa: BLE001 - `start` raises it
            self._started.put(error)
            return
        with contextlib.closing(db):
            try:
                identity = sqlite.file_identity(self._path)
                outcome = self._first(db)
            except Exception as error:  # noqa: BLE001 - as above
                self._started.put(error)
                return
            self._started.put(outcome)
            while not self._closing:
                self._await_bell()
                self._write(db, identity, self._held + self._taken())
            self._write(db, identity, self._held + list(self._pending))

    def _await_bell(self) -> None:
        """Until there is something to write, and whoever may come with it has had the time; or old writes are to be tried again.

        After a write it looks once more by itself, and need not be woken for the settling that follows most openings.
        """
        wait = None
        if self._held:
            wait = AGAIN_S
        elif self._has_written:
            wait = GROUP_S
            self._rung = max(self._rung, _PATIENT)
        with contextlib.suppress(queue.Empty):
            somebody_waits = self._bell.get(timeout=wait)
            if not somebody_waits:
                self._bell.get(timeout=GROUP_S)
            elif self._is_crowded and not self._closing:
                time.sleep(_CROWD_S)

    def _taken(self) -> list[Write]:
        """The next writes; none when there are old ones alone."""
        self._rung = _QUIET
        batch = [self._pending.popleft() for _ in range(min(len(self._pending), _MOST))]
        self._has_written = bool(batch)
        self._is_crowded = sum(write.waiter is not None for write in batch) >= _CROWD
        if self._pending:
            self._ring(_URGENT)
        return batch

    def _write(self, db: sqlite3.Connection, identity: tuple[int, int], batch: list[Write]) -> None:
        if not batch:
            return
        try:
            sqlite.check_same_file(self._path, identity, schema.ACCOUNT)
            with sqlite.transaction(db, self._path, book=schema.ACCOUNT):
                changed = [db.execute(write.sql, write.values).rowcount for write in batch]
        except Exception as error:  # noqa: BLE001 - whoever waits is told, whatever it is
            self.trouble = error if isinstance(error, NightcrewError) else NightcrewError("the account cannot be written", why=repr(error))
            self._held = [write for write in batch if write.waiter is None]
            _tell([(write.waiter, self.trouble) for write in batch if write.waiter is not None])
        else:
            self.trouble, self._held = None, []
            _tell([(write.waiter, rows) for write, rows in zip(batch, changed, strict=True) if write.waiter is not None])


Told = list[tuple["asyncio.Future[int]", "int | NightcrewError"]]


def _tell(told: Told) -> None:
    """Wake all who wait, by one message to their loop."""
    if told:
        with contextlib.suppress(RuntimeError):  # their loop is closed: nobody waits any more
            told[0][0].get_loop().call_soon_threadsafe(_resolve, told)


def _resolve(told: Told) -> None:
    for waiter, outcome in told:
        if waiter.done():  # its request was cancelled
            continue
        if isinstance(outcome, NightcrewError):
            waiter.set_exception(from_wire(outcome.to_wire()))  # each its own: a traceback grows with every raise
        else:
            waiter.set_result(outcome)


# Writer
# ------
# The account's writer, for the gateway's loop.
#
# A request's open row is on disk before the provider sees the request; whatever happens to us then, it is not forgotten. A row that
# is open when the gateway starts is charged what was expected of it, and not less than what the provider had said by `note`, at
# most a second before. When the same agent sends the same body again, as clients do whose stream was cut, the answer to that says
# what the prompt took. What a request took in the end is written with the next commit, at the latest 50 ms later.


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
        self._prefixes = Prefixes("")
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
        with contextlib.suppress(ValueError):  # it is not worth a gateway that does not start
            self._prefixes = Prefixes(self.kept(KEPT))
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

    def kept_answer(self, row: OpenRow, settled: SettledRow) -> None:
        """A request that was answered without an upstream: it is charged nothing, also where we die between the two."""
        row_id = next(self._ids)
        self._put(_OPEN, _open_values(row_id, row))
        self._put(_SETTLE, _settled_values(row_id, settled))

    def settle(self, row_id: int, row: SettledRow) -> None:
        """Say what became of it; durable within 50 ms. The first word counts: settling again changes nothing."""
        opened = self._open.pop(row_id, None)
        if opened is None:
            return
        self._watched.pop(row_id, None)
        self._put(_SETTLE, _settled_values(row_id, row, partial(self._prefixes.look, opened, row)))
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

    def journal(self, change: types.Journal) -> None:
        """A breaker changed."""
        numbers = {name: number(value) for name, value in change.numbers.items()}
        data = {"breaker": change.breaker, "before": change.before, "after": change.after, "why": change.why, "numbers": numbers}
        self._note(str(change.pool), "breaker", data)

    def alert(self, told: types.Alert) -> None:
        """A person was told something."""
        self._note(told.about, "alert", {"text": told.text})

    def _note(self, about: str, event: str, data: Mapping[str, object]) -> None:
        self._put("INSERT INTO journal (at, about, event, data) VALUES (?, ?, ?, ?)", (self._wall(), text(about), event, json.dumps(data)))

    def remember(self, learned: Mapping[str, Any]) -> None:
        """Keep what `Traffic.learned` gives, in place of what was kept before."""
        self._put(_REMEMBER, ("learned", json.dumps(learned)))
        if self._prefixes.kept:
            self._put(_REMEMBER, (KEPT, self._prefixes))

    def recall(self) -> dict[str, Any]:
        """What was last kept; empty when nothing was."""
        found = json.loads(self.kept("learned") or "{}")
        return found if isinstance(found, dict) else {}

    async def keep(self, name: str, value: str) -> None:
        """Keep a text under a name, in place of what was kept there; durable when this returns. Raises DiskFull, LedgerError."""
        await self.written(_REMEMBER, (name, value))

    def kept(self, name: str) -> str:
        """What is kept under a name; empty when nothing is. Blocks. Raises LedgerError."""
        rows = self.ask(lambda db: db.execute("SELECT value FROM memory WHERE name = ?", (name,)).fetchall())
        return "".join(str(row["value"]) for row in rows)

    def ask(self, read: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **more: P.kwargs) -> T:
        """Call a function of `reading` on a connection of its own. Blocks. Raises LedgerError."""
        with contextlib.closing(schema.connect_readonly(self.path)) as db:
            return read(db, *args, **more)

    # Retention ----------------------------------------------------------------------------------------------------------------------

    def prunable(self, older_than_s: float) -> list[list[int]]:
        """The requests that `prune` would forget, as ranges of their numbers. Blocks: call it in a thread."""
        before = self._wall() - older_than_s
        sql = f"SELECT id FROM request WHERE at < ? {_PRUNED}"  # noqa: S608 - ours
        return ranges(self.ask(lambda db: [int(row["id"]) for row in db.execute(sql, (before,))]))

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
    "expected_input, expected_output, expected_cache_read, expected_cache_write, asked, trace, work, work_why"
)
_SEEN_COLUMNS = "seen_input, seen_output, seen_cache_read, seen_cache_write, seen_cache_write_1h"
_PAST = f"""INSERT INTO request ({OPEN_COLUMNS}) SELECT {", ".join("?" * 28)}
    WHERE (SELECT total(bound_input + bound_output + bound_cache_read + bound_cache_write) FROM request
           WHERE agent = ? AND epoch = ? AND body_key = ?) = ?"""  # noqa: S608 - our own column names
_OPEN = f"INSERT INTO request ({OPEN_COLUMNS}) VALUES ({', '.join('?' * 28)})"  # noqa: S608 - our own column names
_SETTLE = """
    UPDATE request SET end = ?, status = ?, input = ?, output = ?, cache_read = ?, cache_write = ?, cache_write_1h = ?, estimated = ?,
        cost_usd = ?, counted_usd = ?, first_byte_ms = ?, total_ms = ?, retries = ?, breaker = ?, flags = ?, input_sha256 = ?,
        output_sha256 = ?, engine_ms = ?, kv_bytes = ?
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
        text(row.asked), trace_id(row.agent), row.work, row.work_why,
    )  # fmt: skip


def _settled_values(row_id: int, row: SettledRow, look: Callable[[], None] = lambda: None) -> tuple[object, ...]:
    return (
        row.end, row.status, *tokens(row.usage), hour(row.usage), int(row.estimated), number(row.cost_usd), number(row.counted_usd),
        number(row.first_byte_ms), number(row.total_ms), row.retries, row.breaker, text(",".join(row.flags)),
        BodyDigest(row.body, look) if row.body else None, row.output_sha256,
        1000 * row.engine_s, row.kv_bytes, row_id,
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


# Batches
# -------
# Batches in the account: a row in `request` each, and whose it is. They live for hours, and outlive the gateway.


_COLUMNS = ", ".join(f"r.{name}" for name in OPEN_COLUMNS.split(", "))
_ALL = f"""
    SELECT {_COLUMNS}, r.end, b.id AS batch, b.family, b.key, b.requests
    FROM batch b JOIN request r ON r.id = b.request ORDER BY b.request
"""  # noqa: S608 - our own names


@dataclass(slots=True)
class Kept:
    """One batch."""

    row_id: int
    row: OpenRow
    family: str
    """Whose it is."""
    key: str
    """The client's idempotency key; empty: it gave none."""
    requests: int
    """How many are in it."""
    id: str = ""
    """The provider's; empty: nobody knows whether the provider has made it."""
    over: bool = False
    """What it took is known, and charged."""


class BatchBook:
    """All batches that the account knows. Belongs to the gateway's loop."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.all: dict[int, Kept] = {}
        """By row."""

    def start(self) -> None:
        """Read all batches, and go on with those that live. Blocks; call it once the account has started."""
        for row in self._account.ask(lambda db: db.execute(_ALL).fetchall()):
            over = row["end"] is not None
            one = Kept(row["id"], open_row(row), row["family"], row["key"], row["requests"], row["batch"] or "", over)
            self.all[one.row_id] = one
            if not over:
                self._account.reopen(one.row_id, one.row)

    async def open(self, row: OpenRow, family: str, key: str, requests: int) -> Kept:
        """Write down that one is about to be made. Raises as `Account.open` does."""

        def with_it(row_id: int) -> Write:
            return Write("INSERT INTO batch VALUES (?, ?, NULL, ?, ?, ?)", (row_id, row.at, family, key, requests))

        row_id = await self._account.open(row, with_it)
        self.all[row_id] = kept = Kept(row_id, row, family, key, requests)
        return kept

    async def name(self, kept: Kept, batch: str) -> None:
        """The provider has made it. Durable when this returns."""
        kept.id = batch
        await self._account.written("UPDATE batch SET id = ? WHERE request = ?", (batch, kept.row_id))

    def settle(self, kept: Kept, row: SettledRow) -> bool:
        """Charge what it took; whether it was not charged before."""
        if kept.over:
            return False
        kept.over = True
        self._account.settle(kept.row_id, row)
        return True

    def find(self, family: str, batch: str) -> Kept | None:
        """One of a family's, by the provider's id."""
        return next((one for one in self.all.values() if one.id == batch and one.family == family), None)

    def by_key(self, family: str, key: str) -> Kept | None:
        """The newest of a family's that was asked for with this key, and that was made or may have been."""
        mine = (one for one in reversed(self.all.values()) if key and one.key == key and one.family == family)
        return next((one for one in mine if one.id or not one.over), None)

    def living(self) -> list[Kept]:
        """Those that are not charged yet."""
        return [one for one in self.all.values() if not one.over]


# Anchored
# --------
# The rows of the account that the audit log proves: one for each model call.


_SETTLED_S = 60.0
"""A row that was settled at the last moment is written by then."""

CALLS = Followed(
    "account",
    ACCOUNT,
    "request",
    "id",
    # Every column: none changes once the request is over, but those that `final` waits for.
    "at, agent, epoch, class, model, asked, api, model_class, long_context, account, upstream, attempt_no, session, body_key, queued_ms, "
    "bound_input, bound_output, bound_cache_read, bound_cache_write, bound_usd, "
    "expected_input, expected_output, expected_cache_read, expected_cache_write, seen_input, seen_output, seen_cache_read, "
    "seen_cache_write, seen_cache_write_1h, end, status, input, output, cache_read, cache_write, cache_write_1h, "
    "estimated, cost_usd, counted_usd, "
    "first_byte_ms, total_ms, retries, breaker, "
    # The columns of schema 6 stand with the flags, so that a row without them has the digest that it had before.
    "flags || iif((work, work_why, engine_ms, kv_bytes) = ('', '', 0, 0), '', json_array(work, work_why, engine_ms, kv_bytes)), trace, "
    "input_sha256, output_sha256",
    # What a request took that was cut by a crash may still be told by the next answer to the same body.
    f"end IS NOT NULL AND (end <> '{CRASHED}' OR flags <> '' OR at < :now - {RETRIED_S + _SETTLED_S})",
    f"at + CASE end WHEN '{CRASHED}' THEN {RETRIED_S + _SETTLED_S} ELSE coalesce(total_ms, 0) / 1000 END",
)
