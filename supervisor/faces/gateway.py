"""The gateway in lines of text: what a person sees at a glance, and what the account still says when no gateway runs.

Standard library only: `status` imports this.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from supervisor.core.errors import NightcrewError, NotRunning, one_line
from supervisor.core.gateway.nouns import AgentView, PoolView, TrafficView
from supervisor.core.result import rfc3339
from supervisor.faces.status import age, columns, cut
from supervisor.gateway import pages
from supervisor.gateway.account import reading, schema
from supervisor.gateway.account.reading import Figures, Window
from supervisor.gateway.status import status
from supervisor.host.paths import Home

WINDOW_S = 300.0
"""Figures of the account alone are of the five minutes before its last request."""
BAR = 6
"""Columns of the bar that shows an agent's use of its share."""
_NARROW = 100
"""Columns of a terminal below which names have less room."""
_COLORS = {"closed": "32", "half-open": "33", "open": "31"}
_NO_TRAFFIC = TrafficView((), (), {}, {})

Shape = Mapping[str, Any]


# Where it comes from ----------------------------------------------------------------------------------------------------------------


def look(home: Home, now: float, *, timeout_s: float = 5.0) -> dict[str, Any] | None:
    """The gateway as JSON, with `running`; None where there never was one.

    While it runs, what its status page says. Else `why` that says nothing, and what the account says of the five minutes before its
    last request, which was at `last` (wall clock, null when there was none); what is of the moment is null. `cost_usd` is null while a part
    of it is not known. Raises LedgerError when the account cannot be read.
    """
    why = ""
    if home.gateway_record.exists():
        try:
            return _priced({"running": True, **pages.ask(home, pages.STATUS, timeout_s=timeout_s)})
        except NightcrewError as error:
            why = "" if isinstance(error, NotRunning) else error.line()
    elif not home.gateway_account.exists():
        return None
    return _priced({"running": False, "why": why or "no gateway is running", **_history(home, now)})


def printed(shape: Shape) -> dict[str, Any]:
    """As every `--json` has it: times are RFC 3339 in UTC."""
    return {**shape, **{key: rfc3339(shape[key]) for key in ("since", "last") if key in shape}}


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


# Text -------------------------------------------------------------------------------------------------------------------------------


def line(shape: Shape) -> str:
    """The whole on one line, for `nightcrew status`."""
    if not shape["running"]:
        return f"gateway  {one_line(shape['why'])}"
    figures, queued = shape["figures"], sum(lane["queued"] for lane in shape["lanes"])
    delay = max((lane["delay_s"] or 0.0 for lane in shape["lanes"]), default=0.0)
    used = sum(agent["used_tpm"] for agent in shape["agents"])
    said = [f"{sum(pool['in_flight'] for pool in shape['pools'])} in flight", f"{queued} queued"]
    said += [f"a new request waits {_span(delay)}"] if delay >= 1 else []
    said += [f"{_short(used)} tokens/min", f"{_money(figures)} in {figures['window_s'] / 60:.0f}m"]
    said += [
        f"breaker of {pool['key']} {pool['breaker']} ({pool['breaker_why']})" for pool in shape["pools"] if pool["breaker"] != "closed"
    ]
    return f"gateway  {', '.join(said)}"


def text(shape: Shape, now: float, *, width: int, color: bool) -> str:
    """All of it, none of its lines wider than `width` columns."""
    lines = [*_heading(shape, now), *_totals(shape), *(f"! {problem}" for problem in shape["problems"])]
    if shape["pools"] and shape["running"]:
        lines += ["", *(said for pool in shape["pools"] for said in _pool(pool, width))]
    if shape["agents"]:
        lines += ["", *_agents(shape["agents"], width)]
    return "\n".join(_colored(cut(one_line(said), width).rstrip(), color) for said in lines)


