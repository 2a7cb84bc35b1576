"""How many agents the machine and the models carry, what binds, and what each agent takes now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervisor.core.states import TaskState
from supervisor.faces import capacity, usage
from supervisor.faces.web.models.asked import opened
from supervisor.host import cores
from supervisor.host.paths import Home
from supervisor.ledger import queries
from supervisor.ledger.queries import TaskView

AGENTS = 100
Shape = dict[str, Any]


def resources(home: Home, found: Mapping[str, Any] | None, trouble: str, reserve: int | None) -> Shape:
    """`capacity` as `nightcrew capacity --json` has it and its `lines`, None and `trouble` while no supervisor answers (`found` is its
    answer); `cores` of this machine, where `reserve` is the settings' word; `agents` that run, each with what it takes."""
    with opened(home.ledger) as db:
        running = [view for view in queries.foremost(db, 0) if view.state is TaskState.RUNNING]
    return {
        "capacity": None if found is None else capacity.printed(found),
        "lines": [] if found is None else list(capacity.lines(found)),
        "trouble": trouble,
        "cores": machine(reserve),
        "agents": [_agent(view) for view in running[:AGENTS]],
        "more_agents": max(0, len(running) - AGENTS),
    }


def machine(reserve: int | None) -> Shape:
    """Each usable core with its CPU numbers, its node, and whether it is kept for the supervisor."""
    found = cores.topology()
    kept = set(cores.plan(found, reserve).supervisor)
    return {
        "cores": [{"cpus": list(core.cpus), "node": core.node, "supervisor": bool(kept & set(core.cpus))} for core in found],
        "pinned": bool(kept),
    }


def _agent(view: TaskView) -> Shape:
    account = view.account or {}
    return {
        "id": view.id, "name": view.name, "title": view.title, "kind": view.kind, "epoch": view.epoch, "class": view.task_class,
        "memory": account.get("memory"), "peak_memory": account.get("peak_memory"), "expected_memory": view.memory_expected,
        "cpu_s": account.get("cpu_s"), "tool_cpu_s": account.get("tool_cpu_s"), "wall_s": account.get("wall_s"),
        "facts": [[name, text] for name, text in usage.facts(view)],
    }  # fmt: skip
