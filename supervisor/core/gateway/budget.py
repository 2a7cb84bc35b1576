"""What one agent may spend: tokens per minute, dollars and tokens per task; and what the crew may spend in 12 hours.

A cap holds its own agent back and nobody else. A request counts as what it is expected to take, and is corrected when that is known, as in
a pool, but with no caution for the output: what it was short counts from then on, and until it is paid for by minutes that hold no more
than the cap, nothing goes. So over time an agent takes at most its cap. A single request larger than the cap goes alone, when the minute
before it was empty.

One minute can hold more: what the answers under way put out beyond what was expected of them is not known before they end. An answer grows
by at most `MINUTE_MOST` tokens in a minute, and not above its `max_tokens`; by how much all of one agent's together may be above what is
expected is bounded by `DOUBT` caps, or `FEW` answers where that is more. So a minute holds at most 5 caps; below a cap of 18,000 that is
the cap and 72,000. Less would hold back agents whose answers are as they were: to use a cap of C with answers of which each takes 75 tokens
a second, input included, C / 60 / 75 have to be under way at once, and that many may be off by 18,000 * C / 4,500 = 4 C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from supervisor.core.gateway.estimate import FASTEST
from supervisor.core.gateway.fair_queue import FairQueue, Flow
from supervisor.core.gateway.sliding_window import SlidingWindow, Slot
from supervisor.core.gateway.ticket import Ticket
from supervisor.core.gateway.types import Agent

NIGHT_S = 12 * 3600.0
NIGHT_STEP_S = 600.0
IDLE_S = 3600.0
"""After so long away an agent's last minute is forgotten."""
LEAST_WEIGHT = 0.01
MINUTE_MOST = 60 * FASTEST
DOUBT = 4.0
FEW = 4
"""What the client of one agent sends at once though its cap is small: a turn, its title, two helpers."""
CENT = 1e-9
"""Dollars: what float sums may be off."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now: at `until`, or (None) when a request of the same cap has ended."""

    until: float | None
    night: bool = False
    """The cap is the crew's, not its agent's."""


@dataclass(frozen=True, slots=True)
class Never:
    """It can never be sent; `why` is for the person whose agent stops."""

    why: str


@dataclass(slots=True)
class Purse:
    """Dollars or tokens of one task: what was spent, and the most that its requests in flight can take."""

    spent: float = 0.0
    bounds: float = 0.0

    def room(self, cap: float, bound: float, *, others: bool) -> bool | None:
        """Whether the most that one more can take fits below the cap; None: it may when the `others` in flight have ended."""
        if self.spent + self.bounds + bound <= cap + CENT:
            return True
        return None if others and self.spent + bound <= cap + CENT else False

    def close(self, bound: float, took: float, *, last: bool) -> None:
        """One in flight is over; `last`: no other is."""
        self.bounds = 0.0 if last else self.bounds - bound  # float rounding does not pile up
        self.spent += took


class Night:
    """The crew's dollars of the last 12 hours."""

    def __init__(self, cap: float | None) -> None:
        self.cap = cap
        self.spent = SlidingWindow(NIGHT_S, NIGHT_STEP_S)
        self.bounds = 0.0
        """The most that the requests in flight can cost."""
        self.in_flight = 0
        self.held: list[Budget] = []
        """Agents whose next request waits until one in flight ends."""


