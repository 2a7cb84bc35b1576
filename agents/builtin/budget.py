"""When a request is to be the last one: the budgets of a run. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may take; 0 is no limit. `tokens` are input and output without what was read from a cache, as limits count them."""

    steps: int = 0
    """Requests to the model, the last one included."""
    tokens: int = 0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Spent:
    """What was taken: by the whole run, or by its newest request."""

    steps: int = 0
    tokens: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.steps + other.steps, self.tokens + other.tokens, self.cost_usd + other.cost_usd)


WRAP_UP_TOKENS = 4_000
"""A request whose answer may have no more than this is the last one: it says what was done."""
LEAST_TOKENS = 256


def output_room(budget: Budget, spent: Spent, input_tokens: int, input_usd: float, output_usd: float) -> int | None:
    """The most tokens that the answer to the next request may have below the budget, whatever its input turns out to be; None: any number.
    Whoever holds the budget for us refuses a request that could pass it.

    `input_tokens` and `input_usd` are the most that its input can be and cost, `output_usd` what a token of output costs.
    """
    rooms = []
    if budget.tokens:
        rooms.append(budget.tokens - spent.tokens - input_tokens)
    if budget.cost_usd and output_usd:
        rooms.append(int((budget.cost_usd - spent.cost_usd - input_usd) / output_usd))
    return min(rooms, default=None)


def reached(budget: Budget, spent: Spent, newest: Spent) -> str:
    """`steps`, `tokens` or `cost` when the next request is to be the last, else nothing.

    Steps are exact. Of tokens and costs nobody knows what a request will take, so it is the last one once two more like the newest would
    not fit; one that is much larger than the one before can pass the budget by what it is larger.
    """
    if budget.steps and spent.steps + 1 >= budget.steps:
        return "steps"
    if budget.tokens and spent.tokens + 2 * newest.tokens >= budget.tokens:
        return "tokens"
    if budget.cost_usd and spent.cost_usd + 2 * newest.cost_usd >= budget.cost_usd:
        return "cost"
    return ""
