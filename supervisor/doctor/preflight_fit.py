"""Whether a plan fits into its night: its predicted end and cost, from what such tasks took before, against its deadline and its cap."""

from __future__ import annotations

import functools
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from agents.kinds import of_task
from supervisor.core import capacity, plan_forecast
from supervisor.core.capacity import AGENT, COMMAND, Means, Need
from supervisor.core.night import NightTerms
from supervisor.core.plan_forecast import Expected, Forecast, Misfit, Span
from supervisor.core.spec import Submission, TaskSpec
from supervisor.doctor.finding import Finding, fail, ok, unknown, warn
from supervisor.host.paths import Home
from supervisor.ledger import history, store

CLASSES = ("interactive", "normal", "batch")
SHOWN = 5
"""Tasks that a finding names; `--json` names all."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """What is known of the night before it begins."""

    forecast: Forecast
    slots: int
    slots_by: str
    late: Misfit
    """Against the deadline and the grace; nothing without one."""
    dear: Misfit
    """Against the cap; nothing without one."""
    samples: Mapping[str, int]
    """Tasks from which each kind was learned."""

    def shape(self) -> dict[str, Any]:
        """For programs; times are seconds from the start, null is what nobody knows."""
        return {
            "slots": self.slots,
            "slots_by": self.slots_by,
            "binding": self.forecast.binding,
            "end_s": asdict(self.forecast.end),
            "cost_usd": asdict(self.forecast.cost),
            "learned_from": dict(self.samples),
            "late": asdict(self.late),
            "over_the_cap": asdict(self.dear),
            "tasks": {
                name: {"end_s": asdict(end), "cost_until_usd": asdict(self.forecast.costs[name])}
                for name, end in self.forecast.ends.items()
            },
        }


def predict(home: Home, submission: Submission, terms: NightTerms, start: float, machine: Mapping[str, Any]) -> Predicted:
    """`start`: when the night begins, seconds since 1970. `machine`: what the supervisor says of its capacity (`daemon.capacity.shape`)."""
    with closing(store.connect_readonly(home.ledger)) as db:
        expected, samples = _expected(db, submission)
    slots, by = _slots(submission.spec.tasks, machine, terms.parallel)
    found = plan_forecast.forecast(expected, slots, by)
    late = plan_forecast.misfit(found.ends, terms.until + terms.grace_s - start) if terms.until else Misfit()
    dear = plan_forecast.misfit(found.costs, terms.cost_max) if terms.cost_max else Misfit()
    return Predicted(found, slots, by, late, dear, samples)


def _expected(db: sqlite3.Connection, submission: Submission) -> tuple[list[Expected], dict[str, int]]:
    tasks = sorted(submission.spec.tasks, key=lambda task: (CLASSES.index(task.task_class), -task.priority))
    of_kind = functools.cache(lambda kind: history.of_kind(db, kind))
    found = []
    for task in tasks:
        if task.decide:  # a group of candidates, which never starts
            found.append(Expected(task.name, task.after, plan_forecast.NOTHING, plan_forecast.NOTHING))
            continue
        same = history.of_task(db, submission.project, task.name, task.kind)
        taken = same if len(same) >= capacity.KNOWN else of_kind(task.kind)
        seconds = plan_forecast.measured([one.seconds for one in taken], task.longest_s * (1 + task.retries))
        found.append(Expected(task.name, task.after, seconds, _dollars(task, taken)))
    return found, {kind: len(of_kind(kind)) for kind in sorted({task.kind for task in tasks})}


def _dollars(task: TaskSpec, taken: Sequence[history.Taken]) -> Span:
    if not of_task(task.kind).is_agent and not any(one.dollars for one in taken):
        return plan_forecast.NOTHING  # a command that has never asked a model
    return plan_forecast.measured([one.dollars for one in taken if one.dollars is not None], task.cost_max)


def _slots(tasks: Sequence[TaskSpec], machine: Mapping[str, Any], parallel: int) -> tuple[int, str]:
    """How many of the plan's tasks live at once, and what limits them."""
    needs = {kind: Need(**{key: value for key, value in need.items() if key != "assumed"}) for kind, need in machine["needs"].items()}
    waiting = [
        (needs.get(kind) or (AGENT if of_task(kind).is_agent else COMMAND), count) for kind, count in Counter(t.kind for t in tasks).items()
    ]
    if machine["means"] is None:
        slots, by = int(machine["slots"]), "cap"
    else:
        carried = capacity.capacity(Means(**machine["means"]), [], waiting)
        slots, by = carried.slots, carried.binding
    return (parallel, "parallel") if 0 < parallel < slots else (slots, by)