class Budget:
    """One agent: its caps, what it spent, and its requests."""

    __slots__ = (
        "agent", "capped", "cost_known", "doubts", "held", "in_flight", "money", "night", "queued", "recent", "seen_at", "tokens", "weight",
    )  # fmt: skip

    def __init__(self, agent: Agent, night: Night, spent: tuple[float, float] | None) -> None:
        self.night = night
        self.recent = SlidingWindow()
        """Tokens charged against limits."""
        self.money, self.tokens = (Purse(one) for one in spent or (0.0, 0.0))
        """`tokens` are input and output without what was read from a cache."""
        self.cost_known = spent is not None
        self.doubts = 0.0
        """By how many tokens the requests in flight may pass in a minute what is expected of them."""
        self.in_flight = 0
        self.queued = 0
        self.held: list[tuple[FairQueue[Any], Flow[Any]]] = []
        """Flows set aside until this budget allows more."""
        self.seen_at = 0.0
        self.meet(agent)

    def meet(self, agent: Agent) -> None:
        """The agent came again, perhaps with other caps."""
        self.agent = agent
        self.weight = max(agent.weight, LEAST_WEIGHT)
        self.capped = agent.capped or agent.tpm_max is not None or self.night.cap is not None
        if agent.tpm_max is None:
            self.recent.forgive()

    def verdict(self, ticket: Ticket, now: float) -> Wait | Never | None:
        """Whether its caps let this request go now (None)."""
        return self.by_totals(ticket, now) or self._by_tokens(ticket, now)

    def open(self, ticket: Ticket, now: float) -> None:
        """It is sent: count what is expected of it, and the most it can cost."""
        self.in_flight += 1
        ticket.counted = ticket.input + ticket.guess.mean_output
        ticket.slot = self._count(ticket.counted, now)
        self.doubts += _doubt(ticket)
        self.tokens.bounds += ticket.event.bound_tokens
        if ticket.bound is not None:
            self.money.bounds += ticket.bound
            self.night.bounds += ticket.bound
        self.night.in_flight += 1

    def correct(self, ticket: Ticket, now: float, *, over: bool) -> None:
        """Correct the charge: overestimates are removed, underestimates count now."""
        more = ticket.input + (ticket.output if over else ticket.guess.mean_output) - ticket.counted
        ticket.counted += more
        if more > 0:
            self._count(more, now)
        elif more:
            self.recent.change(ticket.slot, more)

    def close(self, ticket: Ticket, cost_usd: float | None, tokens: float | None, now: float) -> None:
        """It is over. Where its cost or tokens are not known, their bound is charged."""
        cost = ticket.bound if cost_usd is None else max(0.0, cost_usd)
        self._release(ticket, cost or 0.0, ticket.event.bound_tokens if tokens is None else tokens)
        if cost is not None:
            self.cost_known = True
            if cost:
                self.night.spent.add(cost, now)

    def take_back(self, ticket: Ticket) -> None:
        """It was not served: nothing was spent."""
        self.recent.change(ticket.slot, -ticket.counted)
        self._release(ticket, 0.0, 0.0)

    def recost(self, usd: float, tokens: float, now: float) -> None:
        """What it was charged before the start turned out to be so much more or less. That is in `spent` where a cap needs it."""
        if self.agent.capped:
            self.money.spent = max(0.0, self.money.spent + usd)
            self.tokens.spent = max(0.0, self.tokens.spent + tokens)
        self.night.spent.add(usd, now)

    def _release(self, ticket: Ticket, usd: float, tokens: float) -> None:
        self.in_flight -= 1
        self.night.in_flight -= 1
        bound = ticket.bound or 0.0
        self.money.close(bound, usd, last=not self.in_flight)
        self.tokens.close(ticket.event.bound_tokens, tokens, last=not self.in_flight)
        self.doubts = self.doubts - _doubt(ticket) if self.in_flight else 0.0
        self.night.bounds = self.night.bounds - bound if self.night.in_flight else 0.0

    def by_totals(self, ticket: Ticket, now: float) -> Wait | Never | None:
        """The verdict by what a task and the night may take in all. `Never` also while others are in flight, when it could not go even if
        those took nothing."""
        cap, bound = self.agent.tokens_max, ticket.event.bound_tokens
        if cap is not None and not (room := self.tokens.room(cap, bound, others=self.in_flight > 0)):
            return Wait(None) if room is None else Never(_too_many(self.agent.name, cap, self.tokens.spent, bound))
        return self._by_cost(ticket, now)

    def _by_cost(self, ticket: Ticket, now: float) -> Wait | Never | None:
        cap, night = self.agent.cost_max, self.night
        if cap is None and night.cap is None:
            return None
        bound = ticket.bound
        if bound is None:
            key, model = "cost_per_night" if cap is None else "cost_max", ticket.event.model
            return Never(f'{model} has no known price, so {key} cannot be kept; give it one in the settings: [prices."{model}"]')
        if cap is not None and not (room := self.money.room(cap, bound, others=self.in_flight > 0)):
            return Wait(None) if room is None else Never(_too_dear(f"cost_max of the task {self.agent.name}", cap, self.money.spent, bound))
        if night.cap is None or (spent := night.spent.sum(now)) + night.bounds + bound <= night.cap + CENT:
            return None
        if night.in_flight and spent + bound <= night.cap + CENT:
            return Wait(None, night=True)
        return Never(_too_dear("cost_per_night of the crew", night.cap, spent, bound))

    def _by_tokens(self, ticket: Ticket, now: float) -> Wait | None:
        cap = self.agent.tpm_max
        if cap is None:
            return None
        room = max(0.0, cap - ticket.guess.warm - ticket.guess.mean_output)
        if self.recent.sum(now) > room:
            return Wait(self.recent.at_most_at(room, now))
        if self.in_flight >= FEW and self.doubts + _doubt(ticket) > DOUBT * cap:
            return Wait(None)
        return None

    def _count(self, tokens: float, now: float) -> Slot:
        cap = self.agent.tpm_max
        return self.recent.add(tokens, now) if cap is None else self.recent.add_below(max(cap, 1.0), tokens, now)


