"""Read the account: usage, steps of time, counters and traces. Read-only."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from supervisor.features.metrics import catalog
from supervisor.features.metrics.catalog import Counts
from supervisor.features.trace.rules import Request
from supervisor.gateway.account.charges import BATCH, CRASHED, KEPT, NEVER_SENT, PAST, REFUSED
from supervisor.gateway.admission.types import End, LaneKey, PoolKey, Refusal, Usage
from supervisor.kernel.gateway_settings import Api
from supervisor.kernel.spec import RAISED

# Reading
# -------
# What people and programs ask of the account. Read-only, standard library only, no more rows than asked for.
#
# Every function takes the connection that `schema.connect_readonly` gives. Durations are seconds here.


NEWEST = 10_000
"""A window is read from at most this many of its newest rows (0.1 s): with more, it is shorter than asked for, and says so."""
LONGEST_S = 1800.0
"""No request is under way longer: the proxy's own limit is below it."""

NOTHING = Usage()


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds, nearest rank; None when there is nothing to take them of."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """How many requests for one model were answered by which. A route renames it, or its fallback answers in its place."""

    asked: str
    answered: str
    requests: int


@dataclass(frozen=True, slots=True)
class Figures:
    """One agent, one pool or all of them in a window.

    A request that was refused by an upstream and sent again is one request; one that we turned away is one too.
    """

    requests: int = 0
    """That have ended."""
    failed: int = 0
    """Of them, those whose client got an error or a cut answer. One that left by itself did not fail."""
    requests_per_s: float = 0.0
    tokens_per_s: float = 0.0
    tokens: Usage = NOTHING
    known_usd: float = 0.0
    """Of the requests whose price is known."""
    unpriced: int = 0
    """Requests that took tokens of no known price."""
    estimated: int = 0
    """Requests whose tokens are an estimate, since the provider never said them."""
    wait: Percentiles = Percentiles()
    """From the arrival to the sending."""
    first_byte: Percentiles = Percentiles()
    """From the arrival to the first byte for the client."""
    total: Percentiles = Percentiles()
    """From the arrival to the end."""
    upstream_429: int = 0
    """Sendings that an upstream answered with 429."""
    our_429: int = 0
    """Requests that we answered with 429."""
    engine_s: float = 0.0
    """Seconds that engines worked for them, each request by itself."""
    kv_bytes: int = 0
    """The most that one of them took of an engine's memory, its prompt and its answer; 0: nobody knows."""
    models: tuple[Answered, ...] = ()
    """Of `requests`, those that were sent."""

    @property
    def cost_usd(self) -> float | None:
        """US dollars; None while a part of it is not known."""
        return None if self.unpriced else self.known_usd

    @property
    def error_rate(self) -> float | None:
        """0 to 1; None when nothing has ended."""
        return self.failed / self.requests if self.requests else None

    @property
    def cache_hits(self) -> float | None:
        """Part of all input tokens that was read from the provider's cache, 0 to 1; None without input."""
        read, all_input = self.tokens.cache_read, self.tokens.limited_input + self.tokens.cache_read
        return read / all_input if all_input else None

    @property
    def tokens_per_usd(self) -> float | None:
        """Tokens of every kind for a dollar; None while some have no known price."""
        return self.tokens.total / self.cost_usd if self.cost_usd else None


@dataclass(frozen=True, slots=True)
class Window:
    """Figures of the last `seconds`; fewer than were asked for when there was too much to read."""

    seconds: float
    agents: Mapping[str, Figures]
    pools: Mapping[str, Figures]
    """By `str(PoolKey)`; requests that we turned away reached no pool."""
    total: Figures


@dataclass(frozen=True, slots=True)
class Totals:
    """What an attempt, a task or a run took, as `result.json` says it."""

    requests: int = 0
    tokens: Usage = NOTHING
    known_usd: float = 0.0
    """Of the requests whose price is known."""
    unpriced: int = 0
    estimated: int = 0
    """Requests whose tokens are an estimate, since the provider never said them."""
    wait_s: float = 0.0
    """The sum of all waits for tokens."""
    models: tuple[Answered, ...] = ()
    """Of `requests`, those that were sent."""
    kept: int = 0
    """Tokens that kept answers saved: those that were taken when they were made."""
    under_way: int = 0
    """Requests that have not ended, and are in none of the other numbers. An attempt that has just died may have some for a moment."""

    @property
    def cost_usd(self) -> float | None:
        """None when a part of it is not known."""
        return None if self.unpriced else self.known_usd


