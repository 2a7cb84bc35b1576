"""Tokens against the limits, over time: who used them, what is reserved, what others take, who waited for how long, and every breaker.

What was sent comes from the account, in steps of time. What the gateway alone knows (limits, reservations, outside use, the queue) is kept
from each look, so it begins with the first one.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from supervisor.core.errors import NightcrewError
from supervisor.faces import gateway_json
from supervisor.faces.web.models.asked import opened
from supervisor.gateway.account import schema, steps
from supervisor.gateway.account.reading import Figures
from supervisor.gateway.account.steps import BreakerChange, Step
from supervisor.host.paths import Home

STEP_S, STEPS, LEAST = 15.0, 120, 20
"""Half an hour; where less is known, from the first request on, and at least five minutes."""
AGENTS = 7
"""That have a colour of their own: those that used most. The others are one."""
OTHERS = "others of the crew"
GATEWAY_S = 1.0
TABLE = 20
"""Agents of the table of now."""
Shape = dict[str, Any]


@dataclass(slots=True)
class Looks:
    """What the gateway said, look by look: one for each step of time. One thread at a time."""

    kept: deque[tuple[float, Mapping[str, Any]]] = field(default_factory=lambda: deque(maxlen=STEPS + 1))

    def add(self, shape: Mapping[str, Any] | None, now: float) -> None:
        """Keep what one look says for the end of the last whole step, when it is the first since then."""
        at = now // STEP_S * STEP_S
        if not self.kept or self.kept[-1][0] != at:
            self.kept.append((at, _pools(shape)))

    def of(self, pool: str, dimension: str, ends: Sequence[float]) -> dict[str, list[float | None]]:
        """`limit`, `reserved` and `outside` at the end of each step; None where nobody looked."""
        known = {at: pools.get(pool, {}).get(dimension) for at, pools in self.kept}
        found = [known.get(at) for at in ends]
        return {name: [None if one is None else one[name] for one in found] for name in ("limit", "reserved", "outside")}

    def queue(self, ends: Sequence[float]) -> dict[str, list[float | None]]:
        """`queued` and `delay_s` at the end of each step, of all queues."""
        known = dict(self.kept)
        found = [known.get(at) for at in ends]
        return {name: [None if one is None else one.get("", {}).get(name) for one in found] for name in ("queued", "delay_s")}


def _pools(shape: Mapping[str, Any] | None) -> dict[str, Any]:
    """By pool and dimension; below "" what is of no pool."""
    if shape is None or not shape["running"]:
        return {}
    queue = {
        "queued": sum(lane["queued"] for lane in shape["lanes"]),
        "delay_s": max((lane["delay_s"] or 0.0 for lane in shape["lanes"]), default=0.0),
    }
    return {"": queue, **{pool["key"]: {one["name"]: _kept(one) for one in pool["dimensions"]} for pool in shape["pools"]}}


def _kept(one: Mapping[str, Any]) -> dict[str, float | None]:
    return {"limit": one["limit_per_minute"], "reserved": one["reserved"], "outside": one["outside_per_minute"]}


def limits(home: Home, looks: Looks, now: float) -> Shape:
    """`now`: the gateway as its status page says it, None where there never was one; `trouble`: why it does not answer; `ends`: the end of
    each step, seconds since 1970; `charts`: one for each pool and dimension, the busiest first; `waits`, `rates`: of all, over time;
    `breakers`: when which breaker was not closed."""
    shape, trouble = _asked(home, now)
    looks.add(shape, now)
    sent, changes = _account(home, now)
    ends = [one.at for one in sent]
    return {
        "now": _now(shape),
        "trouble": trouble,
        "step_s": STEP_S,
        "ends": ends,
        "charts": charts(sent, looks, shape),
        "waits": waits(sent),
        "rates": {**rates(sent), **looks.queue(ends)},
        "breakers": bands(changes, now),
    }


def _asked(home: Home, now: float) -> tuple[Mapping[str, Any] | None, str]:
    try:
        shape = gateway_json.look(home, now, timeout_s=GATEWAY_S)
    except NightcrewError as error:
        return None, error.line()
    if shape is None:
        return None, "no gateway has run here: nightcrew up -d, with a provider's key"
    return shape, "" if shape["running"] else str(shape["why"])


def _account(home: Home, now: float) -> tuple[list[Step], list[BreakerChange]]:
    with contextlib.suppress(NightcrewError), opened(home.gateway_account, schema.ACCOUNT) as db:
        return _known(steps.steps(db, now, STEP_S, STEPS)), steps.breakers(db, now - STEP_S * STEPS)
    return [], []


def _known(sent: list[Step]) -> list[Step]:
    """Without what was before the first request."""
    first = next((at for at, step in enumerate(sent) if step.figures.requests), 0)
    return sent[max(0, min(first - 1, len(sent) - LEAST)) :]


def _now(shape: Mapping[str, Any] | None) -> Shape | None:
    """What a table has room for."""
    if shape is None:
        return None
    agents = sorted(shape["agents"], key=lambda one: (-(one["used_tpm"] or 0.0), -(one["waiting_s"] or 0.0), one["name"]))
    names = ("running", "figures", "lanes", "pools", "problems", "tonight_usd", "caps")
    return {**{name: shape[name] for name in names if name in shape}, "agents": agents[:TABLE], "more_agents": max(0, len(agents) - TABLE)}


# Over time ------------------------------------------------------------------------------------------------------------------------


def charts(sent: Sequence[Step], looks: Looks, shape: Mapping[str, Any] | None) -> list[Shape]:
    """`pool`, `dimension`, `agents` (each `name` and `used`: in the minute that ends with each step), and what `Looks.of` gives."""
    ends = [one.at for one in sent]
    found = []
    for pool, dimension in _wanted(sent, shape):
        used = _used(sent, pool, dimension)
        agents = [{"name": name, "used": values} for name, values in _foremost(used, len(sent))]
        found.append({"pool": pool, "dimension": dimension, "agents": agents, **looks.of(pool, dimension, ends)})
    return sorted(found, key=lambda one: -sum(sum(agent["used"]) for agent in one["agents"]) * (one["dimension"] != "requests"))


def _wanted(sent: Sequence[Step], shape: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Every pool that was used, with the dimensions that it is known to have; input and output where nobody knows."""
    used = {pool for step in sent for pool, _ in step.charged}
    known = {pool["key"]: [one["name"] for one in pool["dimensions"]] for pool in (shape or {}).get("pools", ())}
    busy = {pool["key"] for pool in (shape or {}).get("pools", ()) if pool["in_flight"]}
    return [(pool, name) for pool in sorted(used | busy) for name in known.get(pool) or ("input", "output")]


