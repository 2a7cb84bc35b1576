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
from typing import Any, Protocol

from supervisor.core.gateway.estimate import FASTEST
from supervisor.core.gateway.events import BatchEnded, BatchHold
from supervisor.core.gateway.fair_queue import FairQueue, Flow
from supervisor.core.gateway.pot import CENT, Never, Pot, Total, Wait, too_dear
from supervisor.core.gateway.sliding_window import SlidingWindow, Slot
from supervisor.core.gateway.ticket import Ticket
from supervisor.core.gateway.types import Agent, NightCap

NIGHT_S = 12 * 3600.0
NIGHT_STEP_S = 600.0
IDLE_S = 3600.0
"""After so long away an agent's last minute is forgotten."""
LEAST_WEIGHT = 0.01
MINUTE_MOST = 60 * FASTEST
DOUBT = 4.0
FEW = 4
"""What the client of one agent sends at once though its cap is small: a turn, its title, two helpers."""


class Demand(Protocol):
    """What asks for room below the caps: a request, or a batch of them."""

    pots: tuple[Any, ...]
    """Those that hold room for it, once it has that."""

    @property
    def bound(self) -> float | None: ...
    @property
    def bound_tokens(self) -> int: ...
    @property
    def model(self) -> str: ...


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


class Budget:
    """One agent: its caps, what it spent, and its requests."""

    __slots__ = (
        "agent", "batches", "capped", "cost_known", "doubts", "held", "in_flight", "money", "pots", "queued", "recent", "seen_at",
        "tokens", "was_held", "weight",
    )  # fmt: skip

    def __init__(self, agent: Agent, pots: tuple[Pot, ...], spent: tuple[float, float] | None) -> None:
        self.recent = SlidingWindow()
        """Tokens charged against limits."""
        self.money, self.tokens = (Purse(one) for one in spent or (0.0, 0.0))
        """`tokens` are input and output without what was read from a cache."""
        self.cost_known = spent is not None
        self.doubts = 0.0
        """By how many tokens the requests in flight may pass in a minute what is expected of them."""
        self.in_flight = 0
        self.batches = 0
        """That live. They are no requests under way: nobody waits until they end."""
        self.queued = 0
        self.held: list[tuple[FairQueue[Any], Flow[Any]]] = []
        """Flows set aside until this budget allows more."""
        self.was_held = False
        """A cap of its own held its next request."""
        self.seen_at = 0.0
        self.meet(agent, pots)

    def meet(self, agent: Agent, pots: tuple[Pot, ...]) -> None:
        """The agent came again, perhaps with other caps. `pots`: those that it shares with others."""
        self.agent, self.pots = agent, pots
        self.weight = max(agent.weight, LEAST_WEIGHT)
        self.capped = agent.capped or agent.tpm_max is not None or any(pot.cap is not None for pot in pots)
        if agent.tpm_max is None:
            self.recent.forgive()

    def verdict(self, ticket: Ticket, now: float) -> Wait | Never | None:
        """Whether its caps let this request go now (None)."""
        return self.by_totals(ticket, now) or self._by_tokens(ticket, now)

    def hold(self, rank: FairQueue[Any], flow: Flow[Any]) -> None:
        """Its requests are set aside until it allows more."""
        self.was_held = True
        self.held.append((rank, flow))

    def open(self, ticket: Ticket, now: float) -> None:
        """It is sent: count what is expected of it, and the most it can cost."""
        self.in_flight += 1
        ticket.counted = ticket.input + ticket.guess.mean_output
        ticket.slot = self._count(ticket.counted, now)
        self.doubts += _doubt(ticket)
        self._reserve(ticket)

    def open_batch(self, batch: BatchHold) -> None:
        """It is made: count the most that it can take and cost."""
        self.batches += 1
        self._reserve(batch)

    def _reserve(self, demand: Demand) -> None:
        self.tokens.bounds += demand.bound_tokens
        if demand.bound is not None:
            self.money.bounds += demand.bound
        demand.pots = self.pots
        for pot in demand.pots:
            pot.open(demand.bound)

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
        self._landed(ticket)
        self._charge(ticket, cost_usd, tokens, now)

    def close_batch(self, batch: BatchHold, cost_usd: float | None, tokens: float | None, now: float) -> None:
        """It has ended, and what it took is known; None as for a request."""
        self.batches -= 1
        self._charge(batch, cost_usd, tokens, now)

    def _charge(self, demand: Demand, cost_usd: float | None, tokens: float | None, now: float) -> None:
        cost = demand.bound if cost_usd is None else max(0.0, cost_usd)
        self._release(demand, cost or 0.0, demand.bound_tokens if tokens is None else tokens)
        if cost is not None:
            self.cost_known = True
            for pot in demand.pots if cost else ():
                pot.spent.add(cost, now)

    def take_back(self, ticket: Ticket) -> None:
        """It was not served: nothing was spent."""
        self.recent.change(ticket.slot, -ticket.counted)
        self._landed(ticket)
        self._release(ticket, 0.0, 0.0)

    def recost(self, usd: float, tokens: float, now: float, surplus: float = 0.0) -> None:
        """What it was charged before the start turned out to be so much more or less. That is in `spent` where a cap needs it. A night was
        charged the bound of what nobody knew: `surplus` is by how much that was more than the charge."""
        if self.agent.capped:
            self.money.spent = max(0.0, self.money.spent + usd)
            self.tokens.spent = max(0.0, self.tokens.spent + tokens)
        crew, *nights = self.pots
        crew.spent.add(usd, now)
        for night in nights:
            night.spent.add(usd - surplus, now)

    def _landed(self, ticket: Ticket) -> None:
        self.in_flight -= 1
        self.doubts = self.doubts - _doubt(ticket) if self.in_flight else 0.0

    def _release(self, demand: Demand, usd: float, tokens: float) -> None:
        last = not (self.in_flight or self.batches)
        self.money.close(demand.bound or 0.0, usd, last=last)
        self.tokens.close(demand.bound_tokens, tokens, last=last)
        for pot in demand.pots:
            pot.close(demand.bound)

    def by_totals(self, demand: Demand, now: float) -> Wait | Never | None:
        """The verdict by what a task and the night may take in all. `Never` also while others are in flight, when it could not go even if
        those took nothing."""
        cap, bound = self.agent.tokens_max, demand.bound_tokens
        if cap is not None and not (room := self.tokens.room(cap, bound, others=self.in_flight + self.batches > 0)):
            return Wait(None) if room is None else Never(_too_many(self.agent.name, cap, self.tokens.spent, bound))
        return self._by_cost(demand, now)

    def _by_cost(self, demand: Demand, now: float) -> Wait | Never | None:
        bound, shared = demand.bound, [pot for pot in self.pots if pot.cap is not None]
        cap = None if bound is None and self.agent.cost_assumed else self.agent.cost_max
        if cap is None and not shared:
            return None
        if bound is None:
            key, model = "cost_max" if cap is not None else shared[0].key, demand.model
            return Never(f'{model} has no known price, so {key} cannot be kept; give it one in the settings: [prices."{model}"]')
        if cap is not None and not (room := self.money.room(cap, bound, others=self.in_flight + self.batches > 0)):
            return Wait(None) if room is None else Never(too_dear(f"cost_max of the task {self.agent.name}", cap, self.money.spent, bound))
        for pot in shared:
            if (verdict := pot.verdict(bound, now)) is not None:
                return verdict
        return None

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
        self.night = Pot("cost_per_night", "the crew", cost_per_night, SlidingWindow(NIGHT_S, NIGHT_STEP_S))
        self.nights: dict[str, Pot] = {}
        """By run, of those with a cap that were heard of."""
        self._spent: dict[str, tuple[float, float]] = {}
        """Dollars and tokens of agents that are not in `budgets`."""
        self._took: dict[str, SlidingWindow] = {}
        """Tokens of agents that did not come since the start."""

    def meet(self, agent: Agent, now: float) -> Budget:
        """Its budget, with the caps that it has now."""
        budget = self.budgets.get(agent.name)
        if budget is None:
            budget = self.budgets[agent.name] = Budget(agent, self._pots(agent), self._spent.pop(agent.name, None))
            budget.recent = self._took.pop(agent.name, budget.recent)
        elif budget.agent is not agent:
            budget.meet(agent, self._pots(agent))
        budget.seen_at = now
        return budget

    def _pots(self, agent: Agent) -> tuple[Pot, ...]:
        if agent.night is None:
            return (self.night,)
        pot = self.night_of(agent.night, 0.0)
        pot.cap = agent.night.cost_max
        return self.night, pot

    def night_of(self, night: NightCap, spent: float) -> Pot:
        """What a night spends; `spent` before it was heard of. What is known already is not told again."""
        made = Pot("cost_max", f"the night {night.run}", night.cost_max, Total(spent))
        return self.nights.setdefault(night.run, made)

    def open_batch(self, batch: BatchHold, now: float, *, checked: bool = True) -> Wait | Never | None:
        """Reserve what a batch can take, None; or say why its caps do not let it be made. Not `checked`, it is made already."""
        budget = self.meet(batch.agent, now)
        if checked and (refused := budget.by_totals(batch, now)) is not None:
            return refused
        budget.open_batch(batch)
        return None

    def close_batch(self, ended: BatchEnded, now: float) -> Budget:
        """It has ended. Its agent may have come again since, with other caps."""
        budget = self.budgets[ended.batch.agent.name]
        budget.close_batch(ended.batch, ended.cost_usd, ended.tokens, now)
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

    def recost(self, agent: str, usd: float, tokens: float, now: float, surplus: float = 0.0) -> None:
        """What its task was charged turned out to be so much more or less, see `Budget.recost`. For agents that came already."""
        if agent in self.budgets:
            self.budgets[agent].recost(usd, tokens, now, surplus)

    def past(self, agent: str, usd: float, tokens: float, now: float) -> None:
        """Count what a task took past the gateway, against every cap that its requests count against."""
        if agent in self.budgets:
            self.budgets[agent].recost(usd, tokens, now)
            return
        if agent in self._spent:
            money, taken = self._spent[agent]
            self._spent[agent] = money + usd, taken + tokens
        self.night.spent.add(usd, now)
        if night := self.nights.get(agent.partition("/")[0]):
            night.spent.add(usd, now)

    def took(self, agent: str, tokens: float, at: float) -> None:
        """What it took before the start, at a moment that is not before the last one told. For agents that did not come yet."""
        self._took.setdefault(agent, SlidingWindow()).add(tokens, at)

    def cap_night(self, usd: float | None) -> None:
        """Another cap from now on."""
        self.night.cap = usd
        for budget in self.budgets.values():
            budget.meet(budget.agent, budget.pots)

    def freed(self, budget: Budget, demand: Demand) -> list[Budget]:
        """The budgets that may let more through, now that this request or batch of `budget` ended."""
        freed = [budget] if budget.held else []
        for pot in demand.pots:
            freed += pot.held
            pot.held = []
        return list(dict.fromkeys(freed))

    def forget(self, now: float) -> None:
        """Drop who has been away for an hour, and minutes from before the start."""
        self._took.clear()
        for name, budget in list(self.budgets.items()):
            if not (budget.in_flight or budget.batches or budget.queued) and now - budget.seen_at > IDLE_S:
                if budget.cost_known or budget.tokens.spent:
                    self._spent[name] = budget.money.spent, budget.tokens.spent
                del self.budgets[name]


def _doubt(ticket: Ticket) -> float:
    """Tokens by which its output may pass in a minute what is expected of it."""
    asked = ticket.event.max_tokens
    return MINUTE_MOST if asked is None else min(MINUTE_MOST, max(0.0, asked - ticket.guess.mean_output))


def _too_many(task: str, cap: float, spent: float, bound: float) -> str:
    took = f"{spent:,.0f} are taken, and this request can take at most {bound:,.0f}; a smaller max_tokens lowers that"
    return f"tokens_max of the task {task} is {cap:,.0f}: {took}"