@dataclass(frozen=True, slots=True)
class Spans:
    """When the requests of an attempt were where: from and to, wall clock."""

    busy: tuple[tuple[float, float], ...] = ()
    """At an upstream."""
    queued: tuple[tuple[float, float], ...] = ()
    """Waiting for their turn."""


# Windows --------------------------------------------------------------------------------------------------------------------------


def window(db: sqlite3.Connection, now: float, seconds: float) -> Window:
    """The figures of the last `seconds` before `now` (wall clock)."""
    rows = db.execute(
        f"SELECT {COLUMNS}, {ASKED}, model FROM request WHERE at >= ? AND end IS NOT NULL ORDER BY at DESC LIMIT ?",  # noqa: S608 - our own
        (now - seconds, NEWEST),
    ).fetchall()
    if len(rows) == NEWEST:
        seconds = max(1e-3, now - rows[-1]["at"])
    away = db.execute(
        "SELECT agent, status, waited_ms FROM turned_away WHERE at >= ? ORDER BY at DESC LIMIT ?", (now - seconds, NEWEST)
    ).fetchall()
    agents, ours, pools = _grouped(rows, _AGENT), _grouped(away, _AGENT), _grouped(rows, _POOL)
    return Window(
        seconds,
        {str(key[0]): figures(agents.get(key, []), ours.get(key, []), seconds) for key in {**agents, **ours}},
        {str(pool_of(some[0])): figures(some, [], seconds) for some in pools.values()},
        figures(rows, away, seconds),
    )


def cache(db: sqlite3.Connection, since: float) -> dict[str, Any]:
    """What was read from caches: `agents` (of requests since then) and `prefixes`, by name, each `{requests, input, cached}` in tokens, the
    largest first; and `breaks` by agent, as `Prefixes` keeps both."""
    rows = db.execute(
        """SELECT agent, count(*) AS requests, sum(input + cache_read + cache_write) AS input, sum(cache_read) AS cached FROM request
           WHERE at >= ? AND input IS NOT NULL GROUP BY agent HAVING sum(input + cache_read + cache_write) > 0 ORDER BY input DESC""",
        (since,),
    ).fetchall()
    kept = db.execute("SELECT value FROM memory WHERE name = 'prefixes'").fetchone()
    found = {"prefixes": {}, "breaks": {}} | (json.loads(kept["value"]) if kept else {})
    found["prefixes"] = dict(sorted(found["prefixes"].items(), key=lambda one: -one[1]["input"]))
    return {"agents": {row["agent"]: {name: row[name] for name in ("requests", "input", "cached")} for row in rows}, **found}


def last(db: sqlite3.Connection) -> float | None:
    """When the last request was sent, wall clock; None when there was none."""
    found = db.execute("SELECT max(at) FROM request").fetchone()[0]
    return None if found is None else float(found)


COLUMNS = (
    "agent, account, api, model_class, long_context, at, end, status, queued_ms, first_byte_ms, total_ms, "
    "input, output, cache_read, cache_write, estimated, cost_usd, engine_ms, kv_bytes"
)
ASKED = "CASE asked WHEN '' THEN model ELSE asked END AS asked"
"""The column of the model that was asked for; empty in rows of schema 2."""
_AGENT, _POOL = slice(0, 1), slice(1, 5)
"""Columns that name an agent, and a pool."""
_NOT_ONE_OF_ITS_OWN = frozenset({REFUSED, NEVER_SENT})
"""Sendings that are no request of their own: another row, or no answer at all, tells what became of it."""
_FAILED = frozenset({End.CUT, End.REJECTED, CRASHED})

Rows = Sequence[sqlite3.Row]


def _grouped(rows: Rows, by: slice) -> dict[tuple[object, ...], list[sqlite3.Row]]:
    found: dict[tuple[object, ...], list[sqlite3.Row]] = {}
    for row in rows:
        found.setdefault(row[by], []).append(row)
    return found


