"""Anthropic Message Batches as the simulated provider has them: made, processed one request after the other, ended, their results in any
order. Their tokens count against no limit. What becomes of a request is a fault's affair (`api: "batch"`).
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from nightcrew.plugins.sim.account import Accounts, Stats, add_usage, label, model_class
from nightcrew.plugins.sim.answers import compose
from nightcrew.plugins.sim.dialects.anthropic import Anthropic
from nightcrew.plugins.sim.dialects.types import WORDS, Ask, Failure, compact
from nightcrew.plugins.sim.faults import Facts, Fault, FaultBook
from nightcrew.plugins.sim.settings import SimSettings
from supervisor.gateway.admission.types import Usage
from supervisor.host.clock import Clock

API = "batch"
"""What faults for one request of a batch name."""
MOST = 100_000
EXPIRES_S = 86400.0
_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ANTHROPIC = Anthropic()


class Misshapen(Exception):
    """A batch that is not taken, and why."""


@dataclass(slots=True)
class Batch:
    """One of them. Times are monotonic seconds of the provider's clock, but `made_wall`."""

    id: str
    key: str
    requests: list[tuple[str, Mapping[str, Any]]]
    made: float
    made_wall: float
    held: bool
    """Nothing of it is processed before somebody releases it."""
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By custom id, of those that are over."""
    cancelled: float | None = None
    ended: float | None = None


class Batches:
    """All of them, the newest last. They go on when somebody looks."""

    def __init__(self, settings: SimSettings, clock: Clock, rng: random.Random, parts: tuple[Accounts, FaultBook, Stats]) -> None:
        self._settings, self._clock, self._rng = settings, clock, rng
        self._accounts, self._faults, self._stats = parts
        self._all: dict[str, Batch] = {}

    def make(self, key: str, body: Mapping[str, Any], fault: Fault) -> Batch:
        """A new one, which begins at once. Raises Misshapen."""
        requests = list(_requests(body))
        now = self._now()
        batch = Batch(f"msgbatch_sim{len(self._all) + 1:06d}", key, requests, now, self._clock.wall(), bool(fault.hold))
        self._all[batch.id] = batch
        return batch

    def release(self) -> None:
        """Those that were held go on."""
        for batch in self._all.values():
            if batch.held:
                batch.held, batch.made = False, self._now()

    def find(self, key: str, number: str) -> Batch | None:
        """One of this key's, as it is now."""
        batch = self._all.get(number)
        if batch is None or batch.key != key:
            return None
        self._go_on(batch)
        return batch

    def of_key(self, key: str) -> list[Batch]:
        """All of one key, the newest first, as they are now."""
        found = [batch for batch in reversed(self._all.values()) if batch.key == key]
        for batch in found:
            self._go_on(batch)
        return found

    def cancel(self, batch: Batch) -> None:
        """Process no more of it. One that has ended stays as it is."""
        if batch.ended is None and batch.cancelled is None:
            batch.cancelled = self._now()

    def _now(self) -> float:
        return self._accounts.now()

    def _go_on(self, batch: Batch) -> None:
        """Do what should have been done by now."""
        now = self._now()
        if batch.ended is not None:
            return
        upto = batch.cancelled if batch.cancelled is not None else now
        each_s = self._settings.batch_s / max(1, len(batch.requests))
        for place, (custom_id, params) in enumerate(batch.requests):
            if not batch.held and custom_id not in batch.results and batch.made + (place + 1) * each_s <= upto:
                batch.results[custom_id] = self._process(batch, place, params)
        if batch.cancelled is not None and now > batch.cancelled:
            self._end(batch, now, "canceled")
        elif now - batch.made >= EXPIRES_S:
            self._end(batch, now, "expired")
        elif len(batch.results) == len(batch.requests):
            batch.ended = now

    def _end(self, batch: Batch, now: float, how: str) -> None:
        for custom_id, _ in batch.requests:
            batch.results.setdefault(custom_id, {"type": how})
        batch.ended = now

    def _process(self, batch: Batch, place: int, params: Mapping[str, Any]) -> dict[str, Any]:
        body, number = compact(params).encode(), f"{batch.id}_{place}"
        fault = self._faults.choose(Facts(API, str(params.get("model", "")), batch.key, body))
        if fault.batch:
            return {"type": fault.batch}
        status, ask = fault.status, _read(params)
        if status or ask is None:
            failure = Failure(status or 400, fault.message or WORDS.get(status or 400, "error"))
            return {"type": "errored", "error": _ANTHROPIC.error(failure, number)}
        usage = self._accounts.count(ask, batch.key, len(body), fault)
        answer = compose(ask, usage, fault, per_event=self._settings.tokens_per_event, answer_id=number, created=int(self._clock.wall()))
        self._count(batch.key, ask.model, usage)
        message = _ANTHROPIC.whole(ask, answer)
        if "usage" in message:
            message["usage"]["service_tier"] = "batch"
        return {"type": "succeeded", "message": message}

    def _count(self, key: str, model: str, usage: Usage) -> None:
        tally = self._stats.tally(label(key), f"{model_class(model)}/batch")
        tally.asked += 1
        tally.answered += 1
        add_usage(tally.used, usage)

    def lines(self, batch: Batch) -> bytes:
        """The results of one that has ended, in an order of chance."""
        found = list(batch.results.items())
        random.Random(f"{self._settings.seed} {batch.id}").shuffle(found)  # noqa: S311 - an order, no secret
        return b"".join(compact({"custom_id": name, "result": result}).encode() + b"\n" for name, result in found)


def shape(batch: Batch, url: str, now_wall: float, now: float) -> dict[str, Any]:
    """As the API shows it; `url` is the provider's own."""
    counts = dict.fromkeys(("canceled", "errored", "expired", "processing", "succeeded"), 0)
    for result in batch.results.values() if batch.ended is not None else ():
        counts[result["type"]] += 1
    counts["processing"] = 0 if batch.ended is not None else len(batch.requests)
    status = "ended" if batch.ended is not None else "canceling" if batch.cancelled is not None else "in_progress"

    def told(moment: float | None) -> str | None:
        return None if moment is None else _rfc3339(now_wall - (now - moment))

    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": status,
        "request_counts": counts,
        "created_at": _rfc3339(batch.made_wall),
        "expires_at": _rfc3339(batch.made_wall + EXPIRES_S),
        "ended_at": told(batch.ended),
        "cancel_initiated_at": told(batch.cancelled),
        "archived_at": None,
        "results_url": f"{url}/v1/messages/batches/{batch.id}/results" if batch.ended is not None else None,
    }


def _requests(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    asked = body.get("requests")
    if not isinstance(asked, list) or not 1 <= len(asked) <= MOST:
        raise Misshapen(f"requests: a list of 1 to {MOST} is required")
    seen: set[str] = set()
    for place, one in enumerate(asked):
        name = one.get("custom_id") if isinstance(one, dict) else None
        if not isinstance(name, str) or not _CUSTOM_ID.fullmatch(name) or not isinstance(one.get("params"), dict):
            raise Misshapen(f"requests.{place}: custom_id and params are required")
        if name in seen:
            raise Misshapen(f"requests.{place}.custom_id: {name} is there twice")
        seen.add(name)
        yield name, one["params"]


def _read(params: Mapping[str, Any]) -> Ask | None:
    """The request, None for one that a batch cannot have."""
    try:
        ask = _ANTHROPIC.read("", {}, json.loads(json.dumps(params)))
    except (KeyError, TypeError, ValueError):
        return None
    return None if ask.stream or not ask.max_tokens else ask


def _rfc3339(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).isoformat().replace("+00:00", "Z")
