"""All agents that were ever heard of: their budgets, and the crew's night."""

from __future__ import annotations

from supervisor.core.gateway.budget import Budget, Night
from supervisor.core.gateway.sliding_window import SlidingWindow
from supervisor.core.gateway.types import Agent

IDLE_S = 3600.0


class Agents:
    """Budgets by agent. What an agent spent is remembered for good, the rest until it has been away for an hour."""

    def __init__(self, cost_per_night: float | None) -> None:
        self.budgets: dict[str, Budget] = {}
        self.night = Night(cost_per_night)
        self._spent: dict[str, float] = {}
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

    def spent(self, agent: str, usd: float) -> None:
        """What its task has cost so far."""
        if agent in self.budgets:
            self.budgets[agent].spent = usd
        else:
            self._spent[agent] = usd

    def recost(self, agent: str, usd: float, now: float) -> None:
        """What its task was charged turned out to be so much more or less. For agents that came already."""
        if agent in self.budgets:
            self.budgets[agent].recost(usd, now)

    def took(self, agent: str, tokens: float, at: float) -> None:
        """What it took before the start, at a moment that is not before the last one told. For agents that did not come yet."""
        self._took.setdefault(agent, SlidingWindow()).add(tokens, at)

    def cap_night(self, usd: float | None) -> None:
        """Another cap from now on."""
        self.night.cap = usd
        for budget in self.budgets.values():
            budget.meet(budget.agent)

    def freed(self, budget: Budget) -> list[Budget]:
        """Whose caps may let more through, now that one request of `budget` ended."""
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
                if budget.cost_known:
                    self._spent[name] = budget.spent
                del self.budgets[name]