def figures(rows: Rows, away: Rows, seconds: float) -> Figures:
    """Of rows of `COLUMNS` with `asked` and `model`, and of rows of `turned_away`. In one pass, and by position: a window has thousands of
    rows, and the columns' names would take most of the time."""
    requests = failed = len(away)
    unpriced = estimated = upstream_429 = new = out = read = wrote = 0
    known_usd = engine_ms = 0.0
    kv_bytes = 0
    waits, firsts, totals = [row["waited_ms"] for row in away], list[float | None](), list[float | None]()
    models: Counter[tuple[str, str]] = Counter()
    for *_, end, status, queued, first, total, row_new, row_out, row_read, row_wrote, is_estimate, cost, engine, kv, asked, model in rows:
        engine_ms += engine
        kv_bytes = max(kv_bytes, kv)
        new, out, read, wrote = new + row_new, out + row_out, read + row_read, wrote + row_wrote
        known_usd += cost or 0.0
        unpriced += cost is None and row_new + row_out + row_read + row_wrote > 0
        estimated += is_estimate
        upstream_429 += status == 429
        if end not in _NOT_ONE_OF_ITS_OWN:
            requests += 1
            failed += end in _FAILED
            models[asked, model] += 1
            waits.append(queued)
            firsts.append(first)
            totals.append(total if end == End.SERVED else None)
    tokens = Usage(new, out, read, wrote)
    return Figures(
        requests=requests,
        failed=failed,
        requests_per_s=requests / seconds,
        tokens_per_s=tokens.total / seconds,
        tokens=tokens,
        known_usd=known_usd,
        unpriced=unpriced,
        estimated=estimated,
        wait=_percentiles(waits),
        first_byte=_percentiles(firsts),
        total=_percentiles(totals),
        upstream_429=upstream_429,
        our_429=sum(row["status"] == 429 for row in away),
        engine_s=engine_ms / 1000,
        kv_bytes=kv_bytes,
        models=tuple(Answered(*names, number) for names, number in sorted(models.items())),
    )


