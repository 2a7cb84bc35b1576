"""The report as the JSON object of night.json, schema 1, from which both pages are drawn. Pure.

Moments are RFC 3339 UTC, all else as in `facts`; what is not known is null. Texts are as they were written: whoever shows them cleans them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from shlex import quote
from typing import Any

from supervisor import __version__
from supervisor.core.gates import GATE
from supervisor.core.units import rfc3339
from supervisor.faces.night import words
from supervisor.faces.night.facts import Event, Night, Task
from supervisor.faces.night.found import NOBODY_LOOKED, Diff, Found
from supervisor.faces.night.lanes import Span
from supervisor.faces.report.words import command

SCHEMA = 1


def of(night: Night, found: Found = NOBODY_LOOKED, against: Night | None = None) -> dict[str, Any]:
    """The whole report. `against`: the night that it is compared with."""
    told = words.verdict(night)
    return {
        "schema": SCHEMA,
        "generated": rfc3339(night.now),
        "nightcrew": __version__,
        "verdict": {"kind": told.kind, "sign": told.sign, "word": told.word, "sentence": told.sentence, "why": words.commonest(night)},
        "run": _run(night),
        "repository": {"root": night.root, "base": night.base, "commit": night.base_oid, "on": found.on},
        "needs": [_need(task, night, found) for task in night.needing],
        "unwell": [_unwell(task, found) for task in night.unwell],
        "ready": [_ready(task, night, found) for task in night.tasks if task.ready],
        "not_tried": found.not_tried,
        "elsewhere": [_elsewhere(task) for task in night.tasks if task.elsewhere],
        "figures": night.figures().shape(),
        "models": [{"model": model or None, **spent.shape()} for model, spent in night.by_model.items()],
        "tasks": [_task(task) for task in night.tasks],
        "lanes": _lanes(night),
        "waits": night.waits,
        "choices": [dict(group) for group in night.groups],
        "again": [_again(task) for task in night.tasks if len(task.attempts) > 1],
        "events": [_event(event, night) for event in night.events],
        "unstarted": _groups(night.unstarted),
        "alone": _alone(night),
        "against": _against(against),
        "trouble": [*night.trouble, *([found.trouble] if found.trouble else [])],
    }


def _run(night: Night) -> dict[str, Any]:
    terms = night.terms or {}
    return {
        "id": night.run,
        "title": night.title,
        "night": night.terms is not None,
        "submitted": rfc3339(night.submitted),
        "began": rfc3339(night.began),
        "ended": rfc3339(night.ended),
        "until": rfc3339(terms.get("until")),
        "why": str(terms.get("why") or ""),
        **{name: terms.get(name) or None for name in ("grace_s", "cost_max", "parallel", "on_cap", "timer")},
    }


def _named(task: Task) -> dict[str, Any]:
    return {"id": task.id, "name": task.name, "title": task.title, "state": str(task.state)}


def _need(task: Task, night: Night, found: Found) -> dict[str, Any]:
    asks = night.asks.get(task.id, {})
    verbs = [] if task.id not in found.diffs else ["diff"]
    verbs += ["attach"] if task.living else ["logs"]
    verbs += ["retry"] if task.final else ["resume"] if task.question else []
    return {
        **_named(task),
        "question": task.question or str(asks.get("detail") or asks.get("state") or ""),
        "since": rfc3339(task.asked_at or asks.get("since")),
        "diff": _diff(task, found.diffs),
        "commands": [command(verb, task.id) for verb in verbs],
    }


def _diff(task: Task, diffs: Mapping[str, Diff]) -> dict[str, Any] | None:
    diff = diffs.get(task.id)
    return None if diff is None else {"text": diff.text, "note": diff.note}


def _unwell(task: Task, found: Found) -> dict[str, Any]:
    look = "logs --stream gate" if GATE in task.attempts[-1].why else "logs"
    return {
        **_named(task),
        "reason": words.reason(task) or "no reason was recorded",
        "said": task.said,
        "printed": found.printed.get(task.id, ""),
        "attempts": len(task.attempts),
        "tampering": list(task.tampering),
        "diff": _diff(task, found.diffs),
        "commands": [command(look, task.id), command("retry", task.id)],
    }


def _ready(task: Task, night: Night, found: Found) -> dict[str, Any]:
    names = {one.id: one.name for one in night.tasks}
    others = found.with_others.get(task.id, {})
    return {
        **_named(task),
        **_work(task),
        "said": task.said,
        "tampering": list(task.tampering),
        "gone": task.id in found.gone,
        "taken": task.id in found.taken,
        "conflicts_with_base": list(found.with_base.get(task.id, ())),
        "conflicts_with": [{"id": other, "name": names.get(other, other), "files": list(files)} for other, files in others.items()],
        "command": command("take", task.id),
    }


def _elsewhere(task: Task) -> dict[str, Any]:
    return {**_named(task), "refs": list(task.elsewhere), "commands": [f"git log {quote(ref)}" for ref in task.elsewhere]}


def _work(task: Task) -> dict[str, Any]:
    names = ("branch", "tip", "commits", "files", "plus", "minus", "gate")
    return {name: getattr(task.work, name, None) for name in names}


def _task(task: Task) -> dict[str, Any]:
    return {
        **_named(task),
        "kind": task.kind,
        "reason": words.reason(task),
        "attempts": len(task.attempts),
        **_work(task),
        "spent": task.spent.shape(),
        "times": task.times.shape(),
    }


def _lanes(night: Night) -> dict[str, Any]:
    """One row a task that began; its spans are in seconds since `zero`."""
    tasks = [task for task in night.tasks if task.attempts]
    every = [span for task in tasks for attempt in task.attempts for span in attempt.spans]
    zero = min([night.began, *(begin for begin, _, _ in every)])
    end = max([night.ended or night.now, *(until for _, until, _ in every)])

    def since(spans: Iterable[Span]) -> list[list[Any]]:
        return [[round(begin - zero, 1), round(until - zero, 1), kind] for begin, until, kind in spans]

    rows = [
        {
            **_named(task),
            "spans": since(span for one in task.attempts for span in one.spans),
            "lost": [round(one.ended - zero, 1) for one in task.attempts if one.ended is not None and one.end != "done"],
        }
        for task in tasks
    ]
    slept = [
        [round(one.at - zero, 1), round(one.until - zero, 1)] for one in night.events if one.kind == "machine" and one.until is not None
    ]
    return {"zero": rfc3339(zero), "length_s": round(max(1.0, end - zero), 1), "rows": rows, "slept": slept}


def _again(task: Task) -> dict[str, Any]:
    tries = [{"epoch": one.epoch, "at": rfc3339(one.created), "cause": one.cause} for one in task.attempts if one.epoch > 1]
    return {**_named(task), "tries": tries}


def _event(event: Event, night: Night) -> dict[str, Any]:
    lasts = event.kind == "outage" and event.until is None and night.ended is None
    shape = {"at": rfc3339(event.at), "until": rfc3339(event.until), "kind": event.kind, "words": event.words, "lasts": lasts}
    return shape | {"seconds": None if event.until is None else round(event.until - event.at, 3)}


def _groups(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """By state and reason, in the order of their first task."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for task in tasks:
        found.setdefault((str(task.state), words.reason(task)), []).append({"id": task.id, "name": task.name})
    return [{"state": state, "reason": reason or "no reason was recorded", "tasks": some} for (state, reason), some in found.items()]


def _alone(night: Night) -> dict[str, Any]:
    together = night.together_s
    times = round(night.alone_s / together, 2) if together > 0 else None
    return {"seconds": round(night.alone_s, 3), "together_s": round(together, 3), "times": times, "how": words.HOW_ALONE}


def _against(other: Night | None) -> dict[str, Any] | None:
    if other is None:
        return None
    found = words.verdict(other)
    said = f"{found.word}: {found.sentence}"
    return {"run": other.run, "title": other.title, "began": rfc3339(other.began), "verdict": said, "figures": other.figures().shape()}
