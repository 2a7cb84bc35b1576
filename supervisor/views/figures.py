"""Figures of tokens, money and time, and what an agent or its requests took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from supervisor.kernel.format import age, duration, money, short, size
from supervisor.store.queries import TaskView

# Figures
# -------
# Figures of the gateway in the few characters that a table has for them. Standard library only: `status` imports this.


BAR = 6
"""Columns of a bar."""


def bar(used: float | None, whole: float | None) -> str:
    """`████░░`; full is all of the share, or more."""
    if used is None or not whole:
        return ""
    full = min(BAR, max(0, round(BAR * used / whole)))
    return "█" * full + "░" * (BAR - full)


def percentiles(of: Mapping[str, float | None] | None) -> str:
    """`0.1/3.2/12`, in seconds."""
    if of is None or of["p50"] is None:
        return "-"
    return "/".join(f"{value:.1f}" if value < 9.95 else f"{value:.0f}" for value in (of["p50"], of["p95"] or 0.0, of["p99"] or 0.0))


def cost(of: Mapping[str, Any] | None) -> str:
    """`$4.21`; `>$4.21` when the price of some is not known, `?` when it is of none."""
    if of is None:
        return "-"
    known: float = of["known_usd"]
    if of["unpriced"] and not known:
        return "$?"
    return f"{'>' if of['unpriced'] else ''}{money(known)}"


WORK = ("Work", "To", "Requests:", "Tokens:", "Cost:", "Done:", "Gate failed:", "Raised:")
"""Heads of the cells of `work`. A colon: a number."""


def work(route: Mapping[str, Any]) -> list[str]:
    """What requests of one weight took on one route, and what came of their tasks. The cost is dollars, or seconds of an engine."""
    cost = f"{duration(route['engine_s'])} of an engine" if route["engine_s"] else money(route["usd"])
    ends = [f"{route[name]:,}" for name in ("done", "gate_failed", "raised")]
    return [route["work"], f"{route['account']} {route['model']}", f"{route['requests']:,}", short(route["tokens"]), cost, *ends]


# Usage
# -----
# What an agent takes, in words, from its account. Standard library only: `status` imports this.


_WHERE = (
    ("model_s", "at models"),
    ("token_queue_s", "waiting for tokens"),
    ("human_s", "waiting for a person"),
    ("paused_s", "paused"),
    ("local_s", "its own work"),
)


def facts(view: TaskView) -> Iterator[tuple[str, str]]:
    """What its newest attempt took, a name and a text each."""
    account = view.account or {}
    sizes = [("now", account.get("memory") if not view.final else None), ("at most", account.get("peak_memory"))]
    said = [f"{name} {size(value)}" for name, value in [*sizes, ("expected", view.memory_expected)] if value]
    if said and view.epoch:
        yield "memory", ", ".join(said)
    if cpu_s := account.get("cpu_s"):
        tools = account.get("tool_cpu_s")
        yield "processor", f"{age(cpu_s)}" + (f", {age(tools)} of it by tools" if tools else "")
    if account.get("peak_gpu_memory"):
        share = account.get("gpu_utilisation")
        yield "gpu", f"at most {size(account['peak_gpu_memory'])}" + ("" if share is None else f", {share:.0%} used")
    if account.get("wall_s") is not None:
        yield "time", spent(account)


def spent(account: Mapping[str, Any]) -> str:
    """Where the time of an attempt went: `3m20s: 2m at models, 40s waiting for tokens, 40s its own work; before that 5s in the queue`."""
    spent = ", ".join(f"{age(account[key])} {words}" for key, words in _WHERE if (account.get(key) or 0) >= 1)
    queued = account.get("slot_queue_s") or 0
    return age(account["wall_s"]) + (f": {spent}" if spent else "") + (f"; before that {age(queued)} in the queue" if queued >= 1 else "")


# Model usage
# -----------
# What a task's requests to models took, from its results. Standard library only: `status` imports this.


Spent = Mapping[str, Any]
"""`tokens` (every kind), `cost_usd` (null when a part of it is not known), `wait_s` (seconds of waiting for the limit) and `models`:
how many `requests` for the model `asked` the model `answered`."""

_KINDS = ("input", "output", "cache_read", "cache_write")


def of(results: Iterable[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Of the attempts whose `result.json` these are; None when none of them knows of any token."""
    found = []
    for result in results:
        tokens = (result or {}).get("tokens") or {}
        known = [tokens[kind] for kind in _KINDS if tokens.get(kind) is not None]
        if result is not None and known:
            wait = (result.get("waits") or {}).get("tokens_s") or 0.0
            found.append({"tokens": sum(known), "cost_usd": result.get("cost_usd"), "wait_s": wait, "models": result.get("models") or []})
    return total(found)


def total(parts: Iterable[Spent | None]) -> dict[str, Any] | None:
    """All of them together; None when there is none."""
    known = [part for part in parts if part]
    if not known:
        return None
    costs = [part["cost_usd"] for part in known]
    return {
        "tokens": sum(part["tokens"] for part in known),
        "cost_usd": None if None in costs else round(sum(costs), 6),
        "wait_s": round(sum(part["wait_s"] for part in known), 3),
        "models": _merged(known),
    }


def _merged(parts: Iterable[Spent]) -> list[dict[str, Any]]:
    number: Counter[tuple[str, str]] = Counter()
    for one in (one for part in parts for one in part.get("models", ())):
        number[one["asked"], one["answered"]] += one["requests"]
    return [{"asked": asked, "answered": answered, "requests": number[asked, answered]} for asked, answered in sorted(number)]


def others(models: Iterable[Mapping[str, Any]]) -> str:
    """`claude-haiku-4-5 answered 3 of 10 for claude-opus-4-8`: where another model answered than was asked; empty where none did."""
    known = list(models)
    asked = {name: sum(one["requests"] for one in known if one["asked"] == name) for name in {one["asked"] for one in known}}
    found = [one for one in known if one["answered"] != one["asked"]]
    return ", ".join(f"{one['answered']} answered {one['requests']} of {asked[one['asked']]} for {one['asked']}" for one in found)


def text(spent: Spent, wait: str) -> str:
    """`61k tokens, $0.33, waited 12 s`; `wait` is the caller's way to say `wait_s`, which is left out below half a second."""
    cost = "cost not known" if spent["cost_usd"] is None else money(spent["cost_usd"])
    instead = others(spent.get("models", ()))
    waited = f", waited {wait}" if spent["wait_s"] >= 0.5 else ""
    return f"{short(spent['tokens'])} tokens, {cost}{waited}" + (f", {instead}" if instead else "")


def first_request(result: Mapping[str, Any] | None, cold: Mapping[str, Any] | None) -> str:
    """How much of an attempt's first request came from the provider's cache; beside that of `cold`, which began the conversation."""
    own, other = _hits(result), _hits(cold)
    beside = f"; {other} when the conversation began" if other else ""
    return f"{own} of the first request was read from the cache{beside}" if own else ""


def _hits(result: Mapping[str, Any] | None) -> str:
    first = (result or {}).get("first_request")
    return f"{first['cache_hits']:.0%}" if first else ""