def _heading(shape: Shape, now: float) -> Iterator[str]:
    if not shape["running"]:
        yield f"gateway  {shape['why']}"
        last = shape["last"]
        yield (
            "         nothing ever went through it" if last is None else f"         its last request was {age(now - last)} ago; up to then:"
        )
        return
    queued, in_flight = sum(lane["queued"] for lane in shape["lanes"]), sum(pool["in_flight"] for pool in shape["pools"])
    yield f"gateway  up {age(now - shape['since'])}, 127.0.0.1:{shape['port']}, pid {shape['pid']}; {in_flight} in flight, {queued} queued"
    for lane in shape["lanes"]:
        if lane["queued"] or (lane["delay_s"] or 0.0) >= 1:
            yield f"         {lane['lane']}: {lane['queued']} queued, a new request waits {_span(lane['delay_s'])}"


def _totals(shape: Shape) -> Iterator[str]:
    of = shape["figures"]
    window = f"{of['window_s'] / 60:.0f}m" if of["window_s"] >= 60 else f"{of['window_s']:.0f}s"
    rates = f"{of['requests_per_s']:.3g}/s, {_short(of['tokens_per_s'])} tokens/s, errors {_percent(of['error_rate'], 1)}"
    yield f"last {window:<4}{of['requests']} requests, {rates}; 429: {of['upstream_429']} theirs, {of['our_429']} ours"
    yield f"         {_money(of)}, {_short(of['tokens_per_usd'])} tokens/$, cache hits {_percent(of['cache_hits'])}"
    waits = (("wait", of["wait"]), ("first byte", of["first_byte"]), ("turn", of["total"]))
    yield "         P50/P95/P99 s: " + ", ".join(f"{name} {_percentiles(some)}" for name, some in waits)
    if of["estimated"]:
        yield f"         {of['estimated']} of them with estimated tokens, since the provider never said any"


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of the agents' table. Where there is no room for all, those with the highest `rank` are left out."""

    title: str
    rank: int
    cell: Callable[[Shape], str]
    left: bool = False


_AGENT_COLUMNS = (
    _Column("AGENT", 0, lambda agent: agent["name"], left=True),
    _Column("CLASS", 9, lambda agent: agent["task_class"] or "-", left=True),
    _Column("", 5, lambda agent: _bar(agent["used_tpm"], agent["share_tpm"]), left=True),
    _Column("TPM/SHARE", 1, lambda agent: f"{_short(agent['used_tpm'])}/{_short(agent['share_tpm'])}"),
    _Column("CAP", 8, lambda agent: _short(agent["cap_tpm"])),
    _Column("PLACE", 2, lambda agent: "-" if agent["place"] is None else f"#{agent['place']} {_span(agent['waiting_s'])}", left=True),
    _Column("WAIT P50/95/99", 4, lambda agent: _percentiles(_of(agent, "wait"))),
    _Column("FIRST BYTE", 11, lambda agent: _percentiles(_of(agent, "first_byte"))),
    _Column("TURN", 7, lambda agent: _percentiles(_of(agent, "total"))),
    _Column("COST", 3, lambda agent: _money(agent["figures"])),
    _Column("CACHE", 6, lambda agent: _percent(_of(agent, "cache_hits"))),
    _Column("TOK/$", 10, lambda agent: _short(_of(agent, "tokens_per_usd"))),
    _Column("ERRORS", 12, lambda agent: _percent(_of(agent, "error_rate"), 1)),
    _Column("TOK/S", 13, lambda agent: _short(_of(agent, "tokens_per_s"))),
    _Column("REQ/S", 14, lambda agent: "-" if agent["figures"] is None else f"{agent['figures']['requests_per_s']:.2g}"),
)


def _agents(agents: Sequence[Shape], width: int) -> Iterator[str]:
    """A heading, and one line an agent: who waits longest first, then who uses most."""
    ordered = sorted(agents, key=lambda agent: (-(agent["waiting_s"] or 0.0), -(agent["used_tpm"] or 0.0), agent["name"]))
    room = 20 if width < _NARROW else 48
    table = {column: [column.title, *(cut(one_line(column.cell(agent)), room) for agent in ordered)] for column in _AGENT_COLUMNS}
    widths = {column: max(map(columns, cells)) for column, cells in table.items()}
    shown = list(_AGENT_COLUMNS)
    while len(shown) > 1 and sum(widths[column] + 2 for column in shown) - 2 > width:
        shown.remove(max(shown, key=lambda column: column.rank))
    for row in range(len(ordered) + 1):
        yield "  ".join(_padded(table[column][row], widths[column], left=column.left) for column in shown)