_ALLOWS = {"cap": "the setting `slots` allows", "parallel": "--parallel allows", "cores": "the cores allow", "tokens": "the tokens allow"}


# What a person reads --------------------------------------------------------------------------------------------------------------------


def end(found: Predicted, terms: NightTerms) -> Finding:
    """The predicted end against the deadline."""
    binds = "" if found.forecast.binding == found.slots_by else f", as many as {_ALLOWS.get(found.slots_by, f'{found.slots_by} allows')}"
    seen = f"{_times(found.forecast.end)} on {found.slots} slots{binds}; {_binding(found)}"
    if not terms.until:
        return ok(f"{seen}; no deadline") if found.forecast.end.likely is not None else unknown(f"{seen}; no deadline", _why_unknown(found))
    return _judged(
        found.late, seen, "will not have ended by the deadline and the grace", "a later --until, more --parallel, or fewer tasks", found
    )


def cost(found: Predicted, terms: NightTerms) -> Finding:
    """The predicted cost against the cap."""
    span = found.forecast.cost
    seen = (
        f"${span.likely:.2f} (${span.low:.2f} to {_dollar(span.high)})"
        if span.likely is not None
        else "not known"
        if span.high is None
        else f"not known; at most {_dollar(span.high)}"
    )
    if not terms.cost_max:
        return ok(f"{seen}; no cap") if span.likely is not None else unknown(f"{seen}; no cap", _why_unknown(found))
    return _judged(
        found.dear,
        f"{seen} of ${terms.cost_max:.2f}",
        "pass the cap, which holds all the same: they will not start",
        "a higher --cost-max, or fewer tasks",
        found,
    )


def _judged(fits: Misfit, seen: str, means: str, fix: str, found: Predicted) -> Finding:
    if fits.out:
        return fail(f"{seen}. {len(fits.out)} of {len(found.forecast.ends)} do not fit: {_some(fits.out)}", f"they {means}", fix)
    if fits.unknown:
        return unknown(f"{seen}. Of {len(fits.unknown)} nobody knows whether they fit: {_some(fits.unknown)}", _why_unknown(found))
    if fits.maybe:
        return warn(f"{seen}. {len(fits.maybe)} may not fit: {_some(fits.maybe)}", f"if they take as long as few did, they {means}", fix)
    return ok(seen)


def _why_unknown(found: Predicted) -> str:
    few = [f"{kind} ({count})" for kind, count in found.samples.items() if count < capacity.KNOWN]
    return (
        f"fewer than {capacity.KNOWN} tasks of a kind were done here: {', '.join(few)}" if few else "the price of some models is not known"
    )


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:SHOWN])}{f' and {len(names) - SHOWN} more' if len(names) > SHOWN else ''}"


def _binding(found: Predicted) -> str:
    match found.forecast.binding:
        case "chain":
            return "the longest chain of tasks binds"
        case "parallel":
            return "--parallel binds"
        case "cap":
            return "the number of slots binds"
        case name:
            return f"{name} bind{'' if name in ('cores', 'tokens') else 's'}"


def _times(span: Span) -> str:
    if span.likely is None:
        least = f"at least {_hours(span.low)}" if span.low else "not known"
        return f"{least}{f', at most {_hours(span.high)}' if span.high is not None else ''}"
    return f"{_hours(span.likely)} ({_hours(span.low)} to {_hours(span.high) if span.high is not None else 'not known'})"


def _hours(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _dollar(amount: float | None) -> str:
    return "not known" if amount is None else f"${amount:.2f}"
