"""The operation `graph` of `mem`: who waits for whom now, in one project."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from supervisor.core.crew import Crew
from supervisor.core.plan_waits import PlanWaits
from supervisor.core.wait_graph import PERSON, Wait

if TYPE_CHECKING:
    from supervisor.daemon.memory.request import Request
    from supervisor.daemon.memory.waits import WaitDesk

SHOWN = 300
"""Tasks that have not started and are drawn."""
LOOKED_AT = 5000
"""Unfinished tasks that are looked at for it: whoever asks again and again holds up nobody."""


async def graph(asked: Request) -> dict[str, Any]:
    """`waits`: those of agents, the oldest first, then those that follow from the plan (`number` 0): `number`, `task`, `epoch`, `kind`,
    `what`, `holders`, `any_of` (one of them is enough), `since` and `until` (seconds since 1970, 0: not known, or no end). `nodes`: every
    task in them and `person`, with `state`; `edges`: `from` who waits `to` who must act, with the wait's `number`, `kind` and `what`.
    `more`: tasks that have not started may be missing."""
    return shape(asked.desk.waits, asked.desk.loop.crew, asked.project)


def shape(desk: WaitDesk, crew: Crew, project: str) -> dict[str, Any]:
    """As `graph` returns it."""
    own = desk.open_of(project)
    planned, more = _planned(crew, own, project)
    waits = [*own, *planned]
    names = dict.fromkeys(name for wait in waits for name in (wait.task, *wait.holders))
    return {
        "nodes": [{"id": name, "state": _state(crew, name)} for name in names],
        "edges": [_edge(wait, holder) for wait in waits for holder in wait.holders],
        "waits": [wait.shape() for wait in waits],
        "more": more,
    }


def _planned(crew: Crew, own: Iterable[Wait], project: str) -> tuple[list[Wait], bool]:
    """What tasks wait for that have not started, and whether some are left out: first of those for which somebody waits, then of the
    others in the order of their submission."""
    plan = PlanWaits(crew)
    names = [holder for wait in own for holder in wait.holders]
    found: dict[str, list[Wait]] = {}
    for name in names:  # grows while it is walked
        if name not in found and len(found) < SHOWN:
            found[name] = list(plan.of(name))
            names += [holder for wait in found[name] for holder in wait.holders]
    for task in islice(crew.tasks.values(), LOOKED_AT):
        if len(found) >= SHOWN:
            break
        if task.project == project and task.id not in found and (waits := plan.of(task.id)):
            found[task.id] = list(waits)
    more = len(found) >= SHOWN or len(crew.tasks) > LOOKED_AT
    return [wait for waits in found.values() for wait in waits], more


def _edge(wait: Wait, holder: str) -> dict[str, Any]:
    return {"from": wait.task, "to": holder, "kind": str(wait.kind), "what": wait.what, "number": wait.number}


def _state(crew: Crew, name: str) -> str:
    if name == PERSON:
        return PERSON
    task = crew.tasks.get(name)
    return str(task.state) if task is not None else "ended"