def _used(sent: Sequence[Step], pool: str, dimension: str) -> dict[str, list[float]]:
    """Of each agent what it was charged in the minute that ends with each step."""
    found: dict[str, list[float]] = {}
    for at, step in enumerate(sent):
        for (where, agent), (requests, given, put_out) in step.charged.items():
            if where == pool:
                amount = {"requests": requests, "input": given, "output": put_out}.get(dimension, given + put_out)
                found.setdefault(agent, [0.0] * len(sent))[at] += amount
    wide = round(60 / STEP_S)
    return {agent: [sum(values[max(0, at - wide + 1) : at + 1]) for at in range(len(values))] for agent, values in found.items()}


def _foremost(used: Mapping[str, list[float]], count: int) -> Iterable[tuple[str, list[float]]]:
    ordered = sorted(used.items(), key=lambda one: (-sum(one[1]), one[0]))
    yield from ordered[:AGENTS]
    if rest := [values for _, values in ordered[AGENTS:]]:
        yield OTHERS, [sum(values[at] for values in rest) for at in range(count)]


def waits(sent: Sequence[Step]) -> Shape:
    """P50, P95 and P99 of `wait`, `first_byte` and `total` in each step, in seconds; None where nothing ended."""
    return {
        name: {part: [getattr(getattr(step.figures, name), part) for step in sent] for part in ("p50", "p95", "p99")}
        for name in ("wait", "first_byte", "total")
    }


def rates(sent: Sequence[Step]) -> Shape:
    """In each step: `admitted` requests a minute, `our_429` and `upstream_429`, `cache_hits` (0 to 1), `tokens_per_usd`."""
    figures = [step.figures for step in sent]
    return {
        "admitted": [60 / STEP_S * _admitted(one) for one in figures],
        "our_429": [one.our_429 for one in figures],
        "upstream_429": [one.upstream_429 for one in figures],
        "cache_hits": [one.cache_hits for one in figures],
        "tokens_per_usd": [one.tokens_per_usd for one in figures],
    }


def _admitted(figures: Figures) -> int:
    return sum(one.requests for one in figures.models)


def bands(changes: Sequence[BreakerChange], now: float) -> list[Shape]:
    """`pool`, `breaker`, `state`, `why`, `begin` and `end`: when a breaker was open or half-open; `end` None: it is so now."""
    found = []
    for key in dict.fromkeys((one.pool, one.breaker) for one in changes):
        own = [one for one in changes if (one.pool, one.breaker) == key]
        for one, then in pairwise([*own, None]):
            if one is not None and one.state != "closed":
                end = None if then is None else then.at
                if end is None or end > now - STEP_S * STEPS:
                    found.append({**asdict(one), "begin": one.at, "end": end})
    return sorted(found, key=lambda one: -one["begin"])
