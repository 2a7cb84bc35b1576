"""What all three forms say of a night, in sentences and numbers. Pure, but for the time zone of the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from supervisor.features.night.report_rows import Night, Spent, Task
from supervisor.kernel.ansi import in_texts
from supervisor.kernel.format import UNKNOWN, duration, listed, many, money, percent, short, stamped
from supervisor.kernel.states import TaskState
from supervisor.views.document import Verdict

Shape = Mapping[str, Any]
NO_CAUSE = "no cause was recorded"
ELSEWHERE = "left commits that are not on its branch; a ref of their own keeps them"
NAMES_SHOWN = 40
"""Names of tasks in a sentence."""
FILES_SHOWN = 8
"""Names of files that conflict, of one branch with another."""


# The verdict ------------------------------------------------------------------------------------------------------------------------


def verdict(night: Night) -> Verdict:
    """Whether the night succeeded, in one sentence: `word`, a colon and `sentence`. Of a night of which less than half is done it says that
    it failed."""
    what = f"The {noun(night)}"
    total, done = len(night.tasks), sum(task.state is TaskState.DONE for task in night.tasks)
    if not total:
        return Verdict("bad", "✗", f"{what} failed", "it has no task, so nothing ran.")
    count = f"{done or 'none'} of {many(total, 'task')} {'are' if done > 1 else 'is'} done"
    rest = listed([count, *_rest(night)])
    if night.ended is None:
        return Verdict("open", "●", f"{what} goes on", f"{rest}; {cost(night.spent)} so far.")
    if done == total:
        ready = sum(task.ready for task in night.tasks)
        all_of = "its task is done" if total == 1 else f"all {total:,} tasks are done"
        return Verdict(
            "good", "✓", f"{what} succeeded", f"{all_of}, {ready or 'none'} left commits to take, and it cost {cost(night.spent)}."
        )
    if not any(task.attempts for task in night.tasks):
        return Verdict("bad", "✗", f"{what} failed", f"none of {many(total, 'task')} was started.")
    if not done:
        return Verdict("bad", "✗", f"{what} failed", f"{rest}.")
    if 2 * done < total:
        return Verdict("bad", "✗", f"{what} failed for the most part", f"{rest}.")
    return Verdict("part", "!", f"{what} succeeded in part", f"{rest}.")


def noun(night: Night) -> str:
    return "night" if night.terms else "run"


def _rest(night: Night) -> list[str]:
    """What became of the tasks that are not done, each counted once."""
    asking = {task.id for task in night.needing}
    counts: Counter[str] = Counter(_fate(task, asking) for task in night.tasks if task.state is not TaskState.DONE)
    return [f"{counts[fate]:,} {_verb(fate, counts[fate])}" for fate in _FATES if counts[fate]]


_FATES = ("needs you", "failed", "quarantined", "unfinished", "running", "waits", "never started")


def _fate(task: Task, asking: set[str]) -> str:
    if task.id in asking:
        return "needs you"
    if task.final and not task.attempts:
        return "never started"
    if task.state in (TaskState.RUNNING, TaskState.FAILED, TaskState.QUARANTINED):
        return str(task.state)
    return "unfinished" if task.final else "waits"


def _verb(fate: str, count: int) -> str:
    one = count == 1
    return {
        "needs you": "needs you" if one else "need you",
        "quarantined": "was quarantined" if one else "were quarantined",
        "unfinished": "did not finish",
        "running": "runs" if one else "run",
        "waits": "waits" if one else "wait",
    }.get(fate, fate)


def commonest(night: Night) -> str:
    """The reason that most of the tasks have that did not end well or never started; empty when no two share one."""
    reasons = Counter(said for task in (*night.unwell, *night.unstarted) if task.final and (said := _said(task)))
    if not reasons or (found := reasons.most_common(1)[0])[1] < 2:
        return ""
    return f"The commonest reason, {found[1]} times: {found[0]}"


def reason(task: Task) -> str:
    """Why a task is in its state, without the state itself."""
    said = _said(task)
    last = task.attempts[-1].why if task.attempts else ""
    if said and last and said not in last and task.state is TaskState.EXPIRED:
        return f"{said}; its last attempt: {last}"
    return said or last


def _said(task: Task) -> str:
    return task.reason.removeprefix(f"{task.state}: ").removeprefix(str(task.state)).strip()


# Money, tokens and time ---------------------------------------------------------------------------------------------------------------


def cost(spent: Spent) -> str:
    """`$4.21`, `at least $4.21`, or that it is not known."""
    if not spent.unpriced:
        return money(spent.known_usd)
    return f"at least {money(spent.known_usd)}" if spent.known_usd else "a price that is not known"


def price(spent: Shape) -> str:
    """The same of a shape in a table: `$4.21`, `>$4.21`, `?` or a dash."""
    if not spent["requests"] and not spent["tokens"]["total"]:
        return UNKNOWN
    if not spent["unpriced"]:
        return money(spent["known_usd"])
    return f">{money(spent['known_usd'])}" if spent["known_usd"] else "?"


def tokens(spent: Shape) -> str:
    total = spent["tokens"]["total"]
    return short(total) if total else UNKNOWN


def clock(iso: str | None, zoned: bool) -> str:
    """The time of day where the report is written, with the name of the zone when more than one holds in the night."""
    return f"{local(iso):%H:%M %Z}" if iso and zoned else f"{local(iso):%H:%M}" if iso else UNKNOWN


def period(run: Shape, generated: str) -> str:
    """`2026-11-22 22:30 CET to 06:41 CET`; of one that goes on, until when is known of it."""
    began, last = local(run["began"]), run["ended"] or generated
    until = f"{local(last):%H:%M %Z}" if local(last) - began < timedelta(hours=24) else stamped(last)
    return f"{stamped(run['began'])} to {until}" if run["ended"] else f"since {stamped(run['began'])}, written at {until}"


def local(iso: str) -> datetime:
    return datetime.fromisoformat(iso).astimezone()


def zoned(shape: Shape) -> bool:
    """Whether the clock was put forward or back in the night."""
    run = shape["run"]
    moments = [local(run[name]).utcoffset() for name in ("began", "ended", "until") if run[name]]
    return len(set(moments)) > 1


# Rows that both pages have ------------------------------------------------------------------------------------------------------------


def facts(shape: Shape) -> list[tuple[str, str]]:
    """The night's own terms and figures, a name and a text each."""
    run, found = shape["run"], shape["figures"]
    spent, several = found["spent"], zoned(shape)
    cap = f", at most {money(run['cost_max'])}" if run["cost_max"] else ""
    until = f", until {clock(run['until'], several)}" if run["until"] else ""
    yet = "" if run["ended"] else " by now"
    return [
        ("Tasks done", f"{found['states'].get('done', 0):,} of {found['tasks']:,}"),
        ("Time", f"{duration(found['night_s'])}{yet}{until}"),
        ("Cost", f"{price(spent) if spent['requests'] else 'nothing'}{cap}"),
        ("Tokens", f"{tokens(spent)}, {percent(spent['cache_hits'])} of the input from a cache" if spent["tokens"]["total"] else "none"),
        ("Attempts", f"{found['attempts']:,}, {found['again']:,} of them again"),
        ("At the provider", f"{many(spent['requests'], 'request')}, {spent['refused']:,} refused with 429"),
    ]


