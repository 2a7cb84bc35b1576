"""The morning report as JSON."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any

from supervisor import __version__
from supervisor.features.night import morning_report as morning_pages
from supervisor.features.night import morning_rows
from supervisor.features.night.morning_rows import (
    NOBODY_LOOKED,
    Attempt,
    Diff,
    Event,
    Found,
    Night,
    Rows,
    RowsRow,
    Span,
    Spent,
    Task,
    Times,
    Work,
    all_spent,
)
from supervisor.gateway.admission.types import Usage
from supervisor.host.paths import Home
from supervisor.kernel.format import rfc3339
from supervisor.kernel.names import rescue_ref, tips_ref
from supervisor.kernel.result import tampering
from supervisor.kernel.retry import GATE
from supervisor.kernel.states import TaskState
from supervisor.results import comparison
from supervisor.views import status
from supervisor.views.report.words import command

# Model
# -----
# A run's rows as a `Night`. `build` is pure; `read` reads the rows first.
#
# Of what an attempt took the gateway's account is the source; where it has been pruned since and the attempt's result knows of
# more, the result is.


def read(home: Home, run: str, now: float | None = None) -> Night:
    """What a run (its full id) came to by `now`, wall clock. Raises NotFound and LedgerError."""
    return build(morning_rows.read(home, run), time.time() if now is None else now)


def build(found: Rows, now: float) -> Night:
    """The same from rows that were read."""
    closed = float(found.night["ended"] or 0.0) if found.night else 0.0
    reading = _Reading(found, closed or now)
    tasks = tuple(reading.task(row) for row in found.tasks)
    over = bool(closed) or all(task.final for task in tasks)
    last = max((attempt.ended or 0.0 for task in tasks for attempt in task.attempts), default=0.0)
    ended = (closed or last or found.run["created"]) if over else None
    began = float(found.night["began"]) if found.night else float(found.run["created"])
    return Night(
        run=found.run["id"],
        title=found.run["title"],
        root=found.run["root"],
        base=found.run["base"],
        base_oid=found.run["base_oid"],
        submitted=found.run["created"],
        began=began,
        ended=ended,
        now=now,
        terms=found.night,
        before=found.before,
        tasks=_thinned(tasks, (ended or now) - began),
        by_model=reading.by_model(),
        events=tuple(morning_rows.of(found.journal, found.breakers, found.run["id"], max(ended or now, last))),
        trouble=tuple(filter(None, [found.trouble, *reading.damaged])),
        waits=found.waited,
        groups=tuple(found.groups),
    )


def _thinned(tasks: tuple[Task, ...], length_s: float) -> tuple[Task, ...]:
    every = {f"{task.id}:{one.epoch}": one.spans for task in tasks for one in task.attempts}
    thin = morning_rows.thinned(every, max(1.0, length_s))
    return tuple(
        replace(task, attempts=tuple(replace(one, spans=tuple(thin[f"{task.id}:{one.epoch}"])) for one in task.attempts)) for task in tasks
    )


@dataclass
class _Reading:
    """The rows by task and attempt, and what was found to be damaged in them."""

    found: Rows
    now: float
    """To when the lane of an attempt reaches that has no end: a person may hold one beyond the end of its night."""
    damaged: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._attempts = _by(self.found.attempts, "task")
        self._journal = _by((row for row in self.found.journal if row["task"] is not None), "task")
        self._requests = _by(self.found.requests, "agent", "epoch")
        self._waits = _by(self.found.waits, "agent", "epoch")
        self._chosen = comparison.chosen(self.found.groups)
        self._forgotten: list[tuple[str, Spent]] = []

    def by_model(self) -> dict[str, Spent]:
        """All that was spent, by the model that answered; call it when every task was read."""
        parts: dict[str, list[Spent]] = {}
        for model, spent in [*((row["model"], _of_rows([row])) for row in self.found.requests), *self._forgotten]:
            parts.setdefault(model, []).append(spent)
        summed = {model: all_spent(some) for model, some in parts.items()}
        return dict(sorted(summed.items(), key=lambda item: (-item[1].known_usd, -item[1].tokens.total, item[0])))

    def task(self, row: RowsRow) -> Task:
        attempts = self._attempts.get((row["id"],), [])
        results = [self._shape(one, "result") for one in attempts]
        newest = results[-1] if results else {}
        state, spec = TaskState(row["state"]), _parsed(row["spec"]) or {}
        asked = _asked(self._journal.get((row["id"],), []), row["epoch"]) if state is not TaskState.DONE else None
        return Task(
            id=row["id"],
            name=row["name"],
            title=row["title"],
            kind=str(spec.get("kind", "")),
            state=state,
            reason=row["reason"],
            attempts=tuple(self._attempt(one, result) for one, result in zip(attempts, results, strict=True)),
            work=_work_model(attempts[-1], newest) if attempts else None,
            said=status.last_message(newest) if isinstance(newest.get("agent"), dict) else "",
            question=asked[1] if asked else "",
            asked_at=asked[0] if asked else None,
            tampering=tuple(tampering(newest) if isinstance(newest.get("notes"), list) else ()),
            elsewhere=_elsewhere(attempts[-1], newest) if attempts and state is TaskState.DONE else (),
            chosen=self._chosen.get(row["id"], True),
        )

    def _attempt(self, row: RowsRow, result: Mapping[str, Any]) -> Attempt:
        account = self._shape(row, "account")
        times = _times(account)
        return Attempt(
            epoch=row["epoch"],
            created=row["created"],
            ended=row["ended"] if row["end"] else None,
            end=row["end"],
            why=row["end_cause"] or row["stop_why"],
            cause=row["cause"],
            spent=self._spent(row, result),
            times=times,
            spans=tuple(morning_rows.flat(self._spans(row, account))),
        )

    def _spent(self, row: RowsRow, result: Mapping[str, Any]) -> Spent:
        """The larger of both: see the module. What the account has forgotten of the difference is kept by its model."""
        counted = _of_rows(self._requests.get((row["task"], row["epoch"]), []))
        told = _of_result(result)
        if told.tokens.total <= counted.tokens.total:
            return counted
        named = {str(one.get("answered", "")) for one in _list(result, "models") if isinstance(one, dict)}
        self._forgotten.append((next(iter(named)) if len(named) == 1 else "", _minus(told, counted)))
        return replace(told, known_usd=max(told.known_usd, counted.known_usd), refused=counted.refused)

    def _spans(self, row: RowsRow, account: Mapping[str, Any]) -> list[Span]:
        created, end = row["created"], (row["ended"] if row["ended"] is not None else max(row["created"], self.now))
        launch_s = _number(account, "launch_s") if "wall_s" in account else max(0.0, (row["started"] or end) - created)
        began = min(end, created + launch_s)
        found: list[Span] = [(created - _number(account, "slot_queue_s"), created, "slot")]
        found += [(created, began, "launch"), (began, end, "work")]
        waits = self._waits.get((row["task"], row["epoch"]), [])
        found += [(max(began, one["begin"]), min(end, one["end"]), "tokens") for one in waits]
        rows = [one for one in self._journal.get((row["task"],), []) if one["epoch"] == row["epoch"]]
        return found + _stops(rows, began, end)

    def _shape(self, row: RowsRow, name: str) -> dict[str, Any]:
        """A column's JSON object; empty when there is none, and when it is damaged, which is noted."""
        text = row.get(name)
        if not text:
            return {}
        if (shape := _parsed(text)) is None:
            self.damaged.append(f"the {name} of {row['task']}, attempt {row['epoch']}, is damaged")
        return shape or {}