class Budgets:
    """The budgets of all agents that were ever heard of, and the crew's night.

    What an agent spent is remembered for good, the rest until it has been away for an hour.
    """

    def __init__(self, cost_per_night: float | None) -> None:
        self.budgets: dict[str, Budget] = {}
        self.night = Night(cost_per_night)
        self._spent: dict[str, tuple[float, float]] = {}
        """Dollars and tokens of agents that are not in `budgets`."""
        self._took: dict[str, SlidingWindow] = {}
        """Tokens of agents that did not come since the start."""

    def meet(self, agent: Agent, now: float) -> Budget:
        """Its budget, with the caps that it has now."""
        budget = self.budgets.get(agent.name)
        if budget is None:
            budget = self.budgets[agent.name] = Budget(agent, self.night, self._spent.pop(agent.name, None))
            budget.recent = self._took.pop(agent.name, budget.recent)
        elif budget.agent is not agent:
            budget.meet(agent)
        budget.seen_at = now
        return budget

    def most_waiting(self) -> int:
        """How many requests wait of whoever has the most."""
        return max((budget.queued for budget in self.budgets.values()), default=0)

    def spent(self, agent: str, usd: float, tokens: float = 0.0) -> None:
        """What its task has taken so far."""
        if budget := self.budgets.get(agent):
            budget.money.spent, budget.tokens.spent = usd, tokens
        else:
            self._spent[agent] = usd, tokens

    def recost(self, agent: str, usd: float, tokens: float, now: float) -> None:
        """What its task was charged turned out to be so much more or less. For agents that came already."""
        if agent in self.budgets:
            self.budgets[agent].recost(usd, tokens, now)

    def took(self, agent: str, tokens: float, at: float) -> None:
        """What it took before the start, at a moment that is not before the last one told. For agents that did not come yet."""
        self._took.setdefault(agent, SlidingWindow()).add(tokens, at)

    def cap_night(self, usd: float | None) -> None:
        """Another cap from now on."""
        self.night.cap = usd
        for budget in self.budgets.values():
            budget.meet(budget.agent)

    def freed(self, budget: Budget) -> list[Budget]:
        """The budgets that may let more through, now that one request of `budget` ended."""
        if not self.night.held:
            return [budget] if budget.held else []
        freed = [budget, *self.night.held]
        self.night.held = []
        return freed

    def forget(self, now: float) -> None:
        """Drop who has been away for an hour, and minutes from before the start."""
        self._took.clear()
        for name, budget in list(self.budgets.items()):
            if not budget.in_flight and not budget.queued and now - budget.seen_at > IDLE_S:
                if budget.cost_known or budget.tokens.spent:
                    self._spent[name] = budget.money.spent, budget.tokens.spent
                del self.budgets[name]


def _doubt(ticket: Ticket) -> float:
    """Tokens by which its output may pass in a minute what is expected of it."""
    asked = ticket.event.max_tokens
    return MINUTE_MOST if asked is None else min(MINUTE_MOST, max(0.0, asked - ticket.guess.mean_output))


def _too_dear(what: str, cap: float, spent: float, bound: float) -> str:
    return f"{what} is ${cap:.2f}: ${spent:.2f} is spent, and this request can cost at most ${bound:.2f}; a smaller max_tokens lowers that"


def _too_many(task: str, cap: float, spent: float, bound: float) -> str:
    took = f"{spent:,.0f} are taken, and this request can take at most {bound:,.0f}; a smaller max_tokens lowers that"
    return f"tokens_max of the task {task} is {cap:,.0f}: {took}"
