"""The page of the limits: what holds now, and what was used of each limit in the last half hour.

What was sent comes from the account, in steps of time. What the gateway alone knows (limits, reservations, use by others, the queue) is
kept from each look, so it begins with the first one.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from supervisor.gateway.account import queries as reading
from supervisor.gateway.account import schema
from supervisor.gateway.account.queries import BreakerChange, Step
from supervisor.host.paths import Home
from supervisor.kernel.errors import NightcrewError
from supervisor.kernel.format import duration, money, percent, short
from supervisor.views import figures as spelled
from supervisor.views import gateway
from supervisor.views.web import drawing
from supervisor.views.web.drawing import Band, Child, Element, Scale, Series, chart, el, mark, moment, note, section, state, table
from supervisor.views.web.pages import Asked, opened

STEP_S, STEPS, LEAST = 15.0, 120, 20
"""Half an hour; where less is known, from the first request on, and at least five minutes."""
LIMITS_AGENTS = 7
"""That have a colour of their own: those that used most. The others are one."""
OTHERS = "others of the crew"
GATEWAY_S = 1.0
TABLE = 20
"""Agents of the table of now."""
Shape = Mapping[str, Any]
_UNITS = {name: f"{words} a minute" for name, words in (
    ("requests", "requests"), ("input", "input tokens"), ("output", "output tokens"), ("tokens", "tokens"),
)}  # fmt: skip
_WAITS = {"wait": "Waiting for its turn", "first_byte": "To the first byte", "total": "The whole turn"}
_NOTHING_SENT = "Nothing was sent in the last half hour."


def page(home: Home, looks: Looks, asked: Asked, now: float) -> dict[str, Any]:
    """What holds now, the charts, and the tables."""
    shape, trouble = _gateway(home, now)
    looks.add(shape, now)
    sent, changes = account(home, now)
    closed = bands(changes, now)
    return drawing.page(
        "Limits",
        drawing.trouble(trouble) if trouble else None,
        *_now(shape),
        *_charts(asked, looks, sent, shape, closed),
        *_tables(shape, closed),
    )


def _gateway(home: Home, now: float) -> tuple[Shape | None, str]:
    try:
        shape = gateway.look(home, now, timeout_s=GATEWAY_S)
    except NightcrewError as error:
        return None, error.line()
    if shape is None:
        return None, "no gateway has run here: nightcrew up -d, with a provider's key"
    return shape, "" if shape["running"] else str(shape["why"])


# What is read
# ------------


@dataclass(slots=True)
class Looks:
    """What the gateway said, look by look: one for each step of time."""

    kept: deque[tuple[float, Shape]] = field(default_factory=lambda: deque(maxlen=STEPS + 1))

    def add(self, shape: Shape | None, now: float) -> None:
        """Keep what one look says for the end of the last whole step, when it is the first since then."""
        at = now // STEP_S * STEP_S
        if not self.kept or self.kept[-1][0] != at:
            self.kept.append((at, _said(shape)))

    def of(self, pool: str, dimension: str, ends: Sequence[float]) -> dict[str, list[float | None]]:
        """`limit_per_minute`, `reserved` and `outside_per_minute` at the end of each step; None where nobody looked."""
        known = {at: said.get(pool, {}).get(dimension, {}) for at, said in [*self.kept]}
        return {name: [known.get(at, {}).get(name) for at in ends] for name in ("limit_per_minute", "reserved", "outside_per_minute")}

    def queued(self, ends: Sequence[float]) -> list[float | None]:
        """How many requests waited at the end of each step; None where nobody looked."""
        known = {at: said.get("", {}).get("queued") for at, said in [*self.kept]}
        return [known.get(at) for at in ends]


def _said(shape: Shape | None) -> dict[str, Any]:
    """By pool and dimension; below "" what is of no pool."""
    if shape is None or not shape["running"]:
        return {}
    return {
        "": {"queued": gateway.queued(shape)},
        **{pool["key"]: {one["name"]: one for one in pool["dimensions"]} for pool in shape["pools"]},
    }


def account(home: Home, now: float) -> tuple[list[Step], list[BreakerChange]]:
    """What was sent, step by step from the first request on, and the changes of breakers; nothing where it cannot be read."""
    with contextlib.suppress(NightcrewError), opened(home.gateway_account, schema.ACCOUNT) as db:
        sent = reading.steps(db, now, STEP_S, STEPS)
        first = next((at for at, step in enumerate(sent) if step.figures.requests), 0)
        return sent[max(0, min(first - 1, len(sent) - LEAST)) :], reading.breakers(db, now - STEP_S * STEPS)
    return [], []


@dataclass(frozen=True, slots=True)
class Used:
    """What each agent used of a limit in the minute that ends with each step: those that used most first."""

    pool: str
    dimension: str
    agents: Sequence[tuple[str, Sequence[float]]]

    @property
    def name(self) -> str:
        return f"{self.pool}: {_UNITS[self.dimension]}"


def used(sent: Sequence[Step], shape: Shape | None) -> list[Used]:
    """One for each pool that was used and each dimension that it is known to have, the busiest first; input and output where nobody
    knows."""
    pools = {pool["key"]: pool for pool in (shape or {}).get("pools", ())}
    names = {pool for step in sent for pool, _ in step.charged} | {
        key for key, pool in pools.items() if pool["in_flight"] and not pool.get("engine")
    }
    found = []
    for key in sorted(names):
        known = [one["name"] for one in pools[key]["dimensions"]] if key in pools else []
        found += [Used(key, dimension, _foremost(sent, key, dimension)) for dimension in known or ("input", "output")]
    return sorted(found, key=lambda one: -sum(sum(values) for _, values in one.agents) * (one.dimension != "requests"))


def _foremost(sent: Sequence[Step], pool: str, dimension: str) -> list[tuple[str, Sequence[float]]]:
    charged: dict[str, list[float]] = {}
    for at, step in enumerate(sent):
        for (where, agent), (requests, given, put_out) in step.charged.items():
            if where == pool:
                amount = {"requests": requests, "input": given, "output": put_out}.get(dimension, given + put_out)
                charged.setdefault(agent, [0.0] * len(sent))[at] += amount
    wide = round(60 / STEP_S)
    found = [(agent, [sum(values[max(0, at - wide + 1) : at + 1]) for at in range(len(values))]) for agent, values in charged.items()]
    found.sort(key=lambda one: (-sum(one[1]), one[0]))
    rest = [values for _, values in found[LIMITS_AGENTS:]]
    return [*found[:LIMITS_AGENTS], *([(OTHERS, [sum(some) for some in zip(*rest, strict=True)])] if rest else [])]


def bands(changes: Sequence[BreakerChange], now: float) -> list[tuple[BreakerChange, float | None]]:
    """When a breaker was open or half-open, the newest first: how that began, and when it ended; None: it is so now."""
    found = []
    for key in dict.fromkeys((one.pool, one.breaker) for one in changes):
        own = [one for one in changes if (one.pool, one.breaker) == key]
        for one, then in pairwise([*own, None]):
            end = None if then is None else then.at
            if one is not None and one.state != "closed" and (end is None or end > now - STEP_S * STEPS):
                found.append((one, end))
    return sorted(found, key=lambda one: -one[0].at)


# Charts
# ------


def _charts(
    asked: Asked, looks: Looks, sent: Sequence[Step], shape: Shape | None, closed: Iterable[tuple[BreakerChange, float | None]]
) -> Iterator[Element | None]:
    ends, each = [one.at for one in sent], [one.figures for one in sent]
    marked = [(one.pool, Band(one.at, end, "O" if one.state == "open" else "½")) for one, end in closed]
    every = [band for _, band in marked]
    limits = used(sent, shape)
    shown = next((one for one in limits if one.name == asked.get("limit")), limits[0] if limits else None)
    if shown is not None:
        yield drawing.choice(asked, "Limit", "limit", [(one.name, one.name) for one in limits], shown.name)
        yield chart(_title(shown), Scale(ends, short), list(_series(shown, looks, ends)), [b for pool, b in marked if pool == shown.pool],
                    nothing=_NOTHING_SENT)  # fmt: skip
    admitted = [60 / STEP_S * sum(model.requests for model in one.models) for one in each]
    yield chart(
        "Admissions and the queue",
        Scale(ends, lambda value: short(value and round(value)), least=4),
        [
            Series("admitted a minute", "A", "c1", admitted, "pile"),
            Series("waiting now", "Q", "c2", looks.queued(ends)),
            Series("429 of the provider's", "P", "c6", [one.upstream_429 for one in each], "dotted"),
            Series("429 of ours", "N", "c4", [one.our_429 for one in each], "dashed"),
        ],
        every,
        nothing=_NOTHING_SENT,
    )
    of = asked.get("waits") if asked.get("waits") in _WAITS else "wait"
    yield drawing.choice(asked, "Seconds of", "waits", list(_WAITS.items()), str(of))
    parts = (("p50", "c1", "line"), ("p95", "c2", "dashed"), ("p99", "c6", "dotted"))
    waited = [
        Series(name.upper(), name[1:], ink, [getattr(getattr(one, str(of)), name) for one in each], kind) for name, ink, kind in parts
    ]
    yield chart(
        f"{_WAITS[str(of)]}: seconds", Scale(ends, duration, least=0.5), waited, every, nothing="Nothing ended in the last half hour."
    )
    hits = Series("read from the cache", "C", "c3", [one.cache_hits for one in each])
    yield chart("Input read from the provider's cache", Scale(ends, percent, whole=1), [hits], nothing="No input in the last half hour.")
    worth = Series("tokens for a dollar", "T", "c1", [one.tokens_per_usd for one in each])
    yield chart("Tokens for a dollar", Scale(ends, short), [worth], nothing="Nothing with a known price in the last half hour.")


def _title(shown: Used) -> str:
    return f"{_UNITS[shown.dimension].capitalize()} of {shown.pool}, by agent, in the minute before"


def _series(shown: Used, looks: Looks, ends: Sequence[float]) -> Iterator[Series]:
    for at, (name, values) in enumerate(shown.agents):
        yield Series(name, chr(ord("A") + at), f"c{at + 1}", values, "pile")
    known = looks.of(shown.pool, shown.dimension, ends)
    yield Series("reserved for what is under way", "R", "muted", known["reserved"], "reserved")
    yield Series("used by others outside", "X", "ink", known["outside_per_minute"], "outside")
    yield Series("limit", "limit", "ink", known["limit_per_minute"], "dashed")


# Now
# ---


def _now(found: Shape | None) -> Iterator[Element]:
    if found is None or not found["running"]:
        return
    figures, delay, soonest = found["figures"], gateway.delay_s(found), gateway.soonest_s(found)
    is_open = len(gateway.broken(found))
    cap, tonight = found["caps"].get("cost_per_night"), found["tonight_usd"]
    yield drawing.tiles(
        [
            ("Breakers", mark("!", f"{is_open} not closed") if is_open else mark("D", "all closed", "good")),
            ("Forecast", "not running out" if soonest is None else f"empty in {duration(soonest)}"),
            ("Waiting", gateway.queued(found)),
            ("A new request waits", duration(delay) if delay >= 1 else "not at all"),
            ("Cache", percent(figures["cache_hits"])),
            ("Tokens for a dollar", short(figures["tokens_per_usd"])),
            ("Tonight", "no cap" if tonight is None else f"{money(tonight)} of {money(cap)}"),
        ]
    )
    for text in found["problems"]:
        yield el("p", mark("!", text))


def _tables(found: Shape | None, closed: Sequence[tuple[BreakerChange, float | None]]) -> Iterator[Element]:
    """Limits and agents now, and when a breaker was not closed."""
    is_running = found is not None and found["running"]
    if found is not None and is_running:
        yield section("Limits now", _pools(found["pools"]))
        yield section("Agents now", *_agents(found["agents"]))
    if closed:
        rows = [[one.pool, one.breaker, state(one.state), moment(one.at), moment(end) or "now", one.why] for one, end in closed]
        yield section("When a breaker was not closed", table("Breakers", ["Limit", "Breaker", "State", "From", "To", "~Why"], rows))
    if found is not None and not is_running:
        yield note("What only a running gateway knows is not here: limits, reservations, the use of others, the queue.")


def _pools(pools: Iterable[Shape]) -> Element:
    rows = []
    for pool in pools:
        opens = None if pool["opens_in_s"] is None else f"tries again in {duration(pool['opens_in_s'])}"
        if pool.get("engine"):
            said = f"{pool['engine']}, {gateway.slots(pool)}"
            rows.append(
                [
                    f"engine {pool['account']}",
                    "slots",
                    None,
                    said,
                    *[None] * 3,
                    percent(pool["dimensions"][0]["saturation"]),
                    None,
                    pool["in_flight"],
                ]
            )
            continue
        for one in pool["dimensions"] or [{}]:
            figures = [short(one.get(name)) for name in ("limit_per_minute", "reserved", "outside_per_minute")]
            head: list[Child] = [pool["key"], one.get("name"), state(pool["breaker"]), pool["breaker_why"] or opens]
            rows.append([*head, *figures, percent(one.get("saturation")), duration(pool["exhausted_in_s"]), pool["in_flight"]])
    heads = ["Limit", "Of", "Breaker", "~Why", "#A minute", "#Reserved", "#Others", "#Used", "#Empty in", "#Under way"]
    return table("Limits now", heads, rows)


def _agents(agents: Sequence[Shape]) -> list[Child]:
    ordered = sorted(agents, key=lambda one: (-(one["used_tpm"] or 0.0), -(one["waiting_s"] or 0.0), one["name"]))
    rows = []
    for one in ordered[:TABLE]:
        figures = one["figures"]
        waits = duration(one["waiting_s"]) if one["queued"] else None
        place = f"#{one['place']}" if one["place"] else None
        head = [one["name"], one["task_class"], short(one["used_tpm"]), short(one["share_tpm"]), place]
        times = [spelled.percentiles(figures[name]) for name in _WAITS] if figures else [None] * 3
        cost = [spelled.cost(figures), percent(figures["cache_hits"])] if figures else [None, None]
        rows.append([*head, waits, *times, *cost])
    heads = ["Agent", "Class", "#A minute", "#Share", "Place", "#Waits", "#Wait", "#First byte", "#Turn", "#Cost", "#Cache"]
    more = note(f"and {len(ordered) - TABLE} more: nightcrew gateway status") if len(ordered) > TABLE else None
    return [table("Agents now: P50 / P95 / P99 in seconds", heads, rows), more]
