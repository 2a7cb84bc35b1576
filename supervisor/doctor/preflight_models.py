"""Which API each kind of agent speaks, and whether the gateway serves, and prices, the models that a plan names."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from agents.builtin.models import DEFAULT_MODEL
from agents.kinds import kinds
from supervisor.core.gateway.settings import GatewaySettings
from supervisor.core.gateway.types import Agent, Api, Usage
from supervisor.core.kind import Kind
from supervisor.core.night import NightTerms
from supervisor.core.spec import TaskSpec
from supervisor.core.states import TaskClass
from supervisor.doctor.check_context import CheckContext
from supervisor.doctor.examine import Check
from supervisor.doctor.finding import Finding, fail, ok, unknown
from supervisor.gateway.prices import Prices
from supervisor.gateway.routing import Way, way

_SPEAKS = {
    "claude": (Api.ANTHROPIC,),
    "builtin": (Api.ANTHROPIC,),
    "codex": (Api.OPENAI,),
    "qwen": (Api.OPENAI,),
    "gemini": (Api.GEMINI,),
}
"""By a kind's protocol; the others can be set to speak any."""


def spoken(kind: Kind) -> tuple[Api, ...]:
    """The APIs that its agents may speak."""
    return _SPEAKS.get(kind.protocol, tuple(Api))


def keyed(models: GatewaySettings, kind: Kind) -> bool:
    """Whether the gateway has a credential of its own for an API that the kind speaks."""
    return any(upstream.api in spoken(kind) and upstream.key.kind != "client" for upstream in models.upstreams)


def asked(task: TaskSpec) -> str:
    """The full name of the model that its requests will have; empty: its client chooses, as it does for a word like `sonnet`."""
    kind = kinds()[task.kind]
    if not kind.is_agent:
        return ""
    name = task.model or (DEFAULT_MODEL if kind.protocol == "builtin" else "")
    return name if kind.protocol != "claude" or any(letter.isdigit() for letter in name) else ""


def way_of(models: GatewaySettings, api: Api, task: TaskSpec) -> Way:
    """Where the gateway would send its requests, every upstream taken for usable."""
    agent = Agent(task.name, 1, TaskClass(task.task_class), size=task.size or "")
    return way(models, api, asked(task), {upstream.name for upstream in models.upstreams}, agent)


def checks(models: GatewaySettings, tasks: Sequence[TaskSpec], terms: NightTerms, prices: Prices) -> dict[str, Check]:
    """One for each model that the plan names, by its name. Nothing is said of an agent that asks its provider by itself."""
    tasks_of: dict[str, list[TaskSpec]] = {}
    for task in tasks:
        if asked(task) and any(upstream.api in spoken(kinds()[task.kind]) for upstream in models.upstreams):
            tasks_of.setdefault(asked(task), []).append(task)
    return {name: functools.partial(_model, models, same, terms, prices) for name, same in tasks_of.items()}


def _model(models: GatewaySettings, tasks: Sequence[TaskSpec], terms: NightTerms, prices: Prices, _context: CheckContext) -> Finding:
    """The worst that is so of one of the tasks, which all name the same model."""
    found = [_of_task(models, task, terms, prices) for task in tasks]
    return next((one for one in found if one.state == "fail"), next((one for one in found if one.state == "unknown"), found[0]))


def _of_task(models: GatewaySettings, task: TaskSpec, terms: NightTerms, prices: Prices) -> Finding:
    name, apis = asked(task), spoken(kinds()[task.kind])
    if len(apis) > 1:
        return unknown(f"which API {task.name} asks, its own settings say", "so nobody knows who serves it")
    to = way_of(models, apis[0], task)
    if not to.upstreams:
        return fail(
            "no upstream serves it", f"every request of {task.name} is refused", "models of [upstream], a [[route]], or another model"
        )
    served = f"served by {', '.join(to.upstreams)}"
    cap = (
        "the night"
        if terms.cost_max
        else "the crew"
        if models.policy.cost_per_night
        else task.name
        if task.cost_max and "cost_max" not in task.assumed
        else ""
    )
    if prices.cost(to.as_model or name, Usage()) is not None or not cap:
        return ok(served)
    if prices.trouble:
        return unknown(f"{served}; the prices cannot be read", f"of a model without a price the cap of {cap} refuses every request")
    return fail(
        f"{served}; nobody knows its price", f"the cap of {cap} refuses every request of it", f'[prices."{name}"] in config.toml, or no cap'
    )