def _by(some: Iterable[RowsRow], *names: str) -> dict[tuple[Any, ...], list[RowsRow]]:
    found: dict[tuple[Any, ...], list[RowsRow]] = {}
    for row in some:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def _parsed(text: object) -> dict[str, Any] | None:
    try:
        found = json.loads(str(text))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _number(shape: Mapping[str, Any], name: str) -> float:
    """What a result says under a name; 0.0 for what is no number that is finite and not negative."""
    value = shape.get(name)
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    return float(value) if known and isinstance(value, int | float) else 0.0


def _list(shape: Mapping[str, Any], name: str) -> list[Any]:
    return value if isinstance(value := shape.get(name), list) else []


def _part(shape: Mapping[str, Any], name: str) -> dict[str, Any]:
    return value if isinstance(value := shape.get(name), dict) else {}


def _of_rows(some: Iterable[RowsRow]) -> Spent:
    kinds = ("input", "output", "cache_read", "cache_write")
    return all_spent(
        Spent(row["requests"], Usage(*(row[kind] for kind in kinds)), row["known_usd"], row["unpriced"], row["estimated"], row["refused"])
        for row in some
    )


def _of_result(result: Mapping[str, Any]) -> Spent:
    tokens = _part(result, "tokens")
    usage = Usage(*(int(_number(tokens, kind)) for kind in ("input", "output", "cache_read", "cache_write")))
    requests = int(sum(_number(one, "requests") for one in _list(result, "models") if isinstance(one, dict)))
    known = result.get("cost_usd") is not None
    return Spent(requests, usage, _number(result, "cost_usd"), int(not known and usage.total > 0), int(_number(tokens, "estimated")))