TASK_FIGURES = ("Cost", "Tokens", "Cache ratio", "Working", "Waiting", "Attempts")
"""Columns of the table of tasks after name and state. Waiting is for tokens, for a slot, for a person and in pauses."""


def task_figures(one: Shape) -> list[tuple[str, str]]:
    """A task's cells in these columns, each with its head; a dash for what nobody knows."""
    spent, times = one["spent"], one["times"]
    waits = sum(times[name] for name in ("tokens_s", "slot_s", "person_s", "paused_s"))
    lasts = [duration(value) if times["measured"] else UNKNOWN for value in (times["working_s"], waits)]
    return list(zip(TASK_FIGURES, [price(spent), tokens(spent), percent(spent["cache_hits"]), *lasts, f"{one['attempts']:,}"], strict=True))


def time_rows(times: Shape) -> list[tuple[str, float, float | None]]:
    """Where the agents' time went: the words, the seconds, and the part of all of it."""
    rows = [
        ("at models", times["model_s"]),
        ("own work and tools", times["own_s"]),
        ("waiting for tokens", times["tokens_s"]),
        ("waiting for a person", times["person_s"]),
        ("paused", times["paused_s"]),
        ("starting", times["launch_s"]),
        ("waiting for a slot", times["slot_s"]),
    ]
    whole = sum(value for _, value in rows)
    return [(words, value, value / whole if whole else None) for words, value in rows]


