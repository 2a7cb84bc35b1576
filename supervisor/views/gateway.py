"""The gateway in lines of text and as JSON."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from supervisor.gateway import engines, lifecycle, pages
from supervisor.gateway.account import queries as reading
from supervisor.gateway.account import schema
from supervisor.gateway.account.queries import Figures, Window
from supervisor.gateway.admission.budget import NIGHT_S
from supervisor.gateway.admission.types import AgentView, PoolView, Refusal, TrafficView
from supervisor.gateway.pages import status
from supervisor.host.paths import Home
from supervisor.kernel.errors import NightcrewError, NotRunning, one_line
from supervisor.kernel.format import age, duration, many, money, percent, rfc3339, short, size
from supervisor.kernel.states import FINAL
from supervisor.store import sqlite
from supervisor.views.figures import WORK, bar, cost, others, percentiles, work
from supervisor.views.status import columns, cut

# Gateway
# -------
# The gateway in lines of text: what a person sees at a glance. `gateway_json.py` says what a shape is.
#
# Standard library only: `status` imports this.


_NARROW = 100
"""Columns of a terminal below which names have less room."""
_TOKENS = ("tokens", "input", "output")
"""Dimensions of a limit that count tokens."""
_COLORS = {"closed": "32", "half-open": "33", "OPEN": "31"}

Shape = Mapping[str, Any]


def line(shape: Shape) -> str:
    """The whole on one line, for `nightcrew status`: what is wrong first, since a narrow terminal cuts it."""
    if not shape["running"]:
        return f"gateway  {one_line(shape['why'])}"
    figures, delay = shape["figures"], delay_s(shape)
    used = sum(agent["used_tpm"] for agent in shape["agents"])
    said = [*_first("! {}", shape["problems"]), *_first("breaker {}", [_tripped(pool) for pool in broken(shape)]), *_under_way(shape)]
    said += [f"a new request waits {duration(delay)}"] if delay >= 1 else []
    said += [f"{short(used)} tokens/min", f"{cost(figures)} in {duration(figures['window_s'])}"]
    return f"gateway  {one_line(', '.join(said))}"


def _first(form: str, some: Sequence[str]) -> Iterator[str]:
    if some:
        yield form.format(some[0]) + (f" and {len(some) - 1} more" if len(some) > 1 else "")


def queued(shape: Shape) -> int:
    """Return how many requests wait."""
    return sum(lane["queued"] for lane in shape["lanes"])


def delay_s(shape: Shape) -> float:
    """Return how long a request that came now would wait, in the lane where it waits longest."""
    return max((lane["delay_s"] or 0.0 for lane in shape["lanes"]), default=0.0)


def soonest_s(shape: Shape) -> float | None:
    """Return in how many seconds the first limit is used up; None when none will be."""
    return min((pool["exhausted_in_s"] for pool in shape["pools"] if pool["exhausted_in_s"] is not None), default=None)


def _under_way(shape: Shape) -> list[str]:
    return [f"{sum(pool['in_flight'] for pool in shape['pools'])} in flight", f"{queued(shape)} queued"]


def broken(shape: Shape) -> list[Shape]:
    """Return the limits whose breaker is not closed, open ones first."""
    return sorted((pool for pool in shape["pools"] if pool["breaker"] != "closed"), key=lambda pool: pool["breaker"] != "open")


def _tripped(pool: Shape) -> str:
    known = "; ".join([*([pool["breaker_why"]] if pool["breaker_why"] else []), *_next(pool)])
    if pool["breaker"] == "half-open":
        return f"of {pool['key']} half-open: one request tries"
    return f"of {pool['key']} {_state(pool)}" + (f" ({known})" if known else "")


def text(shape: Shape, now: float, *, width: int, color: bool, rows: int | None = None) -> str:
    """All of it, none of its lines wider than `width` columns. With `rows` no more lines than that: the last one says what is missing."""
    lines = [*_heading(shape, now, width), *_totals(shape, width)]
    lines += [said for problem in shape["problems"] for said in _fit("! ", one_line(problem).split(" "), width, by=" ")]
    if shape["running"]:
        lines += _pools(shape, width)
    agents = [agent for agent in shape["agents"] if not _done(agent)]
    if agents:
        lines += _agents(agents, width)
    lines += _routes(shape.get("routes", ()))
    for one in shape.get("engines", ()):
        gpu = f", {size(one['gpu_memory'])} on GPUs" if one["gpu_memory"] else ""
        lines.append(f"engine {one['name']}  {size(one['memory'])} of memory{gpu}")
    done = [f"{number} that {'is' if number == 1 else 'are'} done"] if (number := len(shape["agents"]) - len(agents)) else []
    if rows is None or len(lines) + len(done) <= rows:
        lines += [f"and {said}" for said in done]
    else:
        hidden = len(lines) - (rows - 1)
        more = many(min(hidden, len(agents)), "more agent") if agents else many(hidden, "more line")
        lines[rows - 1 :] = [f"… and {', '.join([more, *done])}"]
    return "\n".join(_colored(cut(one_line(said), width).rstrip(), color) for said in lines)


def _done(agent: Shape) -> bool:
    """Its task has ended, and nothing of it is left in the last minute."""
    return bool(agent.get("ended")) and not (agent["in_flight"] or agent["queued"] or agent["used_tpm"])


def _heading(shape: Shape, now: float, width: int) -> Iterator[str]:
    if not shape["running"]:
        yield f"gateway  {shape['why']}"
        last = shape["last"]
        yield (
            "         nothing ever went through it" if last is None else f"         its last request was {age(now - last)} ago; up to then:"
        )
        return
    place = f"127.0.0.1:{shape['port']}, pid {shape['pid']}"
    yield from _fit("gateway  ", [f"up {age(now - shape['since'])}", place, *_under_way(shape)], width)
    for lane in shape["lanes"]:
        if lane["queued"] or (lane["delay_s"] or 0.0) >= 1:
            yield from _fit(
                "         ", [f"{lane['lane']}: {lane['queued']} queued", f"a new request waits {duration(lane['delay_s'])}"], width
            )


def _totals(shape: Shape, width: int) -> Iterator[str]:
    of = shape["figures"]
    rates = [f"{of['requests_per_s']:.3g}/s", f"{short(of['tokens_per_s'])} tokens/s", f"errors {percent(of['error_rate'], 1)}"]
    refused = f"429: {of['upstream_429']} theirs, {of['our_429']} ours" if of["upstream_429"] or of["our_429"] else "no 429"
    yield from _fit(f"last {duration(of['window_s']):<4}", [f"{of['requests']} requests", *rates, refused], width)
    night, cap = shape.get("tonight_usd"), shape.get("caps", {}).get("cost_per_night")
    spent = [] if night is None or cap is None else [f"tonight {money(night)} of {money(cap)}"]
    per_usd = f"{short(of['tokens_per_usd'])} tokens/$"
    yield from _fit("         ", [cost(of), per_usd, f"cache hits {percent(of['cache_hits'])}", *spent], width)
    waits = [f"{name} {percentiles(some)}" for name, some in (("first byte", of["first_byte"]), ("turn", of["total"]))]
    yield from _fit("         ", [f"P50/P95/P99 s: wait {percentiles(of['wait'])}", *waits], width)
    if of["estimated"]:
        yield f"         {of['estimated']} of them with estimated tokens, since the provider never said any"
    if kept := shape.get("cache"):
        saved = f"{short(kept['hits'])} requests answered", f"{short(kept['tokens'])} tokens and {money(kept['usd'])} saved"
        yield from _fit("kept     ", [f"{size(kept['bytes'])} of answers", *saved], width)


def _fit(head: str, parts: Sequence[str], width: int, *, by: str = ", ") -> Iterator[str]:
    """`head` and the parts, on as many lines as they need; those after the first begin under the first part."""
    said, indent = head + parts[0], " " * columns(head)
    for part in parts[1:]:
        if columns(said) + columns(by) + columns(part) > width:
            yield said + by.rstrip()
            said = indent + part
        else:
            said += by + part
    yield said


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of the agents' table. Where there is no room for all, those with the highest `rank` are left out, and a `seldom` one is
    there only when it says something of any agent."""

    title: str
    rank: int
    cell: Callable[[Shape], str]
    left: bool = False
    seldom: bool = False


