"""A map that agents work on: each shard is an ordinary task of the run, and has its items until it has ended, whichever attempt it is.

Its answer is what its agent said last; with a schema it is what the agent wrote into `answer.json`, which the task's gate has checked.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agents.mapper.check import ANSWER_MAX, ASKED
from supervisor.core.errors import UsageError, one_line
from supervisor.core.gates import TIMEOUT_S
from supervisor.core.map_prompt import ANSWER, NAMES, NoJson, PromptTerms, answers, for_agent, shards, where_to_answer
from supervisor.core.mapping import Outcome
from supervisor.core.spec import TaskSpec
from supervisor.core.states import TaskState
from supervisor.host import foreign
from supervisor.host.paths import Home
from supervisor.ledger.queries import TaskView

EXECUTOR = "agents"
TASK = 0
"""In place of an epoch, in the lease of a task."""
TASKS_MAX = 20_000
"""Tasks of a run."""


@dataclass(frozen=True, slots=True)
class Handed:
    """A run that is to be submitted, and the positions of each of its tasks."""

    submission: dict[str, Any]
    shards: tuple[tuple[int, ...], ...]


def hand_over(name: str, number: int, what: Mapping[str, Any], waiting: Mapping[int, str], submission: Mapping[str, Any]) -> Handed:
    """The run of a map's items that are not done. `number`: the map's last shard; `waiting`: items by position; `submission` has one task,
    the pattern of all. The same of all that gives the same key, so that a supervisor that died in between submits it once. Raises
    UsageError for a field that an item does not have, or for too many tasks."""
    groups = [group["items"] for group in what.get("groups") or ()]
    cut = shards(list(waiting), int(what["each"]), groups)
    if len(cut) > TASKS_MAX:
        raise UsageError(
            "too many tasks", on=name, why=f"{len(cut):,} shards, and a run has at most {TASKS_MAX:,}", hint="a larger --shard"
        )
    pattern = TaskSpec.from_shape(json.loads(json.dumps(submission["spec"]["tasks"][0])))
    tasks = [_task(pattern, what, place, [waiting[position] for position in shard]) for place, shard in enumerate(cut, 1)]
    shapes = [task.to_shape() for task in tasks]
    key = hashlib.sha256(json.dumps([name, number, shapes], default=str).encode()).hexdigest()
    return Handed({**submission, "key": f"map-{key}", "spec": {**submission["spec"], "tasks": shapes}}, tuple(map(tuple, cut)))


def _task(pattern: TaskSpec, what: Mapping[str, Any], place: int, texts: Sequence[str]) -> TaskSpec:
    terms, items = PromptTerms.from_shape(what["terms"]), [fields_of(text, str(what["form"])) for text in texts]
    try:
        prompt = for_agent(terms, items)
    except KeyError as error:
        raise UsageError(
            "no such field", on="{" + str(error.args[0]) + "}", why=f"not every item has it: {one_line(texts[0])[:80]}"
        ) from None
    more = f" and {len(texts) - 1} more" if len(texts) > 1 else ""
    made = replace(pattern, name=f"s{place}", title=f"{one_line(items[0]['item'])[:100]}{more}", prompt=prompt)
    return made if terms.schema is None else answering(made, prompt, [one["item"] for one in items], terms.schema)


def answering(task: TaskSpec, prompt: str, names: Sequence[str], schema: Any) -> TaskSpec:
    """The task with a prompt that says where its answer for each of `names` belongs, and with a gate that checks that."""
    asked = json.dumps({"schema": schema, "items": list(names)})
    told = f"{prompt}\n\n{where_to_answer(names, schema)}"
    limit = task.gate_timeout_s or TIMEOUT_S
    return replace(task, prompt=told, gate=_gate(task), gate_timeout_s=limit, params={**task.params, ASKED: asked})


def _gate(pattern: TaskSpec) -> tuple[str, ...]:
    """The check of the answer, before the gate that the project has for every task."""
    check = (sys.executable, "-I", "-m", "agents.mapper.check")
    return ("/bin/sh", "-c", f"{shlex.join(check)} && {{ {pattern.gate_words}\n}}") if pattern.gate else check


def fields_of(text: str, form: str) -> dict[str, Any]:
    """The fields of an item in a prompt."""
    plain = text.encode("utf-8", "backslashreplace").decode()
    found: dict[str, Any] = dict.fromkeys(NAMES, plain)
    return {**found, **json.loads(text)} if form == "jsonl" else found


def outcomes(home: Home, view: TaskView, what: Mapping[str, Any], items: Sequence[tuple[int, str]]) -> list[Outcome]:
    """What came of the items, by position and text, of a task that has ended. Raises ToolFailed when the machine could not look."""
    ms = round(1000 * max(0.0, (view.ended or 0.0) - (view.started or view.ended or 0.0)))
    if view.state is not TaskState.DONE:
        why = f"{view.id} is {view.state}: {view.end_cause or view.reason or 'no reason is known'}"
        return [Outcome(position, False, why, ms) for position, _ in items]
    try:
        values = _values(home, view, what, [str(fields_of(text, str(what["form"]))["item"]) for _, text in items])
    except NoJson as error:
        return [Outcome(position, False, f"{view.id}: its answer cannot be read: {error}", ms) for position, _ in items]
    return [Outcome(position, True, json.dumps(value), ms) for (position, _), value in zip(items, values, strict=True)]


def _values(home: Home, view: TaskView, what: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    result = view.result or {}
    if what["terms"].get("schema") is not None:
        found = answers(foreign.read_plain(_out(home, view) / ANSWER, ANSWER_MAX), names)
    else:
        said = (result.get("agent") or {}).get("message")
        found = [said if said is not None else result.get("output")] * len(names)
    if not what.get("merge"):
        return found
    edit = {"base": view.base_oid, "commit": result.get("tip") if result.get("tip") != view.base_oid else None}
    return [{"output": one, **edit} for one in found]


def _out(home: Home, view: TaskView) -> Path:
    return home.attempt(view.id, view.epoch) / "out"
