"""`result.json`, schema 1: what one attempt came to, for people and programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from supervisor.kernel import leases
from supervisor.kernel.errors import one_line
from supervisor.kernel.format import rfc3339
from supervisor.kernel.names import trace_id
from supervisor.kernel.records import SCHEMA, Exit
from supervisor.kernel.states import End

TAMPERING = "tampering: "
"""How a note begins that says what somebody changed which only nightcrew, or only the person, may change."""
NOT_SECURED = "not secured: "
"""Begins what is said of an attempt that ended by itself and whose work could not be collected; it has no result."""


@dataclass(frozen=True, slots=True)
class Work:
    """What the attempt left in git. `tip` is the newest commit that holds all of it."""

    branch: str | None
    tip: str | None
    commits: int
    files: int
    plus: int
    minus: int
    rescue: str | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Times:
    """Wall-clock seconds since 1970."""

    queued: float
    spawned: float
    ended: float
    up: float | None = None
    """When its runner was there."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What the gateway's account says of one attempt. Tokens as the provider counts them; None where nobody knows."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    estimated: int | None = None
    """Requests whose tokens are an estimate, because the provider never said them."""
    cost_usd: float | None = None
    """Also None when a part of it went to models of no known price."""
    models: tuple[Mapping[str, Any], ...] = ()
    """`asked`, `answered` and how many `requests`."""
    waited_s: float | None = None
    """How long its requests waited for their turn, all together."""
    notes: tuple[str, ...] = ()
    busy: tuple[tuple[float, float], ...] = ()
    """From when to when each of its requests was at a model, wall clock."""
    queued: tuple[tuple[float, float], ...] = ()
    """From when to when each of them waited for its turn."""
    past: int = 0
    """Tokens among these that it took past the gateway, by its own account."""
    kept: int = 0
    """Tokens that are not among these, since kept answers saved them; the agent counts them."""
    first: tuple[int, int, int] | None = None
    """Input, cache reads and cache writes of its first request; see `gateway.account.queries.first_of_attempt`."""


def build(
    *,
    task: str,
    epoch: int,
    end: End,
    cause: str,
    record: Exit | None,
    times: Times,
    work: Work,
    output: Any,
    spent: Spent = Spent(),
    agent: Mapping[str, Any] | None = None,
    gate: Mapping[str, Any] | None = None,
    measured: Mapping[str, Any] | None = None,
    assigned: str = "",
    account: Mapping[str, Any] | None = None,
    unleased: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """The result as a JSON object. What nobody measured is null."""
    started = record.started if record else None
    ended = record.ended if record else times.ended
    return {
        "schema": SCHEMA,
        "task": task,
        "epoch": epoch,
        "trace": trace_id(task),
        "assigned": assigned or None,
        "end": str(end),
        "cause": cause,
        "exit": {"code": record.code if record else None, "signal": record.signal if record else None},
        "queued": rfc3339(times.queued),
        "up": rfc3339(times.up),
        "started": rfc3339(started),
        "ended": rfc3339(ended),
        "waits": _waits(times, spent, account),
        "cpu_s": round(record.cpu_s, 3) if record else None,
        "account": None if account is None else dict(account),
        "spawn_to_done_ms": round(max(0.0, ended - times.spawned) * 1000),
        **_of_models(spent),
        **_of_work(work),
        "truncated": dict(record.truncated) if record else {},
        "unleased": None if unleased is None else dict(unleased),
        "notes": [*work.notes, *spent.notes, *leases.unleased_note(unleased), *_of_end(record), *notes],
        "output": output,
        "agent": None if agent is None else dict(agent),
        "gate": None if gate is None else dict(gate),
        "measured": None if measured is None else dict(measured),
    }


def _waits(times: Times, spent: Spent, account: Mapping[str, Any] | None) -> dict[str, Any]:
    queue_s = round(max(0.0, times.spawned - times.queued), 3)
    return {"queue_s": queue_s, "tokens_s": spent.waited_s, "human_s": (account or {}).get("human_s")}


def _of_end(record: Exit | None) -> tuple[str, ...]:
    return ("it gave its result and did not exit, so nightcrew ended it",) if record is not None and record.why == "finished" else ()


def _of_models(spent: Spent) -> dict[str, Any]:
    names = ("input", "output", "cache_read", "cache_write", "estimated")
    return {
        "tokens": {name: getattr(spent, name) for name in names},
        "first_request": _first(spent.first),
        "models": [dict(one) for one in spent.models],
        "cost_usd": spent.cost_usd,
    }


def _of_work(work: Work) -> dict[str, Any]:
    diff = {"files": work.files, "plus": work.plus, "minus": work.minus}
    return {"branch": work.branch, "tip": work.tip, "rescue": work.rescue, "commits": work.commits, "diff": diff}


def _first(tokens: tuple[int, int, int] | None) -> dict[str, Any] | None:
    if tokens is None:
        return None
    kinds = dict(zip(("input", "cache_read", "cache_write"), tokens, strict=True))
    return {**kinds, "cache_hits": round(kinds["cache_read"] / sum(tokens), 4)}


def tampering(shape: Mapping[str, Any] | None) -> list[str]:
    """What a result, or None, says of tampering, without TAMPERING."""
    notes = shape.get("notes", []) if shape is not None else []
    return [str(note).removeprefix(TAMPERING) for note in notes if str(note).startswith(TAMPERING)]


MAX_DEPTH = 100
"""Of an agent's output: what is nested deeper can be read but not written again, since `json` recurses."""


def last_json_object(tail: bytes) -> Any:
    """The last line of an agent's stdout that is a JSON object of at most MAX_DEPTH levels, or None. `tail` may begin inside a line."""
    for line in reversed(tail.splitlines()):
        text = line.strip()
        if text.startswith(b"{") and text.endswith(b"}") and (found := json_value(text)) is not None:
            return found
    return None


def json_value(text: bytes) -> Any:
    """What is in an agent's JSON, if it can be written again: finite numbers, at most MAX_DEPTH levels. Else None."""
    try:
        found = json.loads(text, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        return None
    return None if _deeper_than(MAX_DEPTH, found) else found


def not_one_json_line(stdout: bytes) -> str:
    """Why an agent's stdout is not exactly one line that is a JSON object; empty when it is."""
    lines = [line for line in stdout.splitlines() if line.strip()]
    if len(lines) != 1:
        return f"printed {len(lines) or 'nothing'}{' lines' if lines else ''} on stdout, where one line of JSON belongs"
    if last_json_object(lines[0]) is None:
        shown = lines[0][:60].decode("utf-8", "backslashreplace")
        return f"printed a line that is no JSON object: {one_line(shown)}"
    return ""


def _finite(text: str) -> float:
    """`NaN`, `Infinity` and `1e999` would be written again as words that JSON does not have."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number of JSON")
    return number


def _deeper_than(limit: int, value: Any) -> bool:
    level = [value]
    for _ in range(limit):
        if not level:
            return False
        level = [inner for item in level if isinstance(item, dict | list) for inner in (item.values() if isinstance(item, dict) else item)]
    return any(isinstance(item, dict | list) for item in level)
