"""From what a task came to (an entry of `after.json`) to what the lead works with. Nothing an analyst printed is believed unchecked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from supervisor.core.analysis import analyst_json
from supervisor.core.analysis.analysis_tasks import PHASE, TOGETHER
from supervisor.core.analysis.lead import Told
from supervisor.core.analysis.speedup import Phase, Span
from supervisor.core.analysis.types import Facts, Perspective
from supervisor.core.states import FINAL


def told(tasks: Iterable[Mapping[str, Any]]) -> list[Told]:
    """What each analyst among `tasks` came to; others are left out."""
    return [_told(task, Perspective(task["params"]["ANALYST"])) for task in tasks if _is_analyst(task)]


def _is_analyst(task: Mapping[str, Any]) -> bool:
    """By its kind: any task may have a parameter of that name."""
    return task["kind"] == "analyst" and task["params"].get("ANALYST") in set(Perspective)


def _phase(task: Mapping[str, Any]) -> Phase:
    """Of the crew unless it says otherwise: a plan may write anything there."""
    given = task["params"].get(PHASE)
    return Phase(given) if given in set(Phase) else Phase.CREW


def spans(tasks: Iterable[Mapping[str, Any]]) -> list[Span]:
    """The time of each analyst that ran to an end of its own."""
    return [found for task in tasks if _is_analyst(task) and task["state"] == "done" and (found := _span(task)) is not None]


def spoilt(tasks: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of those that did not end well, or not at the first attempt."""
    return [
        str(task["name"])
        for task in tasks
        if _is_analyst(task) and task["state"] in FINAL and (task["state"] != "done" or (task["result"] or {}).get("epoch", 1) > 1)
    ]


def _told(task: Mapping[str, Any], perspective: Perspective) -> Told:
    facts, reason = _facts(task, perspective)
    return Told(
        task=str(task["id"]),
        perspective=perspective,
        shard=str(task["params"].get("ANALYST_SHARD", "1/1")),
        phase=_phase(task),
        state=str(task["state"]),
        reason=reason,
        facts=facts,
    )


def _facts(task: Mapping[str, Any], perspective: Perspective) -> tuple[Facts | None, str]:
    if task["state"] != "done":
        return None, str(task["reason"]).removeprefix(f"{task['state']}: ") or f"it is {task['state']}"
    try:
        facts = analyst_json.read((task["result"] or {}).get("output"))
    except analyst_json.WireError as error:
        return None, str(error)
    if facts.perspective is not perspective or str(facts.shard) != task["params"].get("ANALYST_SHARD", "1/1"):
        return None, f"it answered for {facts.perspective} {facts.shard}"
    return facts, ""


def _span(task: Mapping[str, Any]) -> Span | None:
    result = task["result"] or {}
    began, ended = seconds(result.get("started")), seconds(result.get("ended"))
    if began is None or ended is None:
        return None
    phase = _phase(task)
    name = str(task["name"]).removeprefix("alone-") if phase is Phase.BASELINE else str(task["name"])
    created = min(began, ended - result["spawn_to_done_ms"] / 1000)
    return Span(name, phase, created, began, ended, together=TOGETHER in task["params"])


def seconds(text: Any) -> float | None:
    """The seconds since 1970 of an RFC 3339 text; None for anything else."""
    return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