def _slug(agent: Shape) -> str:
    return str(agent["name"]).partition("/")[2] or str(agent["name"])


def _run(agent: Shape) -> str:
    run, slash, _ = str(agent["name"]).partition("/")
    return run if slash else ""


def _place(agent: Shape) -> str:
    """`#4 41s`; one that has no place and still waits is held by its own cap."""
    if agent["place"] is not None:
        return f"#{agent['place']} {duration(agent['waiting_s'])}"
    return "own cap" if agent["queued"] else "-"


def _raised(agent: Shape) -> str:
    """`x1.3`: its turns wait much longer than the others' of its class."""
    times = agent.get("raised") or 1.0
    return f"x{times:.1f}" if times > 1 else "-"


def _cost(agent: Shape) -> str:
    """Of the window; of the whole task where that has a cap."""
    if agent.get("cost_max") and agent["cost_usd"] is not None:
        return f"{money(agent['cost_usd'])} of {money(agent['cost_max'])}"
    return cost(agent["figures"])


def _of(agent: Shape, name: str) -> Any:
    return None if agent["figures"] is None else agent["figures"][name]


def _engine(agent: Shape, name: str, form: Callable[[float], str]) -> str:
    return form(number) if (number := _of(agent, name)) else "-"


_AGENT_COLUMNS = (
    _Column("AGENT", 0, _slug, left=True),
    _Column("RUN", 0, lambda agent: _run(agent) or "-", left=True),
    _Column("CLASS", 9, lambda agent: agent["task_class"] or "-", left=True),
    _Column("", 5, lambda agent: bar(agent["used_tpm"], agent["share_tpm"]), left=True),
    _Column("TPM/SHARE", 1, lambda agent: f"{short(agent['used_tpm'])}/{short(agent['share_tpm'])}"),
    _Column("CAP", 1, lambda agent: short(agent["cap_tpm"]), seldom=True),
    _Column("PLACE", 2, _place, left=True),
    _Column("RAISED", 3, _raised, seldom=True),
    _Column("WAIT P50/95/99", 4, lambda agent: percentiles(_of(agent, "wait"))),
    _Column("FIRST BYTE", 11, lambda agent: percentiles(_of(agent, "first_byte"))),
    _Column("TURN", 7, lambda agent: percentiles(_of(agent, "total"))),
    _Column("COST", 3, _cost),
    _Column("ENGINE", 3, lambda agent: _engine(agent, "engine_s", duration), seldom=True),
    _Column("KV", 6, lambda agent: _engine(agent, "kv_bytes", size), seldom=True),
    _Column("CACHE", 6, lambda agent: percent(_of(agent, "cache_hits"))),
    _Column("ANSWERED", 5, lambda agent: others(_of(agent, "models") or ()) or "-", left=True, seldom=True),
    _Column("TOK/$", 10, lambda agent: short(_of(agent, "tokens_per_usd"))),
    _Column("ERRORS", 12, lambda agent: percent(_of(agent, "error_rate"), 1)),
    _Column("TOK/S", 13, lambda agent: short(_of(agent, "tokens_per_s"))),
    _Column("REQ/S", 14, lambda agent: "-" if agent["figures"] is None else f"{agent['figures']['requests_per_s']:.2g}"),
)