def _minus(whole: Spent, part: Spent) -> Spent:
    kinds = ("input", "output", "cache_read", "cache_write")
    left = Usage(*(max(0, getattr(whole.tokens, kind) - getattr(part.tokens, kind)) for kind in kinds))
    return replace(
        whole,
        requests=max(0, whole.requests - part.requests),
        tokens=left,
        known_usd=max(0.0, whole.known_usd - part.known_usd),
        estimated=max(0, whole.estimated - part.estimated),
    )


def _times(account: Mapping[str, Any]) -> Times:
    if "wall_s" not in account:
        return Times(unmeasured=1)
    slot_s, launch_s, model_s, own_s, tokens_s, person_s, paused_s, wall_s = (_number(account, name) for name in _ACCOUNT)
    return Times(slot_s, launch_s, model_s, own_s, tokens_s, person_s, paused_s, wall_s, measured=1)


_ACCOUNT = ("slot_queue_s", "launch_s", "model_s", "local_s", "token_queue_s", "human_s", "paused_s", "wall_s")


def _work_model(row: RowsRow, result: Mapping[str, Any]) -> Work | None:
    branch, tip, diff = result.get("branch"), result.get("tip"), _part(result, "diff")
    if not isinstance(branch, str) or not isinstance(tip, str):
        return None
    files, plus, minus = (int(_number(diff, name)) for name in ("files", "plus", "minus"))
    commits, gate = int(_number(result, "commits")), _gate(_part(result, "gate"))
    return Work(branch, tip, row["base_oid"] or "", commits, files, plus, minus, gate)


def _elsewhere(row: RowsRow, result: Mapping[str, Any]) -> tuple[str, ...]:
    """The rescue ref, which a branch that has all may share with it; and the ref beside that where the branch has nothing, since then it is
    not what the agent amended."""
    rescue, beside = result.get("rescue"), tips_ref(row["task"], row["epoch"])
    told = not _number(result, "commits") and any(isinstance(note, str) and beside in note for note in _list(result, "notes"))
    alone = bool(rescue) and rescue not in (result.get("tip"), row["base_oid"])
    return (*([rescue_ref(row["task"], row["epoch"])] if alone else []), *([beside] if told else []))


def _gate(gate: Mapping[str, Any]) -> str:
    if not gate:
        return ""
    return "passed" if gate.get("passed") is True else str(gate.get("why") or "not passed")