def compared(shape: Shape) -> list[tuple[str, str, str]]:
    """Two nights: a name, this one and the other."""
    this, other = shape["figures"], shape["against"]["figures"]

    def row(found: Shape) -> list[str]:
        spent, times = found["spent"], found["times"]
        return [
            f"{found['states'].get('done', 0):,} of {found['tasks']:,}",
            f"{found['needs']:,}",
            f"{found['ready']:,}",
            f"{found['again']:,}",
            f"{found['outages']:,}",
            duration(found["night_s"]),
            price(spent),
            _each(spent, found),
            tokens(spent),
            percent(spent["cache_hits"]),
            duration(times["working_s"]),
            duration(times["tokens_s"]),
            duration(times["slot_s"]),
            duration(found["alone_s"]),
        ]

    return list(zip(_COMPARED, row(this), row(other), strict=True))


def _each(spent: Shape, found: Shape) -> str:
    done = found["states"].get("done", 0)
    return money(spent["cost_usd"] / done) if done and spent["cost_usd"] is not None and spent["requests"] else UNKNOWN


_COMPARED = (
    "Tasks done",
    "Need a person",
    "Ready to take",
    "Attempts again",
    "Outages",
    "Time",
    "Cost",
    "Cost of a task that is done",
    "Tokens",
    "Input from a cache",
    "Agents working",
    "Waiting for tokens",
    "Waiting for a slot",
    "One at a time (estimate)",
)


def event_time(event: Shape, several: bool) -> str:
    """`01:10 to 01:25`, `01:10, still`, `01:10`."""
    if event["until"] is None:
        return clock(event["at"], several) + (", still" if event["lasts"] else "")
    return f"{clock(event['at'], several)} to {clock(event['until'], several)}"


def conflict(one: Shape, on: str) -> list[str]:
    """Of what is ready to take: each branch that it would conflict with, and in which files."""
    base = [f"conflicts with {on} in {files(one['conflicts_with_base'])}"] if one["conflicts_with_base"] else []
    return base + [f"conflicts with {other['name']} in {files(other['files'])}" for other in one["conflicts_with"]]


def files(names: Sequence[str]) -> str:
    return listed(names, FILES_SHOWN)


def alone(shape: Shape) -> str:
    """What it would have cost with one agent at a time."""
    found = shape["alone"]
    if not found["times"]:
        return "No attempt has ended, so there is nothing to compare."
    return (
        f"One agent at a time it would have taken about {duration(found['seconds'])}, {found['times']:.1f} times the "
        f"{duration(found['together_s'])} from the first start to the last end; its tokens would have cost the same."
    )


HOW_ALONE = (
    "This is an estimate. It is the sum, over all attempts that have ended, of their start, their time at models and their own work, as "
    "their accounts say (of one without an account the time that it lived); the waits for a slot, for tokens, for a person and in pauses "
    "are left out. Alone an agent would have had the machine and the limits for itself, and its cache would have been used at other times."
)


# What a page shows --------------------------------------------------------------------------------------------------------------------

QUESTION_LINES, TEXT_MAX = 30, 1000
"""Of a text that an agent or a provider wrote; night.json has all of it."""
_TAB = 4


def shown(shape: Shape) -> dict[str, Any]:
    """The report as a page draws it: every text is harmless to look at, and those of several lines are lists of lines."""
    needs = [one | {"question": lines(one["question"])[:QUESTION_LINES], "diff": _diff(one)} for one in shape["needs"]]
    unwell = [one | {"diff": _diff(one), "printed": lines(one["printed"])} for one in shape["unwell"]]
    facts: dict[str, Any] = in_texts({**shape, "needs": needs, "unwell": unwell}, _cut)
    return facts


def _cut(text: str) -> str:
    """Without its end, when it is very long."""
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"


def lines(text: str) -> list[str]:
    return [line.expandtabs(_TAB).rstrip() for line in text.split("\n") if line.strip()]


def _diff(one: Shape) -> dict[str, Any] | None:
    found = one["diff"]
    return found and {"lines": [line.expandtabs(_TAB) for line in found["text"].removesuffix("\n").split("\n")], "note": found["note"]}
