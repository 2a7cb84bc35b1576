"""The default model, and what is known of models: by genai-prices, which has what the providers' pages say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from supervisor.core.gateway.types import Usage

DEFAULT_MODEL = "claude-sonnet-5-5"
CONTEXT_UNKNOWN = 128_000
"""Tokens taken for a model that nobody knows. When it holds less, its server refuses a request as too long, and that is learned."""


@dataclass(frozen=True, slots=True)
class Model:
    """One model. `context` is in tokens."""

    name: str
    context: int
    cost: Callable[[Usage], float | None]
    """US dollars; None when its price is not known. A user's own prices, which the gateway counts by, are not among them."""

    @property
    def has_price(self) -> bool:
        """Whether `cost` knows."""
        return self.cost(Usage()) is not None


def find(name: str, now: datetime) -> Model:
    """The model of that name with the prices of `now`."""
    import genai_prices  # 0.4 s where no warm process has it already
    from genai_prices import data_snapshot

    try:
        _, known = data_snapshot.get_snapshot().find_provider_model(name, None, "anthropic", None)
    except LookupError:
        return Model(name, CONTEXT_UNKNOWN, lambda _: None)
    prices = known.get_prices(now)

    def cost(usage: Usage) -> float:
        total = usage.input + usage.cache_read + usage.cache_write
        counted = genai_prices.Usage(
            input_tokens=total, cache_write_tokens=usage.cache_write, cache_read_tokens=usage.cache_read, output_tokens=usage.output
        )
        return float(prices.calc_price(counted)["total_price"])

    return Model(name, known.context_window or CONTEXT_UNKNOWN, cost)
