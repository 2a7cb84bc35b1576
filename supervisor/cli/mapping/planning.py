"""`nightcrew map --plan`: an agent splits the items by meaning before they are given out. Its plan is kept with the map, and used again as
long as the items are the same."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agents.mapper.check import ANSWER_MAX
from supervisor.cli import common, follow
from supervisor.core import map_groups
from supervisor.core.analysis.types import many
from supervisor.core.errors import NightcrewError, Refused
from supervisor.core.map_groups import Groups
from supervisor.core.map_prompt import ANSWER, NoJson, answers
from supervisor.core.states import TaskState
from supervisor.daemon.mapping import agents, book
from supervisor.host import foreign
from supervisor.host.paths import Home

if TYPE_CHECKING:
    from supervisor.core.spec import TaskSpec
    from supervisor.daemon.mapping.book import Item
    from supervisor.daemon.submit import Workplace


def keys(home: Home, name: str, items: Sequence[Item]) -> dict[str, Any]:
    """The plan that the map has for these items, as keys of what is done with them; empty: it has none."""
    path = book.file(home, name)
    with contextlib.suppress(NightcrewError, OSError):
        if path.exists():
            with contextlib.closing(book.connect_readonly(path)) as db:
                known = json.loads(book.about(db)["what"])
            if known.get("planned_for") == digest(items):
                return {key: known[key] for key in ("groups", "planned_for")}
    return {}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be planned."""

    base: str
    pattern: TaskSpec
    """The task of the agent, but for its prompt."""
    items: Sequence[Item]
    said: str
    """What is done with each item, in words."""
    key: str | None
    """The same key again is the same plan."""


def make(home: Home, place: Workplace, plan: Plan) -> dict[str, Any]:
    """Have an agent make it. Raises Refused when there are too many items, or the agent made none."""
    from supervisor.core.spec import RunSpec
    from supervisor.daemon import submit

    items = plan.items
    if len(items) > map_groups.ITEMS_MAX:
        why = f"{many(len(items), 'item')}, and an agent splits at most {map_groups.ITEMS_MAX:,}"
        raise Refused("too many items to plan", why=why, hint="fewer items, or without --plan")
    names = [item.name.decode("utf-8", "backslashreplace") for item in items]
    prompt = map_groups.prompt(plan.said, names, [item.size for item in items])
    task = agents.answering(replace(plan.pattern, name="plan", title="split the work"), prompt, ["groups"], map_groups.SCHEMA)
    spec = RunSpec(title=f"plan of {many(len(items), 'item')}", tasks=(task,), base=plan.base)
    common.say(f"an agent of kind {plan.pattern.kind} splits {many(len(items), 'item')}")
    accepted = follow.hand_over(home, submit.submission(spec, place, None, plan.key, os.environ), ())
    (view,) = follow.to_the_end(home, accepted.run, quiet=True)
    if view.state is not TaskState.DONE:
        hint = f"nightcrew logs {view.id}, then nightcrew retry {view.id}; or without --plan"
        raise Refused("the work was not split", on=view.id, why=f"it is {view.state}: {view.end_cause or view.reason}", hint=hint)
    found = _read(foreign.read_plain(home.attempt(view.id, view.epoch) / "out" / ANSWER, ANSWER_MAX), len(items))
    common.say(f"{many(len(found.groups), 'group')}")
    for repair in found.repairs:
        common.say(f"the plan was mended: {repair}")
    return {"groups": [{"items": list(group.items), "about": group.about} for group in found.groups], "planned_for": digest(items)}


def _read(data: bytes | None, count: int) -> Groups:
    """What the agent wrote. Its gate has checked the form; whatever else it is, every item is in one group."""
    try:
        return map_groups.read(answers(data, ["groups"])[0], count)
    except NoJson:
        return map_groups.read(None, count)


def digest(items: Sequence[Item]) -> str:
    """Of names and contents: a plan holds for the same items."""
    told = hashlib.sha256()
    for item in items:
        told.update(item.name + b"\0" + item.key.encode() + b"\n")
    return told.hexdigest()[:32]
