"""Short words for what the account's tests write."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from supervisor.gateway.account import schema
from supervisor.gateway.account.charges import OpenRow, SettledRow, TurnedAwayRow
from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission import types
from supervisor.gateway.admission.types import BreakerState, LaneKey, PoolKey, Usage
from supervisor.kernel.gateway_settings import Api
from supervisor.kernel.states import TaskClass

LANE = LaneKey(Api.ANTHROPIC, "opus-4")
NOW = 1_700_000_000.0
AGENT = "1121-k3f9/lint"


class Wall:
    """Seconds since 1970, moved by hand."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def unpriced(_model: str, _usage: Usage) -> None:
    """No price is known."""


def price(model: str, usage: Usage) -> float | None:
    """Of every model but `unknown`."""
    return None if model == "unknown" else usd(usage)


def usd(usage: Usage) -> float:
    """US dollars."""
    return (5 * usage.input + 25 * usage.output + 0.5 * usage.cache_read + 6.25 * usage.cache_write + 3.75 * usage.cache_write_1h) / 1e6


def opened(**facts: Any) -> OpenRow:
    """A request that is about to be sent."""
    shape: Mapping[str, Any] = {
        "agent": AGENT, "epoch": 1, "model": "claude-opus-4-8", "lane": LANE, "upstream": "anthropic", "account": "work",
        "task_class": TaskClass.NORMAL, "at": NOW, "queued_ms": 1500.0, "attempt_no": 1, "bound": Usage(20_000, 64_000),
        "expected": Usage(6000, 300, 4000), "bound_usd": 1.7, "session": "s-1", "body_key": "21600:1",
    }  # fmt: skip
    return OpenRow(**{**shape, **facts})


def served(**facts: Any) -> SettledRow:
    """It was served."""
    shape: Mapping[str, Any] = {
        "end": "served", "usage": Usage(1000, 50, 4000, 300), "status": 200, "cost_usd": 0.02, "first_byte_ms": 2500.0,
        "total_ms": 6500.0, "breaker": "closed",
    }  # fmt: skip
    return SettledRow(**{**shape, **facts})


def away(**facts: Any) -> TurnedAwayRow:
    """We answered it ourselves."""
    shape: Mapping[str, Any] = {
        "agent": AGENT, "epoch": 1, "lane": LANE, "status": 429, "why": "the hold budget is over", "waited_ms": 240_000.0, "at": NOW,
    }  # fmt: skip
    return TurnedAwayRow(**{**shape, **facts})


def rows(path: Path, sql: str = "SELECT * FROM request ORDER BY id") -> list[dict[str, Any]]:
    """What the file holds, by a connection of its own."""
    with contextlib.closing(schema.connect_readonly(path)) as db:
        return [dict(row) for row in db.execute(sql)]


@contextlib.asynccontextmanager
async def account(path: Path, wall: Wall | None = None) -> AsyncIterator[Account]:
    made = Account(path, wall or Wall())
    made.start(price)
    try:
        yield made
    finally:
        await made.close()


async def until_saved(path: Path, sql: str, number: int) -> None:
    while rows(path, sql)[0]["n"] != number:  # pytest's own time limit ends a wait in vain
        await asyncio.sleep(0.005)


def change(**facts: Any) -> types.Journal:
    shape: dict[str, Any] = {
        "pool": PoolKey("work", LANE), "breaker": "limit", "before": BreakerState.CLOSED, "after": BreakerState.OPEN, "why": "429",
        "numbers": {"level": -5.0},
    }  # fmt: skip
    return types.Journal(**{**shape, **facts})
