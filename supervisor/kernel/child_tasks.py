"""What an agent may add to the crew: tasks below its own, within what its own task may do and spend.

A child never has more than its parent: not a lower isolation tier, not a wider network, not other graphics processors, tools or variables,
no looser limit, no higher priority. What the agent does not say is its parent's. Counts and dollars are taken out of the parent's own:
a child that may add tasks itself counts with all of those, and its `cost_max` is no longer its parent's to spend. docs/safety.md has the
rule in words.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from supervisor.kernel import leases
from supervisor.kernel.errors import BudgetSpent, Refused
from supervisor.kernel.format import money
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import TaskClass

RETRIES_MAX = 10
_CAPS = ("timeout_s", "memory_max", "disk_max", "processes_max", "cpu_max")
"""Limits of a `TaskSpec` of which 0 is none: each holds for the child by itself."""
_OURS = ("params", "snapshot", "snapshot_id", "cores", "submitter", "deadline")
"""What an agent cannot choose. Variables say where caches and homes lie, which a sandbox opens for writing; a snapshot runs commands."""
_URGENCY = tuple(TaskClass)


@dataclass(frozen=True, slots=True)
class Parent:
    """The attempt whose agent adds a task, and what it has used up."""

    task: str
    epoch: int
    spec: TaskSpec
    tier: int
    """The isolation tier that it runs in."""
    takes_prompt: bool
    """Its kind is an agent with permissions of its own, and no plain command."""
    added: int = 0
    """Tasks below it, with those that its children may still add."""
    given_usd: float = 0.0
    """Sum of its children's `cost_max`."""
    spent_usd: float = 0.0
    """What it has cost itself."""

    @property
    def limited(self) -> bool:
        """Whether its own command line keeps it from tools that a plain command could use."""
        return self.takes_prompt and (self.spec.allow is not None or self.tier == 0)


def child_key(parent: str, key: str) -> str:
    """The idempotency key of the run that holds a child: who resumes or retries the parent and adds it again finds it."""
    return f"child:{parent}:{key}"


