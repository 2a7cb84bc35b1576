"""The price table for the gateway, from genai-prices, which knows what the providers' web pages say. Written at the daemon's start and once
a day: prices change on dates that the table of today does not say.

Importing genai-prices takes 0.4 s and 40 MB, so a process of its own does it: `python -m supervisor.server.prices FILE`.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.gateway.account import charges
from supervisor.host import files
from supervisor.kernel.errors import ToolFailed
from supervisor.kernel.format import rfc3339

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider

REFRESH_S = 24 * 3600.0
WRITE_S = 60.0
_KINDS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
}


def refresh(path: Path) -> None:
    """Write the table anew, by a process of its own. Blocks for about a second. Raises ToolFailed; the old table is then still there."""
    argv = [sys.executable, "-I", "-m", "supervisor.server.prices", str(path)]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WRITE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolFailed("cannot write the price table", on=str(path), why=str(error), kept="the one before") from error
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise ToolFailed("cannot write the price table", on=str(path), why=said[-1] if said else "", kept="the one before")


def write(path: Path, now: datetime) -> None:
    """Write the prices that hold at `now`. Raises DiskFull or ToolFailed; the old table is then still there."""
    files.atomic_write(path, json.dumps(table(now), separators=(",", ":")).encode())


def table(now: datetime) -> dict[str, Any]:
    """The table as `supervisor/gateway/account/charges.py` reads it: every provider that is known by its models' names."""
    import genai_prices
    from genai_prices import data_snapshot

    providers = [_provider(provider, now) for provider in data_snapshot.get_snapshot().providers if provider.model_match is not None]
    source = f"genai-prices {genai_prices.__version__}"
    return {"schema": charges.PRICES_SCHEMA, "source": source, "written": rfc3339(now.timestamp()), "providers": providers}


def _provider(provider: Provider, now: datetime) -> dict[str, Any]:
    models = [{"id": model.id, "match": _rule(model.match), "rates": _rates(_prices(model, now))} for model in provider.models]
    return {"id": provider.id, "match": _rule(provider.model_match), "models": [model for model in models if model["rates"]]}


def _rule(clause: Any) -> dict[str, Any]:
    """`ClauseOr(or_=[ClauseEquals(equals="x")])` as `{"or": [{"equals": "x"}]}`."""
    ((name, what),) = ((field.name, getattr(clause, field.name)) for field in dataclasses.fields(clause))
    return {name.rstrip("_"): [_rule(one) for one in what] if isinstance(what, list) else what}


def _prices(model: ModelInfo, now: datetime) -> ModelPrice:
    """Those of today; where they depend on the hour, the dearest: a cost should not be too low."""
    if not isinstance(model.prices, list):
        return model.prices
    of_the_day = [model.get_prices(now.replace(hour=hour, minute=45)) for hour in range(24)]
    return max(of_the_day, key=lambda price: sum(step[-1][1] for step in _rates(price).values()))


def _rates(price: ModelPrice) -> dict[str, list[list[float]]]:
    found = {kind: getattr(price, key) for kind, key in _KINDS.items()}
    return {kind: _steps(rate) for kind, rate in found.items() if rate is not None}


def _steps(rate: Any) -> list[list[float]]:
    from genai_prices.types import TieredPrices

    if not isinstance(rate, TieredPrices):
        return [[0, float(rate)]]
    return [[0, float(rate.base)], *([tier.start, float(tier.price)] for tier in rate.tiers)]


if __name__ == "__main__":
    write(Path(sys.argv[1]), datetime.now(UTC))
