"""What tasks wait for, and how their agents are."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory import lease_rows
from supervisor.kernel.format import age, duration, listed, many, rfc3339
from supervisor.kernel.leases import Lease, Wait, WaitKind
from supervisor.kernel.pressure import Conditions, Decision, Verdict, of_start
from supervisor.kernel.states import CHOICE, TaskClass, TaskState, Until, asks_choice
from supervisor.results import candidates
from supervisor.store import queries
from supervisor.store.queries import Need, TaskView
from supervisor.views.status import pause

# Waits
# -----
# What every task that has not started waits for, and what agents do: from the ledger, and from what the supervisor says.


SHOWN = 3
"""Tasks that are named, of those that one comes after."""
CODES = {
    WaitKind.LEASE: "lease",
    WaitKind.TASK: "task",
    WaitKind.MAIL: "mail",
    WaitKind.HUMAN: "person",
    WaitKind.RATE: "rate",
    WaitKind.MEMORY: "note",
}
"""Of what agents wait for; `memory` is that of the machine."""
_WHAT = {
    WaitKind.LEASE: "the lease",
    WaitKind.MAIL: "",  # it says of itself whether it is mail or a reply
    WaitKind.RATE: "its turn,",
    WaitKind.MEMORY: "the note",
}
_WAIT = (TaskState.WAITING, TaskState.READY, TaskState.PAUSED, TaskState.PARKED)
_RESTING = (TaskState.READY, TaskState.PARKED)


def reasons(db: sqlite3.Connection, views: Iterable[TaskView], now: Conditions | None, *, runs: bool, wall: float) -> dict[str, Verdict]:
    """By task, of those that wait for a start or are paused, and of those whose agents wait at the supervisor. `now` is what that says,
    None when it does not answer; `runs`: there is one."""
    views = list(views)
    waiting = [view for view in views if view.state in _WAIT or view.paused]
    known = _known(db, waiting, now, runs=runs, wall=wall)
    found = _of_agents(db, views) if runs else {}
    return found | {view.id: _verdict(view, known) for view in waiting}


@dataclass(frozen=True, slots=True)
class _Known:
    """What verdicts are made of: as `reasons` was given it, and of the ledger by task."""

    now: Conditions | None
    runs: bool
    wall: float
    needs: Mapping[str, Sequence[Need]]
    notes: Mapping[str, Sequence[str]]
    rests: Mapping[str, float]
    """When the backoff of each ends, or its limit opens: wall-clock seconds."""
    aside: Collection[str]
    ahead: Mapping[str, Lease]
    nights: Mapping[str, str]
    """By run."""
    undecided: Collection[str]
    """Groups whose candidates have ended, of which a person is to choose one."""


def _known(db: sqlite3.Connection, waiting: Sequence[TaskView], now: Conditions | None, *, runs: bool, wall: float) -> _Known:
    """One query of each sort for all of them."""
    blocked = _in(waiting, TaskState.WAITING)
    return _Known(
        now, runs, wall,
        needs=queries.open_needs(db, blocked), notes=lease_rows.missing(db, blocked),
        rests=queries.backoffs(db, _in(waiting, *_RESTING)), aside=_set_aside(db, waiting),
        ahead=lease_rows.ahead(db, _in(waiting, TaskState.READY)),
        undecided=candidates.undecided(db, blocked),
        nights=queries.nights_of_runs(db, {view.run for view in waiting}) if now is not None and now.nights else {},
    )  # fmt: skip


def _in(views: Iterable[TaskView], *states: TaskState) -> list[str]:
    return [view.id for view in views if view.state in states]


def _set_aside(db: sqlite3.Connection, waiting: Iterable[TaskView]) -> set[str]:
    is_any_held = any(view.state is TaskState.PAUSED or view.paused for view in waiting)
    return {task for task, _, _ in queries.set_aside(db)} if is_any_held else set()


def _verdict(view: TaskView, known: _Known) -> Verdict:
    match view.state:
        case TaskState.PAUSED | TaskState.RUNNING:
            return _paused(view, known)
        case TaskState.PARKED:
            words = f"its limit opens in {age(max(0.0, known.rests.get(view.id, known.wall) - known.wall))}"
            return Verdict(Decision.DEFER, "limit", words, view.changed)
        case TaskState.WAITING:
            if view.id in known.undecided:
                return Verdict(Decision.DEFER, CHOICE, asks_choice(view.name), view.changed)
            return _after(known.needs.get(view.id, ()), known.notes.get(view.id, ()), view)
        case _:
            return _ready(view, known)


def _paused(view: TaskView, known: _Known) -> Verdict:
    if view.state is TaskState.RUNNING and view.paused == Until.SLOT:
        return Verdict(Decision.DEFER, "slots", pause(view))
    since = view.changed if view.state is TaskState.PAUSED else 0.0  # of one that runs that is when it started
    return Verdict(Decision.DEFER, "paused", _held(view, is_aside=view.id in known.aside), since)


def _of_agents(db: sqlite3.Connection, views: Iterable[TaskView]) -> dict[str, Verdict]:
    """The oldest wait of each, and how many more."""
    open_ones = lease_rows.open_of(db, [view.id for view in views if view.state is TaskState.RUNNING])
    return {task: Verdict(Decision.DEFER, CODES[found[0].kind], _words(found), found[0].since) for task, found in open_ones.items()}


def _words(found: Sequence[Wait]) -> str:
    wait, more = found[0], f", and for {len(found) - 1} more" if len(found) > 1 else ""
    is_any = wait.any_of and len(wait.holders) > 1
    names = listed([name.partition("/")[2] or name for name in wait.holders], SHOWN, last="or" if is_any else "and")
    one_of = "one of " if is_any else ""
    match wait.kind:
        case WaitKind.TASK:
            return f"waits for {one_of}{names}{more}"
        case WaitKind.HUMAN:
            return f"waits for a person: {wait.what}{more}"
        case _:
            whose = f" of {one_of}{names}" if names else ""
            return f"waits for {f'{_WHAT[wait.kind]} {wait.what}'.strip()}{whose}{more}"


def _held(view: TaskView, *, is_aside: bool) -> str:
    if not is_aside:
        return f"a person holds it: nightcrew resume {view.name}"
    return f"it was set aside: nightcrew {'attach' if view.state is TaskState.RUNNING else 'resume'} {view.name}"


def _after(needs: Sequence[Need], notes: Sequence[str], view: TaskView) -> Verdict:
    every = [need.name for need in needs if not need.any]
    one_of = [need.name for need in needs if need.any]
    awaited = [listed(every, SHOWN) if every else f"one of {listed(one_of, SHOWN, last='or')}"] if every or one_of else []
    awaited += [f"the note {notes[0]}" if len(notes) == 1 else f"the notes {listed(notes, SHOWN)}"] if notes else []
    words = f"waits for {' and '.join(awaited)}" if awaited else "is about to be ready"
    return Verdict(Decision.DEFER, "after", words, view.changed)


def _behind(view: TaskView, lease: Lease) -> Verdict:
    return Verdict(Decision.DEFER, "paths", f"waits for {lease.task}, which has {lease.glob}", view.changed)


def _ready(view: TaskView, known: _Known) -> Verdict:
    rests_s = known.rests.get(view.id, 0.0) - known.wall
    if not known.runs:
        return Verdict(Decision.DEFER, "no_supervisor", "waits for a supervisor: nightcrew up -d", view.changed)
    if rests_s > 0:
        return Verdict(Decision.DEFER, "backoff", f"runs again in {duration(rests_s)}", view.changed)
    if view.id in known.ahead:
        return _behind(view, known.ahead[view.id])
    if known.now is None:
        return Verdict(Decision.DEFER, "unknown", "the supervisor does not answer", view.changed)
    return _next(view, known.now, known.nights.get(view.run, ""))


def _next(view: TaskView, now: Conditions, night: str) -> Verdict:
    found = of_start(TaskClass(view.task_class), now, night=night, kind=view.kind)
    if found.decision is Decision.ADMIT:
        return Verdict(Decision.ADMIT, "turn", "is about to start", view.changed)
    return found if found.since else Verdict(found.decision, found.code, found.words, view.changed)


def shape(found: Verdict | None) -> dict[str, Any] | None:
    """As `--json` has it; None for a task that does not wait."""
    return None if found is None else {**found.shape(), "since": rfc3339(found.since)}


# Waited
# ------
# What the agents of a run waited for at the supervisor, as its reports have it.


TOP = 10
"""Waits that are named."""


def of_tasks(db: sqlite3.Connection, tasks: Collection[str], now: float) -> dict[str, Any] | None:
    """Of these tasks by `now`, seconds since 1970; None where nobody waited. `waits`: how many; `seconds`: of all of them; `refused`,
    `given_up`: those that could never end; `top`: the longest by who waited for whom, `task`, `kind`, `for`, `waits`, `seconds`,
    `longest_s`. Of one task the newest `waits.KEPT` are known."""
    found, ends = lease_rows.waited(db, tasks, now), lease_rows.deadlocks(db, tasks)
    if not found and not any(ends):
        return None
    return {
        "waits": sum(one.times for one in found),
        "seconds": round(sum(one.seconds for one in found), 1),
        "refused": ends[0],
        "given_up": ends[1],
        "top": [
            {
                "task": one.task, "kind": str(one.kind), "for": list(one.holders), "waits": one.times,
                "seconds": round(one.seconds, 1), "longest_s": round(one.longest_s, 1),
            }
            for one in found[:TOP]
        ],
    }  # fmt: skip


def sentence(found: Mapping[str, Any]) -> str:
    """All but the list."""
    times = many(found["waits"], "time")
    said = f"Agents waited {times} for each other, for a person, a turn or a note: {age(found['seconds'])} together."
    circles = [
        f"{found['refused']} refused at once" if found["refused"] else "",
        f"{found['given_up']} given up" if found["given_up"] else "",
    ]
    named = ", ".join(one for one in circles if one)
    return f"{said} Waits that could never end: {named}." if named else said


def whom(one: Mapping[str, Any]) -> str:
    """For whom, or for what, one of the list waited."""
    return ", ".join(one["for"]) or {"rate": "its turn at a quota", "memory": "a note"}.get(one["kind"], one["kind"])
