"""What the status page says, from the queue as it is now and the account's last minutes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from supervisor.gateway.account.reading import Figures, Window
from supervisor.gateway.admission.budget import Budget, Budgets, Pot
from supervisor.gateway.admission.types import AgentView, PoolView, TrafficView
from supervisor.kernel.errors import NightcrewError


def status(view: TrafficView, window: Window, problems: Iterable[NightcrewError]) -> dict[str, Any]:
    """`agents`, `pools`, `lanes`, `figures` and `problems` as JSON has them. Figures are None where nothing ended in the window."""
    return {
        "agents": [_agent(one, window.agents.get(one.name)) for one in view.agents],
        "pools": [_pool(one, window.pools.get(str(one.key))) for one in view.pools],
        "lanes": [
            {"lane": str(lane), "queued": queued, "delay_s": view.delay_s.get(lane, 0.0)}
            for lane, queued in sorted(view.queued.items(), key=str)
        ],
        "figures": {"window_s": window.seconds, **_figures(window.total)},
        "problems": [problem.line() for problem in problems],
    }


def _agent(view: AgentView, figures: Figures | None) -> dict[str, Any]:
    return {**asdict(view), "task_class": str(view.task_class), "figures": _figures(figures) if figures else None}


def _pool(view: PoolView, figures: Figures | None) -> dict[str, Any]:
    return {
        **asdict(view),
        "key": str(view.key),
        "account": view.key.account,
        "lane": str(view.key.lane),
        "breaker": str(view.breaker),
        "figures": _figures(figures) if figures else None,
    }


def _figures(figures: Figures) -> dict[str, Any]:
    rates: Mapping[str, float | None] = {
        "error_rate": figures.error_rate,
        "cache_hits": figures.cache_hits,
        "tokens_per_usd": figures.tokens_per_usd,
    }
    return {**asdict(figures), "models": [asdict(one) for one in figures.models], **rates}


def caps(crew: Budgets, now: float) -> dict[str, Any]:
    """What is shared, in US dollars: the crew's cap of 12 hours, and by run those of the nights."""
    spent = None if crew.night.cap is None else crew.night.spent.sum(now)
    nights = {run: _night(pot, crew.budgets.values()) for run, pot in crew.nights.items()}
    return {"cost_per_night": crew.night.cap, "night_usd": spent, "nights": nights}


def _night(pot: Pot, agents: Iterable[Budget]) -> dict[str, Any]:
    """As `core.night.NightSpent` has it, and its cap."""
    tasks = {one.agent.name: one.money.spent + one.money.bounds for one in agents if pot in one.pots}
    return {"cap": pot.cap, "usd": pot.spent.sum(0.0), "reserved": pot.bounds, "refused": pot.refused, "tasks": tasks}