def _percentiles(milliseconds: Iterable[float | None]) -> Percentiles:
    found = sorted(value for value in milliseconds if value is not None)
    if not found:
        return Percentiles()
    return Percentiles(*(found[max(0, -(-len(found) * part // 100) - 1)] / 1000 for part in (50, 95, 99)))


def pool_of(row: sqlite3.Row) -> PoolKey:
    """Whose limit it counts against."""
    return PoolKey(row["account"], LaneKey(Api(row["api"]), row["model_class"], bool(row["long_context"])))


# Totals ---------------------------------------------------------------------------------------------------------------------------


def usage_of_attempt(db: sqlite3.Connection, agent: str, epoch: int) -> Totals:
    """One attempt."""
    return _totals(db, "agent = ? AND epoch = ?", (agent, epoch)).get(agent, Totals())


def past(db: sqlite3.Connection, agent: str, epoch: int | None = None) -> int:
    """Return the tokens of all kinds that an attempt took past the gateway, by its own account; without `epoch` all attempts of a task."""
    sql = """SELECT total(input + output + cache_read + cache_write) FROM request
             WHERE agent = ? AND epoch = coalesce(?, epoch) AND body_key = ?"""
    return int(db.execute(sql, (agent, epoch, PAST)).fetchone()[0])


def first_of_attempt(db: sqlite3.Connection, agent: str, epoch: int) -> Usage | None:
    """What the first request of an attempt took that a cache had a part in; of its first one where none had. Clients also send small ones
    of their own, for a title. None when none was answered."""
    row = db.execute(
        """SELECT input, output, cache_read, cache_write FROM request WHERE agent = ? AND epoch = ? AND input IS NOT NULL
           AND input + cache_read + cache_write > 0 ORDER BY cache_read + cache_write = 0, at LIMIT 1""",
        (agent, epoch),
    ).fetchone()
    return Usage(*map(int, row)) if row is not None else None


def spans_of_attempt(db: sqlite3.Connection, agent: str, epoch: int) -> Spans:
    """Of every sending that has ended, and of every request that we turned away. `total_ms` counts from a request's arrival."""
    which = "agent = ? AND epoch = ?", (agent, epoch)
    sent = db.execute(f"SELECT at, queued_ms, total_ms FROM request WHERE total_ms IS NOT NULL AND {which[0]}", which[1]).fetchall()  # noqa: S608 - ours
    away = db.execute(f"SELECT at, waited_ms FROM turned_away WHERE {which[0]}", which[1]).fetchall()  # noqa: S608 - ours
    queued = [(at - waited / 1000, at) for at, waited in [*(row[:2] for row in sent), *away] if waited]
    return Spans(tuple((at, at + max(0.0, total - waited) / 1000) for at, waited, total in sent), tuple(queued))


def unserved(db: sqlite3.Connection, agent: str, epoch: int) -> str:
    """Why no provider served the last request of an attempt; empty when one did, or it made none, or its limit was spent."""
    row = db.execute(
        "SELECT end, flags FROM request WHERE agent = ? AND epoch = ? AND end IS NOT NULL ORDER BY at DESC, id DESC LIMIT 1", (agent, epoch)
    ).fetchone()
    if row is None:
        return ""
    why = str(row["flags"]).partition(",")[0] if row["end"] == REFUSED else _BROKEN.get(row["end"], "")
    return why if why in _UNSERVED else ""


_BROKEN = {End.CUT: "its answer was cut off", CRASHED: "the gateway died"}
_UNSERVED = frozenset({Refusal.OVERLOADED, Refusal.SERVER_ERROR, Refusal.UNREACHABLE, *_BROKEN.values()})


def of_task(db: sqlite3.Connection, agent: str) -> Totals:
    """All attempts of one task."""
    return _totals(db, "agent = ?", (agent,)).get(agent, Totals())


def of_run(db: sqlite3.Connection, run: str) -> Totals:
    """All tasks of one run; which model answered is not said."""
    parts = _totals(db, "agent > ? AND agent < ?", (f"{run}/", f"{run}0")).values()  # "0" comes after "/"
    tokens = sum((part.tokens for part in parts), NOTHING)
    names = ("requests", "known_usd", "unpriced", "estimated", "wait_s", "under_way")
    return Totals(tokens=tokens, **{name: sum(getattr(part, name) for part in parts) for name in names})


def under_way_usd(db: sqlite3.Connection, agent: str) -> float:
    """The most that the requests of a task can cost that have not ended. Each is written down before it is sent."""
    sql = "SELECT total(bound_usd) FROM request WHERE end IS NULL AND agent = ?"
    return float(db.execute(sql, (agent,)).fetchone()[0])


_COUNTED = "coalesce(counted_usd, cost_usd)"
"""What caps on dollars count of a row: more than it costs where a client hung up."""


def counted_of(db: sqlite3.Connection, agent: str) -> float:
    """US dollars that a task took over all its attempts, as its caps count them."""
    return float(db.execute(f"SELECT total({_COUNTED}) FROM request WHERE agent = ?", (agent,)).fetchone()[0])  # noqa: S608 - ours


def spent(db: sqlite3.Connection, agent: str) -> tuple[float, int, float]:
    """US dollars, tokens (`Usage.uncached`) and engine seconds that a task took over all its attempts, as its caps count them; requests
    without a known price are not in the dollars."""
    seconds = db.execute("SELECT total(engine_ms) / 1000 FROM request WHERE agent = ?", (agent,)).fetchone()[0]
    return counted_of(db, agent), of_task(db, agent).tokens.uncached, seconds


def at_most(db: sqlite3.Connection, agents: Sequence[str]) -> float:
    """US dollars that the requests of these which have ended can have cost. One that was under way when a gateway died may have been served
    to its end: it counts with its bound, until its retry tells what it took."""
    sql = f"""SELECT total(CASE WHEN end = '{CRASHED}' AND flags = '' THEN max(coalesce(bound_usd, 0.0), coalesce(cost_usd, 0.0))
              ELSE {_COUNTED} END) FROM request WHERE end IS NOT NULL AND agent IN (SELECT value FROM json_each(?))"""  # noqa: S608 - our word
    return float(db.execute(sql, (json.dumps(agents),)).fetchone()[0])


def spent_since(db: sqlite3.Connection, at: float) -> float:
    """US dollars that all took since `at`, as caps count them, of the requests that have ended and whose price is known."""
    return float(db.execute(f"SELECT total({_COUNTED}) FROM request WHERE at >= ?", (at,)).fetchone()[0])  # noqa: S608 - ours


_TAKEN = "bound_input + bound_output + bound_cache_read + bound_cache_write"
"""Of a row of a kept answer: what that took when it was made."""


def saved(db: sqlite3.Connection) -> dict[str, float]:
    """Return the `hits` of kept answers, and the `tokens` and known `usd` that making them had taken. Reads the whole account."""
    sql = f"SELECT count(*) AS hits, total({_TAKEN}) AS tokens, total(bound_usd) AS usd FROM request WHERE end = '{KEPT}'"  # noqa: S608 - ours
    return dict(db.execute(sql).fetchone())


_NO_SUCH = ", ".join(f"'{end}'" for end in sorted(_NOT_ONE_OF_ITS_OWN))
_TOTALS = f"""
    SELECT agent, count(*) FILTER (WHERE end NOT IN ({_NO_SUCH})) AS requests, total(input) AS input, total(output) AS output,
           total(cache_read) AS cache_read, total(cache_write) AS cache_write, total(cost_usd) AS known_usd,
           count(*) FILTER (WHERE cost_usd IS NULL AND input + output + cache_read + cache_write > 0) AS unpriced,
           total(estimated) AS estimated, total(queued_ms) FILTER (WHERE end NOT IN ({_NO_SUCH})) / 1000 AS wait_s,
           total({_TAKEN}) FILTER (WHERE end = '{KEPT}') AS kept, count(*) FILTER (WHERE end IS NULL) AS under_way
    FROM request WHERE
"""  # noqa: S608 - our own words
_AWAY = "SELECT agent, count(*) AS requests, total(waited_ms) / 1000 AS wait_s FROM turned_away WHERE "


def _totals(db: sqlite3.Connection, which: str, values: tuple[object, ...]) -> dict[str, Totals]:
    found = {row["agent"]: _total(row) for row in db.execute(f"{_TOTALS} {which} GROUP BY agent", values)}
    models = f"SELECT agent, {ASKED}, model, count(*) FROM request WHERE end NOT IN ({_NO_SUCH}) AND {which}"  # noqa: S608 - our own words
    for agent, *answered in db.execute(f"{models} GROUP BY 1, 2, 3 ORDER BY 2, 3", values):
        found[agent] = replace(found[agent], models=(*found[agent].models, Answered(*answered)))
    for row in db.execute(f"{_AWAY} {which} GROUP BY agent", values):
        sent = found.get(row["agent"], Totals())
        found[row["agent"]] = replace(sent, requests=sent.requests + row["requests"], wait_s=sent.wait_s + row["wait_s"])
    return found


_ENDS = """SELECT json_group_array(json_array(task, epoch, end, end_cause LIKE 'gate: %')) FROM attempt
           WHERE task IN (SELECT value FROM json_each(?))"""
_ROUTES = f"""
    SELECT account, model, work, count(*) FILTER (WHERE end NOT IN ({_NO_SUCH})) AS requests, total(cost_usd) AS usd,
           total(input + output + cache_read + cache_write) AS tokens, total(engine_ms) / 1000 AS engine_s,
           count(DISTINCT agent) FILTER (WHERE json_extract(value, '$[2]') = 'done') AS done,
           count(DISTINCT agent || epoch) FILTER (WHERE json_extract(value, '$[3]')) AS gate_failed,
           count(DISTINCT agent) FILTER (WHERE work_why LIKE '%{RAISED}') AS raised
    FROM json_each(?) JOIN request ON agent = json_extract(value, '$[0]') AND epoch = json_extract(value, '$[1]')
    WHERE work <> '' GROUP BY account, model, work ORDER BY account, model, work
"""  # noqa: S608 - our own words


def routes(db: sqlite3.Connection, ledger: sqlite3.Connection, tasks: Sequence[str]) -> list[dict[str, Any]]:
    """Return what the requests of these tasks took by where their routes led and by the weight of their work, and what came of their
    attempts: tasks that were done, attempts that failed their gate, tasks that were raised."""
    ends = ledger.execute(_ENDS, (json.dumps(tasks),)).fetchone()[0]
    return [dict(row) for row in db.execute(_ROUTES, (ends,))]


def _total(row: sqlite3.Row) -> Totals:
    return Totals(
        requests=row["requests"],
        tokens=Usage(*(int(row[kind]) for kind in ("input", "output", "cache_read", "cache_write"))),
        known_usd=row["known_usd"],
        unpriced=row["unpriced"],
        estimated=int(row["estimated"]),
        wait_s=row["wait_s"],
        kept=int(row["kept"]),
        under_way=row["under_way"],
    )


# A restart ------------------------------------------------------------------------------------------------------------------------


def recent(db: sqlite3.Connection, now: float, seconds: float) -> list[tuple[PoolKey, float, Usage, str]]:
    """What was charged in the last `seconds` before `now`, as (pool, its age in seconds, usage, agent), oldest first: the input when a
    request was sent, the output when it ended.

    Of a request that was under way when the gateway died nobody knows how much it put out. It is taken to have ended now, with what it is
    charged: the first answer corrects a level that is too high, and nothing would correct one that is so low that nothing is sent. Rows
    from the future, after the clock was set back, are of age 0.
    """
    charges: list[tuple[PoolKey, float, Usage, str]] = []
    rows = db.execute(
        f"SELECT {COLUMNS} FROM request WHERE at >= ? AND end IS NOT NULL AND body_key NOT LIKE '{BATCH}%'",  # noqa: S608 - our own names
        (now - seconds - LONGEST_S,),
    )
    for row in rows:
        pool, agent, sent = pool_of(row), row["agent"], max(0.0, now - row["at"])
        ended = max(0.0, sent - ((row["total_ms"] or 0.0) - row["queued_ms"]) / 1000)
        if row["end"] == CRASHED:
            ended = 0.0
        given = Usage(input=row["input"], cache_read=row["cache_read"], cache_write=row["cache_write"])
        charges += (pool, sent, given, agent), (pool, ended, Usage(output=row["output"]), agent)
    return sorted((charge for charge in charges if charge[1] <= seconds and charge[2].total), key=lambda charge: -charge[1])


# Steps
# -----
# The account's newest minutes in steps of time, for charts. Read-only, and no more rows than a window has: see `reading`.


BREAKERS_MAX = 200
"""Changes of breakers that are read."""
Charged = Mapping[tuple[str, str], tuple[int, int, int]]
"""By pool and agent: requests, input tokens as limits count them, output tokens."""


@dataclass(frozen=True, slots=True)
class Step:
    """What was sent in it. `at` is its end, wall clock."""

    at: float
    figures: Figures
    charged: Charged


def steps(db: sqlite3.Connection, now: float, step_s: float, count: int) -> list[Step]:
    """The `count` steps up to the last whole one before `now`, oldest first; fewer when there were more than `reading.NEWEST` requests.
    A request counts where it was sent, and once it has ended."""
    end = now // step_s * step_s
    begin = end - count * step_s
    rows = db.execute(
        f"SELECT {COLUMNS}, {ASKED}, model FROM request"  # noqa: S608 - our own
        " WHERE at >= ? AND at < ? AND end IS NOT NULL ORDER BY at DESC LIMIT ?",
        (begin, end, NEWEST),
    ).fetchall()
    if len(rows) == NEWEST:
        begin = (rows[-1]["at"] // step_s + 1) * step_s
    away = db.execute(
        "SELECT at, agent, status, waited_ms FROM turned_away WHERE at >= ? AND at < ? ORDER BY at DESC LIMIT ?",
        (begin, end, NEWEST),
    ).fetchall()
    sent, turned = _by_step(rows, begin, step_s), _by_step(away, begin, step_s)
    return [_step(begin + (at + 1) * step_s, sent.get(at, []), turned.get(at, []), step_s) for at in range(round((end - begin) / step_s))]


def _by_step(rows: list[sqlite3.Row], begin: float, step_s: float) -> dict[int, list[sqlite3.Row]]:
    found: dict[int, list[sqlite3.Row]] = {}
    for row in rows:
        found.setdefault(int((row["at"] - begin) // step_s), []).append(row)
    return found


def _step(at: float, rows: list[sqlite3.Row], away: list[sqlite3.Row], step_s: float) -> Step:
    requests, given, put_out = Counter[tuple[str, str]](), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in rows:
        key = str(pool_of(row)), str(row["agent"])
        requests[key] += 1
        given[key] += row["input"] + row["cache_write"]
        put_out[key] += row["output"]
    charged = {key: (requests[key], given[key], put_out[key]) for key in requests}
    return Step(at, figures(rows, away, step_s), charged)


@dataclass(frozen=True, slots=True)
class BreakerChange:
    """A breaker of a pool came to another state."""

    at: float
    pool: str
    breaker: str
    state: str
    why: str


def breakers(db: sqlite3.Connection, since: float) -> list[BreakerChange]:
    """The newest changes of all breakers, oldest first: those after `since`, and of each pool's breakers the last one before."""
    newest = db.execute("SELECT at, about, data FROM journal WHERE event = 'breaker' ORDER BY seq DESC LIMIT ?", (BREAKERS_MAX,)).fetchall()
    found, before = list[BreakerChange](), set[tuple[str, str]]()
    for row in newest:
        one = _change(row)
        if one.at >= since:
            found.append(one)
        elif (one.pool, one.breaker) not in before:
            before.add((one.pool, one.breaker))
            found.append(one)
    return found[::-1]


def _change(row: sqlite3.Row) -> BreakerChange:
    data: dict[str, Any] = json.loads(row["data"])
    return BreakerChange(row["at"], str(row["about"]), str(data.get("breaker", "")), str(data.get("after", "")), str(data.get("why", "")))


# Counting
# --------
# Counters from the account: what ended since it was last read, in bounded steps. Read-only.


ROWS = 5000
"""Of one step: some 50 ms."""


def count_ended(db: sqlite3.Connection, counts: Counts, rows: int = ROWS) -> bool:
    """Count at most `rows` rows of each table; whether there is more."""
    return _requests(db, counts, rows) | _turned_away(db, counts, rows) | _breakers(db, counts, rows)


def _requests(db: sqlite3.Connection, counts: Counts, rows: int) -> bool:
    cursor = counts.read.requests
    since = min(cursor.last, _newest(db, "SELECT max(id) FROM request"))
    found = db.execute(_NEW, (since, rows)).fetchall()
    old = db.execute(_OLD, (json.dumps(sorted(cursor.open)),)).fetchall()
    cursor.open.clear()
    for row in (*old, *found):
        if row["end"] is None:
            cursor.open.add(int(row["id"]))
        elif row["end"] != NEVER_SENT:
            catalog.settled(counts, {**dict(row), "served": row["end"] != REFUSED})
    cursor.last = int(found[-1]["id"]) if found else since
    return len(found) == rows


def _turned_away(db: sqlite3.Connection, counts: Counts, rows: int) -> bool:
    since = min(counts.read.turned_away, _newest(db, "SELECT max(rowid) FROM turned_away"))
    sql = "SELECT rowid AS number, agent, model_class, status, waited_ms FROM turned_away WHERE rowid > ? ORDER BY rowid LIMIT ?"
    found = db.execute(sql, (since, rows)).fetchall()
    for row in found:
        catalog.turned_away(counts, dict(row))
    counts.read.turned_away = int(found[-1]["number"]) if found else since
    return len(found) == rows


def _breakers(db: sqlite3.Connection, counts: Counts, rows: int) -> bool:
    since = min(counts.read.breakers, _newest(db, "SELECT max(seq) FROM journal"))
    found = db.execute("SELECT seq, about, event, data FROM journal WHERE seq > ? ORDER BY seq LIMIT ?", (since, rows)).fetchall()
    for row in found:
        if row["event"] == "breaker":
            catalog.changed(counts, row["about"], json.loads(row["data"]))
    counts.read.breakers = int(found[-1]["seq"]) if found else since
    return len(found) == rows


def _newest(db: sqlite3.Connection, sql: str) -> int:
    return int(db.execute(sql).fetchone()[0] or 0)


_COLUMNS = "id, agent, model, end, status, input, output, cache_read, cache_write, cost_usd, queued_ms, first_byte_ms, total_ms"
_NEW = f"SELECT {_COLUMNS} FROM request WHERE id > ? ORDER BY id LIMIT ?"  # noqa: S608 - our own columns
_OLD = f"SELECT {_COLUMNS} FROM request WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"  # noqa: S608 - our own columns


# Traced
# ------
# The account's rows as the trace of a run has them. Read-only, standard library only.


Place = tuple[str, int]
"""A task and the epoch of its attempt."""


def of_attempt_traced(db: sqlite3.Connection, task: str, epoch: int, most: int) -> Iterator[Request]:
    """Its requests, in the order of their sending, at most `most`; those that we turned away follow."""
    yield from (_sent(row) for row in db.execute(f"SELECT * FROM request {_OF} LIMIT ?", (task, epoch, most)))  # noqa: S608 - a literal
    yield from (_away(row) for row in db.execute(f"SELECT rowid AS id, * FROM turned_away {_OF} LIMIT ?", (task, epoch, most)))  # noqa: S608


_OF = "WHERE agent = ? AND epoch = ? ORDER BY at"


def count_spans(db: sqlite3.Connection, task: str, epoch: int) -> int:
    """How many there are of both."""
    row = db.execute(
        """SELECT (SELECT count(*) FROM request WHERE agent = :task AND epoch = :epoch)
                + (SELECT count(*) FROM turned_away WHERE agent = :task AND epoch = :epoch)""",
        {"task": task, "epoch": epoch},
    ).fetchone()
    return int(row[0])


def last_ended(db: sqlite3.Connection, task: str, epoch: int) -> float:
    """When the last of an attempt's requests was over, without batches, which outlive it; 0.0 when it made none."""
    row = db.execute(
        f"""SELECT max(at + max(0.0, coalesce(total_ms, 0.0) - queued_ms) / 1000) FROM request
            WHERE agent = ? AND epoch = ? AND end IS NOT NULL AND coalesce(body_key, '') NOT LIKE '{BATCH}%'""",  # noqa: S608 - literals
        (task, epoch),
    ).fetchone()
    return float(row[0] or 0.0)


def is_asking(db: sqlite3.Connection, task: str, epoch: int) -> bool:
    """Whether a request of an attempt is under way that is no batch."""
    sql = f"SELECT 1 FROM request WHERE end IS NULL AND agent = ? AND epoch = ? AND body_key NOT LIKE '{BATCH}%'"  # noqa: S608 - a literal
    return db.execute(sql, (task, epoch)).fetchone() is not None


def ended(db: sqlite3.Connection, last: int, still_open: Iterable[int], most: int) -> tuple[list[tuple[Place, Request]], int, list[int]]:
    """The requests that were over beyond the row `last`, or of those that were under way, by their attempts; the last row that was looked
    at, and which of the rows up to there still go on. At most `most` new rows are looked at."""
    fresh = db.execute("SELECT * FROM request WHERE id > ? ORDER BY id LIMIT ?", (last, most)).fetchall()
    left = db.execute("SELECT * FROM request WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id", (json.dumps(list(still_open)),))
    rows = [*left, *fresh]
    found = [((str(row["agent"]), int(row["epoch"])), _sent(row)) for row in rows if row["end"] is not None]
    return found, max([last, *(int(row["id"]) for row in fresh)]), [int(row["id"]) for row in rows if row["end"] is None]


def turned_away(db: sqlite3.Connection, last: int, most: int) -> tuple[list[tuple[Place, Request]], int]:
    """The requests that we answered ourselves beyond the row `last`, and the last row that was looked at."""
    rows = db.execute("SELECT rowid AS id, * FROM turned_away WHERE rowid > ? ORDER BY rowid LIMIT ?", (last, most)).fetchall()
    return [((str(row["agent"]), int(row["epoch"])), _away(row)) for row in rows], max([last, *(int(row["id"]) for row in rows)])


def newest(db: sqlite3.Connection) -> tuple[int, int]:
    """The newest rows of both."""
    row = db.execute("SELECT (SELECT coalesce(max(id), 0) FROM request), (SELECT coalesce(max(rowid), 0) FROM turned_away)").fetchone()
    return int(row[0]), int(row[1])


def _sent(row: sqlite3.Row) -> Request:
    return Request(
        number=int(row["id"]),
        at=float(row["at"]),
        queued_s=max(0.0, float(row["queued_ms"]) / 1000),
        total_s=_seconds(row["total_ms"]),
        end=str(row["end"] or ""),
        model=str(row["model"]),
        asked=str(row["asked"] or row["model"]),
        api=str(row["api"]),
        batch=str(row["body_key"] or "").startswith(BATCH),
        status=row["status"],
        usage=Usage(*(int(row[name] or 0) for name in ("input", "output", "cache_read", "cache_write"))),
        cost_usd=row["cost_usd"],
        first_byte_s=_seconds(row["first_byte_ms"]),
        attempt_no=int(row["attempt_no"]),
        session=str(row["session"]),
        upstream=str(row["upstream"]),
        why=str(row["flags"]),
    )


def _away(row: sqlite3.Row) -> Request:
    waited = max(0.0, float(row["waited_ms"]) / 1000)
    return Request(
        int(row["id"]), float(row["at"]), waited, None, "turned away", str(row["model_class"]), "", str(row["api"]), sent=False,
        status=int(row["status"]), why=str(row["why"]),
    )  # fmt: skip


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