def child(parent: Parent, asked: TaskSpec, given: Collection[str]) -> TaskSpec:
    """The task as it will be. `given`: the fields that the agent itself said, named as in `TaskSpec`; all others are the parent's.

    Raises Refused with the reason for whatever would be more than the parent has, and BudgetSpent when no dollars are left.
    """
    _count(parent, asked)
    if asked.interactive or asked.kind == "terminal":
        raise _no(asked, "no person would sit at it; only kinds that work by themselves can be added")
    if asked.retries > RETRIES_MAX:
        raise _no(asked, f"retries is at most {RETRIES_MAX}")
    network = _network(parent, asked, given)
    if why := leases.why_not(asked.paths, parent.spec.paths):
        raise _no(asked, f"of its paths {why}")
    changes: dict[str, Any] = {name: getattr(parent.spec, name) for name in _OURS}
    changes |= {name: _capped(asked, name, getattr(parent.spec, name)) for name in _CAPS}
    made = replace(
        asked,
        **changes,
        network=network,
        sandbox=_sandbox(parent, asked, limited=network is not True),
        gpus=_gpus(parent, asked, given),
        allow=_tools(parent, asked),
        weight=_at_most(asked, "weight", parent.spec.weight, given),
        priority=_at_most(asked, "priority", parent.spec.priority, given),
        task_class=_task_class(parent, asked, given),
        tpm_max=_capped(asked, "tpm_max", -(-parent.spec.tpm_max // parent.spec.children_max)),
        tokens_max=_capped(asked, "tokens_max", -(-parent.spec.tokens_max // parent.spec.children_max)),
        engine_seconds_max=_capped(asked, "engine_seconds_max", parent.spec.engine_seconds_max / parent.spec.children_max),
        cost_max=_cost(parent, asked),
        depth_max=_depth(parent, asked),
        environment="",
        together="",
        parent=parent.task,
        parent_epoch=parent.epoch,
    )
    return replace(made, assumed=tuple(name for name in asked.assumed if not getattr(parent.spec, name)))


def _no(asked: TaskSpec, why: str) -> Refused:
    return Refused("not added", on=asked.name, why=why, kept="what was added before")


def _count(parent: Parent, asked: TaskSpec) -> None:
    most = parent.spec.children_max
    if not most:
        raise _no(asked, "its task may add none: it has no children_max")
    if parent.added + 1 + asked.children_max > most:
        more = f", and this one would be {1 + asked.children_max} with those that it may add" if asked.children_max else ""
        raise _no(asked, f"children_max of {parent.task} is {most}, and {parent.added} are taken{more}")


def _depth(parent: Parent, asked: TaskSpec) -> int:
    most = parent.spec.depth_max - 1
    if not asked.children_max and not asked.depth_max:
        return 0
    if most < 1 or asked.depth_max > most:
        raise _no(asked, f"depth_max of {parent.task} is {parent.spec.depth_max}, so its children have at most {most}")
    return asked.depth_max or 1


def _capped(asked: TaskSpec, name: str, most: Any) -> Any:
    """A limit of which 0 is none."""
    wanted = getattr(asked, name)
    if most and wanted > most:
        if name in asked.assumed:
            return most
        raise _no(asked, f"its {name.removesuffix('_s')} is {wanted:g}, and {most:g} is the most that it can be given")
    return wanted or most


def _at_most(asked: TaskSpec, name: str, most: Any, given: Collection[str]) -> Any:
    if name not in given:
        return most
    if getattr(asked, name) > most:
        raise _no(asked, f"its {name} is {getattr(asked, name):g}, its parent's {most:g}")
    return getattr(asked, name)


def _task_class(parent: Parent, asked: TaskSpec, given: Collection[str]) -> TaskClass:
    if "task_class" not in given:
        return parent.spec.task_class
    if _URGENCY.index(asked.task_class) < _URGENCY.index(parent.spec.task_class):
        raise _no(asked, f"its class is {asked.task_class}, which is more urgent than its parent's, {parent.spec.task_class}")
    return asked.task_class


def _sandbox(parent: Parent, asked: TaskSpec, *, limited: bool) -> int | None:
    """None only below a parent without a sandbox: then it is what the settings say. Below one whose command line keeps it from tools there
    is none: in a sandbox its kind could use them all."""
    if parent.limited and not parent.tier:
        if asked.sandbox or limited:
            raise _no(asked, "its parent may not use every tool and is in tier 0; in a sandbox this one could use more")
        return 0
    if asked.sandbox is not None and asked.sandbox < parent.tier:
        raise _no(asked, f"sandbox = {asked.sandbox} is less than the tier {parent.tier} of its parent")
    least = max(parent.tier, asked.sandbox or 0, 2 if limited else 0)
    return least if least or asked.sandbox is not None else None


def _network(parent: Parent, asked: TaskSpec, given: Collection[str]) -> bool | tuple[str, ...]:
    own, wanted = parent.spec.network, asked.network
    if "network" not in given or own == wanted:
        return own
    if wanted is False or own is True:
        return wanted
    hosts = () if wanted is True or own is False else tuple(host for host in wanted if not _covered(host, own))
    if wanted is True or own is False or hosts:
        raise _no(asked, f"its parent's network does not reach {', '.join(hosts) or 'that far'}")
    return wanted


def _covered(host: str, allowed: Sequence[str]) -> bool:
    return any(host == name or (name.startswith("*.") and host.removeprefix("*").endswith(name[1:])) for name in allowed)


def _gpus(parent: Parent, asked: TaskSpec, given: Collection[str]) -> bool | tuple[int, ...]:
    own, wanted = parent.spec.gpus, asked.gpus
    if "gpus" not in given or own == wanted:
        return own
    if wanted is False or own is True:
        return wanted
    if wanted is True or own is False or not set(wanted) <= set(own):
        raise _no(asked, "its parent does not see those graphics processors")
    return wanted


def _tools(parent: Parent, asked: TaskSpec) -> tuple[str, ...] | None:
    if not parent.limited:
        return asked.allow
    if asked.kind != parent.spec.kind:
        raise _no(asked, f"its parent may not use every tool, so it can only add tasks of its own kind, {parent.spec.kind}")
    own = parent.spec.allow or ()
    if beyond := [tool for tool in asked.allow or () if tool not in own]:
        raise _no(asked, f"its parent may not use {', '.join(beyond)} without asking")
    return asked.allow if asked.allow is not None else parent.spec.allow


def _cost(parent: Parent, asked: TaskSpec) -> float:
    """What the child may cost: what it asks for, or an equal part of what is left for all that may still be added."""
    cap = parent.spec.cost_max
    if not cap:
        return asked.cost_max
    wanted_usd = 0.0 if "cost_max" in asked.assumed else asked.cost_max
    left = cap - parent.spent_usd - parent.given_usd
    if left <= 0 or wanted_usd > left:
        wanted = f", and it asks for {money(wanted_usd)}" if wanted_usd else ""
        why = f"{money(max(0.0, left))} is left of the cost_max of {parent.task}, {money(cap)}{wanted}"
        raise BudgetSpent("not added", on=asked.name, why=why, kept="what was added before")
    places = max(1, parent.spec.children_max - parent.added)
    return wanted_usd or left * (1 + asked.children_max) / places