def _agents(agents: Sequence[Shape], width: int) -> Iterator[str]:
    """A heading, and at the end one line an agent: who waits longest first, then who uses most."""
    ordered = sorted(agents, key=lambda agent: (-(agent["waiting_s"] or 0.0), -(agent["used_tpm"] or 0.0), agent["name"]))
    runs = {_run(agent) for agent in ordered}
    yield ""
    if len(runs) == 1 and (run := runs.pop()):
        yield f"run {run}"
    table = {column: _cells(column, ordered, width) for column in _AGENT_COLUMNS}
    shown = _fitting([column for column, cells in table.items() if _is_worth_it(column, cells)], table, width)
    widths = [max(map(columns, table[column])) for column in shown]
    for row in range(len(ordered) + 1):
        yield "  ".join(_padded(table[column][row], most, left=column.left) for column, most in zip(shown, widths, strict=True))


def _routes(routes: Sequence[Shape]) -> Iterator[str]:
    if not routes:
        return
    yield ""
    yield from aligned([[head.strip(":").upper() for head in WORK], *map(work, routes)])


def aligned(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield each row as a line in which the cells of a column begin below one another."""
    widths = [max(map(columns, cells)) for cells in zip(*table, strict=True)]
    for row in table:
        yield "  ".join(_padded(cell, most, left=True) for cell, most in zip(row, widths, strict=True)).rstrip()


def _cells(column: _Column, agents: Sequence[Shape], width: int) -> list[str]:
    """The title, then each agent's."""
    room = 20 if width < _NARROW else 48
    return [column.title, *(cut(one_line(column.cell(agent)), room) for agent in agents)]


def _is_worth_it(column: _Column, cells: Sequence[str]) -> bool:
    """Not when it would say the same of everybody: the one run that they are of, or a cap that nobody has."""
    if column.title == "RUN":
        return len(set(cells[1:])) > 1
    return not column.seldom or set(cells[1:]) != {"-"}


def _fitting(shown: list[_Column], table: Mapping[_Column, Sequence[str]], width: int) -> list[_Column]:
    """What is left of them when the least important ones have made room."""
    widths = {column: max(map(columns, table[column])) for column in shown}
    while len(shown) > 1 and sum(widths[column] + 2 for column in shown) - 2 > width:
        shown.remove(max(shown, key=lambda column: column.rank))
    return shown


def _padded(cell: str, width: int, *, left: bool) -> str:
    room = " " * (width - columns(cell))
    return cell + room if left else room + cell


def cache_text(shape: Shape) -> str:
    """What `queries.cache` says, for a person."""
    lines = []
    for head, kind in (("agents, in the last 24 h", "agents"), ("beginnings of prompts", "prefixes")):
        lines += [f"{'REQUESTS':>8}  {'INPUT':>9}  {'CACHED':>6}  {head}"]
        for name, of in shape[kind].items():
            about = f" {of['model']}, {many(of['chars'], 'character')}, last of {of['agent']}" if "chars" in of else ""
            lines.append(f"{of['requests']:>8}  {short(of['input']):>9}  {percent(of['cached'] / (of['input'] or 1)):>6}  {name}{about}")
    for agent, of in shape["breaks"].items():
        lines.append(
            f"{agent}: a prompt stopped sharing with the one before it, {many(of['count'], 'time')}; last at character {of['offset']}"
        )
        lines.append(f"  of {of['block']}: {of['shared']:,} characters were shared, {of['lost']:,} were computed again ({of['model']})")
        lines += [f"  {word}: {of[word]!r}" for word in ("before", "after") if of[word]]
    return "\n".join(lines)


def in_use(shape: Shape) -> list[Shape]:
    """Return the pools that matter now: those of accounts that the settings still name, unless nothing came of them in the window."""
    accounts = shape.get("accounts")
    found = []
    for pool in shape["pools"]:
        gone = accounts is not None and pool["account"] not in accounts
        quiet = (
            pool["breaker"] == "closed"
            and pool["opens_in_s"] is None
            and pool["figures"] is None
            and not pool.get("engine")
            and not _is_busy(shape, pool)
        )
        if pool["in_flight"] or not (gone or quiet):
            found.append(pool)
    return found


def nearest_limit(shape: Shape) -> Shape | None:
    """Return the limit of tokens that is nearest to its end, of the pools in use; None if none is known."""
    found = [one for pool in in_use(shape) for one in pool["dimensions"] if one["name"] in _TOKENS and one["limit_per_minute"]]
    return max(found, key=lambda one: one["saturation"] or 0.0, default=None)


def _is_busy(shape: Shape, pool: Shape) -> bool:
    return bool(pool["in_flight"]) or any(lane["queued"] and lane["lane"] == pool["lane"] for lane in shape["lanes"])


def _pools(shape: Shape, width: int) -> Iterator[str]:
    pools = in_use(shape)
    shown, quiet = [line for pool in pools for line in _pool(pool, width, busy=_is_busy(shape, pool))], len(shape["pools"]) - len(pools)
    if shown:
        yield ""
        yield from shown
    if quiet and not shown:
        yield ""
    if quiet:
        yield f"and {many(quiet, 'limit')} that nothing uses"


def slots(pool: Shape) -> str:
    """Return how many slots of an engine are used, and what waits for them."""
    one = pool["dimensions"][0]
    return f"{one['reserved']} of {one['capacity']} slots used, {pool['waiting']} waiting"


def _pool(pool: Shape, width: int, *, busy: bool) -> Iterator[str]:
    """One line a pool, and more where there is more to say of it."""
    if pool.get("engine"):
        yield f"engine {pool['account']}  {pool['engine']}  {slots(pool)}"
        return
    used = "  ".join(f"{one['name']} {bar(one['saturation'], 1.0)} {percent(one['saturation'])}" for one in pool["dimensions"])
    left = f"  empty in {duration(pool['exhausted_in_s'])}" if busy and pool["exhausted_in_s"] is not None else ""
    head = f"{pool['key']}  breaker {_state(pool)}{left}"
    if columns(head) + columns(used) + 2 <= width:
        yield f"{head}  {used}".rstrip()
    else:
        yield head
        yield f"  {used}"
    if pool["breaker"] != "closed" or pool["opens_in_s"] is not None:
        again = [] if pool["opens_in_s"] is None else [f"tries again in {duration(pool['opens_in_s'])}"]
        yield from _fit("  ", [pool["breaker_why"] or "held", *again, *_next(pool)], width, by="; ")
    for one in pool["dimensions"]:
        if one["outside_per_minute"] >= 1:
            yield f"  others use {short(one['outside_per_minute'])} {one['name']}/min of it"
    for window in pool["windows"]:
        spent = ", spent" if window["spent"] else ""
        yield f"  {window['name']} window {percent(window['utilization'])} used{spent}, resets in {duration(window['resets_in_s'])}"


_NEXT = {
    Refusal.KEY_REFUSED: "mend the key file, then nightcrew gateway reload",
    Refusal.SPEND_CAP: "raise the spend limit at the provider",
    Refusal.UNREACHABLE: "see its url in the settings, then nightcrew doctor",
}
"""What a person can do about a breaker that is open; the other causes pass by themselves."""


def _next(pool: Shape) -> list[str]:
    return [f"next: {hint}" for why, hint in _NEXT.items() if pool["breaker"] != "closed" and pool["breaker_why"].startswith(why)]


def _state(pool: Shape) -> str:
    return "OPEN" if pool["breaker"] == "open" else str(pool["breaker"])


def _colored(said: str, color: bool) -> str:
    if not color:
        return said
    if said.startswith("!"):
        return f"\x1b[31m{said}\x1b[0m"
    for state, code in _COLORS.items():
        if f"  breaker {state}" in said:
            return said.replace(f"  breaker {state}", f"  breaker \x1b[{code}m{state}\x1b[0m", 1)
    return said


# Gateway json
# ------------
# The gateway as JSON: what it says while it runs, and what its account says when it does not.
#
# Standard library only: `status` imports this.


WINDOW_S = 300.0
"""Figures of the account alone are of the five minutes before its last request."""
_NO_TRAFFIC = TrafficView((), (), {}, {})


def look(home: Home, now: float, *, timeout_s: float = 5.0) -> dict[str, Any] | None:
    """The gateway as JSON, with `running`; None where there never was one, or only one for its page of metrics.

    While it runs: what its status page says; `tonight_usd`, of the last 12 hours, null without a cap; for each agent `ended`, null when the
    ledger does not know the agent, and `cost_max`. While it does not run: `why`; `last`, the wall-clock time of the last request, null when
    there was none; and the account's figures of the five minutes before it. What only a running gateway knows is null then. `cost_usd` is
    null while a part of it is not known. Raises LedgerError when the account cannot be read.
    """
    why = ""
    if _passed_nothing(home):
        return None
    if home.gateway_record.exists():
        try:
            return _priced(_known({"running": True, **pages.ask(home, pages.STATUS, timeout_s=timeout_s)}, home, now))
        except NightcrewError as error:
            why = "" if isinstance(error, NotRunning) else error.line()
    elif not home.gateway_account.exists():
        return None
    return _priced({"running": False, "why": why or "no gateway is running", **_history(home, now)})


def add_slow(shape: dict[str, Any], home: Home) -> None:
    """Add what takes longer to find out: `routes`, see `by_work`, of the agents' tasks; and `engines` that run, with the bytes that their
    processes have in memory and on graphics processors, the latter null where nobody tells. Raises LedgerError."""
    if home.ledger.exists():
        with contextlib.closing(sqlite.connect_readonly(home.ledger)) as db:
            shape["routes"] = by_work(home, db, [agent["name"] for agent in shape["agents"]])
    shape["engines"] = []
    if found := engines.names(home):
        from supervisor.host.usage import Agent, Reader  # imports psutil

        running = {(name, 0): Agent(known.identity) for name in found if (known := engines.read(home, name)) and known.identity}
        for (name, _), tree in Reader().read(running).items():
            shape["engines"].append({"name": name, "memory": tree.memory, "gpu_memory": tree.gpu and tree.gpu.memory})


def by_work(home: Home, ledger: sqlite3.Connection, tasks: Sequence[str]) -> list[dict[str, Any]]:
    """Return what these tasks' requests took by the weight of their work, as `queries.routes` has it. Raises LedgerError."""
    if not home.gateway_account.exists():
        return []
    with contextlib.closing(schema.connect_readonly(home.gateway_account)) as account:
        return reading.routes(account, ledger, tasks)


def _passed_nothing(home: Home) -> bool:
    """Whether the last gateway was for the page of metrics alone, and none before it passed anything on."""
    record = lifecycle.read_record(home)
    if record is None or record.passes or not home.gateway_account.exists():
        return False
    with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
        return reading.last(db) is None


def printed(shape: Shape) -> dict[str, Any]:
    """As every `--json` has it: times are RFC 3339 in UTC."""
    return {**shape, **{key: rfc3339(shape[key]) for key in ("since", "last") if key in shape}}


def _known(shape: dict[str, Any], home: Home, now: float) -> dict[str, Any]:
    """With what the ledger and the account know beside it."""
    cap, shape["tonight_usd"] = shape.get("caps", {}).get("cost_per_night"), None
    if cap is not None and home.gateway_account.exists():
        with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
            shape["tonight_usd"] = reading.spent_since(db, now - NIGHT_S)
    found = {}
    if home.ledger.exists():
        with contextlib.closing(sqlite.connect_readonly(home.ledger)) as db:
            names = json.dumps([agent["name"] for agent in shape["agents"]])
            found = {row["id"]: row for row in db.execute(_TASKS, (names,))}
    for agent in shape["agents"]:
        row = found.get(agent["name"])
        agent["ended"] = None if row is None else row["state"] in FINAL
        agent["cost_max"] = None if row is None else row["cost_max"] or None
    return shape


_TASKS = "SELECT id, state, json_extract(spec, '$.cost_max') AS cost_max FROM task WHERE id IN (SELECT value FROM json_each(?))"


def _history(home: Home, now: float) -> dict[str, Any]:
    last, window = None, Window(WINDOW_S, {}, {}, Figures())
    if home.gateway_account.exists():
        with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
            last = reading.last(db)
            window = reading.window(db, now if last is None else last, WINDOW_S)
    agents = [_still(AgentView, {"name": name}, window.seconds, of) for name, of in sorted(window.agents.items())]
    nothing: Shape = {"dimensions": [], "windows": []}
    pools = [_still(PoolView, {"key": name, **nothing}, window.seconds, of) for name, of in sorted(window.pools.items())]
    return {"last": last, **status(_NO_TRAFFIC, window, ()), "agents": agents, "pools": pools}


def _still(view: type[AgentView | PoolView], known: Shape, seconds: float, of: Figures) -> dict[str, Any]:
    """As the status page shows one, but with nothing of the moment."""
    figures = status(_NO_TRAFFIC, Window(seconds, {}, {}, of), ())["figures"]
    return {**{field.name: None for field in fields(view)}, **known, "figures": figures}


def _priced(shape: dict[str, Any]) -> dict[str, Any]:
    for figures in (shape["figures"], *(one["figures"] for one in (*shape["agents"], *shape["pools"]))):
        if figures is not None:
            figures["cost_usd"] = None if figures["unpriced"] else figures["known_usd"]
    return shape