def _padded(cell: str, width: int, *, left: bool) -> str:
    room = " " * (width - columns(cell))
    return cell + room if left else room + cell


def _pool(pool: Shape, width: int) -> Iterator[str]:
    """One line a pool, and more where there is more to say of it."""
    used = "  ".join(f"{one['name']} {_bar(one['saturation'], 1.0)} {_percent(one['saturation'])}" for one in pool["dimensions"])
    left = "" if pool["exhausted_in_s"] is None else f"  empty in {_span(pool['exhausted_in_s'])}"
    head = f"{pool['key']}  {pool['breaker']}{left}"
    if columns(head) + columns(used) + 2 <= width:
        yield f"{head}  {used}".rstrip()
    else:
        yield head
        yield f"  {used}"
    if pool["breaker"] != "closed" or pool["opens_in_s"] is not None:
        again = "" if pool["opens_in_s"] is None else f"; tries again in {_span(pool['opens_in_s'])}"
        yield f"  {pool['breaker_why'] or 'held'}{again}"
    for one in pool["dimensions"]:
        if one["outside_per_minute"] >= 1:
            yield f"  others use {_short(one['outside_per_minute'])} {one['name']}/min of it"
    for window in pool["windows"]:
        spent = ", spent" if window["spent"] else ""
        yield f"  {window['name']} window {_percent(window['utilization'])} used{spent}, resets in {_span(window['resets_in_s'])}"


# Words ------------------------------------------------------------------------------------------------------------------------------


def _of(agent: Shape, name: str) -> Any:
    return None if agent["figures"] is None else agent["figures"][name]


def _bar(used: float | None, whole: float | None) -> str:
    """`████░░`; full is all of the share, or more."""
    if used is None or not whole:
        return ""
    full = min(BAR, max(0, round(BAR * used / whole)))
    return "█" * full + "░" * (BAR - full)


def _short(value: float | None) -> str:
    """`840`, `1.2k`, `61k`, `3.4M`, or a dash."""
    if value is None:
        return "-"
    for unit in ("", "k", "M", "G"):
        if abs(value) < 999.5 or unit == "G":
            return f"{value:.1f}{unit}" if unit and abs(value) < 9.95 else f"{value:.0f}{unit}"
        value /= 1000
    return "-"


def _span(seconds: float | None) -> str:
    """`0.4s`, `12s`, `4m10s`, or a dash."""
    if seconds is None:
        return "-"
    return f"{seconds:.1f}s" if 0 < seconds < 9.95 else age(seconds)


def _percent(part: float | None, digits: int = 0) -> str:
    return "-" if part is None else f"{100 * part:.{digits}f}%"


def _percentiles(of: Mapping[str, float | None] | None) -> str:
    """`0.1/3.2/12`, in seconds."""
    if of is None or of["p50"] is None:
        return "-"
    return "/".join(f"{value:.1f}" if value < 9.95 else f"{value:.0f}" for value in (of["p50"], of["p95"] or 0.0, of["p99"] or 0.0))


def _money(of: Shape | None) -> str:
    """`$4.21`; `>$4.21` when the price of some is not known, `?` when it is of none."""
    if of is None:
        return "-"
    known: float = of["known_usd"]
    if of["unpriced"] and not known:
        return "$?"
    return f"{'>' if of['unpriced'] else ''}${known:.2f}" if known >= 0.995 or not known else f"{'>' if of['unpriced'] else ''}${known:.4f}"


def _colored(said: str, color: bool) -> str:
    if not color:
        return said
    if said.startswith("!"):
        return f"\x1b[31m{said}\x1b[0m"
    for state, code in _COLORS.items():
        if f"  {state}" in said:
            return said.replace(f"  {state}", f"  \x1b[{code}m{state}\x1b[0m", 1)
    return said