def _asked(journal: Iterable[RowsRow], epoch: int) -> tuple[float, str] | None:
    """When the newest attempt was set aside and what it asked, if nothing has let it go on since."""
    asked = None
    for row in journal:
        if row["event"] == "set aside" and row["epoch"] in (None, epoch):
            told = morning_rows.data(row)
            asked = row["at"], str(told.get("question") or told.get("why") or "it waits for a person")
        elif row["event"] in ("resumed", "waiting", "retry"):  # "waiting": a person resumed one that had ended
            asked = None
    return asked


def _stops(journal: Iterable[RowsRow], began: float, end: float) -> list[Span]:
    """When an attempt stood still, or was set aside for a person."""
    found: list[Span] = []
    since: dict[str, float] = {}
    for row in journal:
        if kind := {"paused": "paused", "set aside": "person"}.get(row["event"]):
            since.setdefault(kind, row["at"])
        elif row["event"] == "resumed":
            found += [(at, row["at"], kind) for kind, at in since.items()]
            since = {}
    found += [(at, end, kind) for kind, at in since.items()]
    return [(max(began, at), min(end, until), kind) for at, until, kind in found]


# Shape
# -----
# The report as the JSON object of night.json, schema 1, from which both pages are drawn. Pure.
#
# Moments are RFC 3339 UTC, all else as in `facts`; what is not known is null. Texts are as they were written: whoever shows them
# cleans them.


SCHEMA = 1


def of(night: Night, found: Found = NOBODY_LOOKED, against: Night | None = None) -> dict[str, Any]:
    """The whole report. `against`: the night that it is compared with."""
    told = morning_pages.verdict(night)
    return {
        "schema": SCHEMA,
        "generated": rfc3339(night.now),
        "nightcrew": __version__,
        "verdict": {
            "kind": told.kind,
            "sign": told.sign,
            "word": told.word,
            "sentence": told.sentence,
            "why": morning_pages.commonest(night),
        },
        "run": _run(night),
        "repository": {"root": night.root, "base": night.base, "commit": night.base_oid, "on": found.on},
        "needs": [_need(task, night, found) for task in night.needing],
        "unwell": [_unwell(task, found) for task in night.unwell],
        "ready": [_ready(task, night, found) for task in night.tasks if task.ready],
        "not_tried": found.not_tried,
        "elsewhere": [_elsewhere_shape(task) for task in night.tasks if task.elsewhere],
        "figures": night.figures(),
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
        "reason": morning_pages.reason(task) or "no reason was recorded",
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


def _elsewhere_shape(task: Task) -> dict[str, Any]:
    return {**_named(task), "refs": list(task.elsewhere), "commands": [f"git log {quote(ref)}" for ref in task.elsewhere]}


def _work(task: Task) -> dict[str, Any]:
    names = ("branch", "tip", "commits", "files", "plus", "minus", "gate")
    return {name: getattr(task.work, name, None) for name in names}


def _task(task: Task) -> dict[str, Any]:
    return {
        **_named(task),
        "kind": task.kind,
        "reason": morning_pages.reason(task),
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
        found.setdefault((str(task.state), morning_pages.reason(task)), []).append({"id": task.id, "name": task.name})
    return [{"state": state, "reason": reason or "no reason was recorded", "tasks": some} for (state, reason), some in found.items()]


def _alone(night: Night) -> dict[str, Any]:
    together = night.together_s
    times = round(night.alone_s / together, 2) if together > 0 else None
    return {"seconds": round(night.alone_s, 3), "together_s": round(together, 3), "times": times, "how": morning_pages.HOW_ALONE}


def _against(other: Night | None) -> dict[str, Any] | None:
    if other is None:
        return None
    found = morning_pages.verdict(other)
    said = f"{found.word}: {found.sentence}"
    return {"run": other.run, "title": other.title, "began": rfc3339(other.began), "verdict": said, "figures": other.figures()}
