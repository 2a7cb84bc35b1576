"""What all three forms of the morning report say, in sentences and numbers, and its document, which is rendered as HTML and Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from supervisor.features.night import morning_rows
from supervisor.features.night.morning_rows import Night, Spent, Task
from supervisor.kernel.ansi import in_texts
from supervisor.kernel.format import UNKNOWN, duration, listed, many, money, percent, short, stamped
from supervisor.kernel.states import TaskState
from supervisor.views import document
from supervisor.views.document import (
    Block,
    Card,
    Document,
    Figures,
    Items,
    Lane,
    Lanes,
    Line,
    Patch,
    Section,
    Span,
    Table,
    Text,
    Verdict,
    code,
    command,
    spaced,
    state,
    strong,
)
from supervisor.views.report.pages import choices, waits

Shape = Mapping[str, Any]
NO_CAUSE = "no cause was recorded"
ELSEWHERE = "left commits that are not on its branch; a ref of their own keeps them"
NAMES_SHOWN = 40
"""Names of tasks in a sentence."""
FILES_SHOWN = 8
"""Names of files that conflict, of one branch with another."""


# The verdict
# -----------


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


# Money, tokens and time
# ----------------------


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


# Rows that both pages have
# -------------------------


def sums(shape: Shape) -> list[tuple[str, str]]:
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


# What a page shows
# -----------------

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


# The pages
# ---------


TICKS = 5
"""Labels that a phone has room for below the lanes."""
_BAD = frozenset({"failed", "quarantined", "cancelled", "expired"})


def of_night(shape: Shape) -> Document:
    """The document for a night's report (`report.of`)."""
    facts = shown(shape)
    run, found, several = facts["run"], facts["verdict"], zoned(facts)
    trouble = f"Not everything could be read: {facts['trouble'][0]}" if facts["trouble"] else ""
    troubles = [one for one in facts["events"] if one["kind"] in ("outage", "breaker")]
    moments = [one for one in facts["events"] if one["kind"] not in ("outage", "breaker")]
    return Document(
        brand="morning report" if run["night"] else "report of a run",
        title=run["title"] or run["id"],
        verdict=Verdict(found["kind"], found["sign"], f"{found['word']}:", found["sentence"]),
        notes=[note for note in (found["why"], trouble) if note],
        meta=[code(facts["repository"]["root"]), period(run, facts["generated"])],
        sections=[
            _cards("needs", "Needs you", [_need(one) for one in facts["needs"]]),
            _cards("unwell", "Did not end well", [_unwell(one) for one in facts["unwell"]]),
            choices(facts.get("choices") or ()),
            _ready(facts),
            _cards("elsewhere", "Commits elsewhere", [_elsewhere(one) for one in facts["elsewhere"]]),
            Section("cost", "Cost and tokens", list(_cost(facts)), "Cost"),
            Section("time", "Where the time went", list(_time(facts, several)), "Time"),
            waits(facts.get("waits")),
            Section("again", "Retries and outages", list(_again(facts["again"], troubles, several)), "Retries and outages"),
            _table("machine", "Moments", ["When", "What"], [_event(one, several) for one in moments]),
            _cards("unstarted", "Not started", [_group(one) for one in facts["unstarted"]]),
            _against(facts),
            _cards("trouble", "Could not be read", [Card([Text(what)]) for what in facts["trouble"]]),
        ],
        footer=[_provenance(facts)],
    )


def _cards(name: str, title: str, cards: Sequence[Card]) -> Section:
    return Section(name, title, [Items(cards)] if cards else [], title, len(cards))


def _table(name: str, title: str, heads: Sequence[str], rows: Sequence[Sequence[Line]]) -> Section:
    return Section(name, title, [Table(heads, rows)] if rows else [])


def _head(one: Shape, *more: str | Span) -> Text:
    title = f" ({one['title']})" if one["title"] and one["title"] != one["name"] else ""
    return Text((strong(one["name"]), title, *more), "head")


def _commands(some: Sequence[str]) -> Text:
    return Text(spaced(map(command, some)))


def _patch(diff: Shape | None) -> Iterator[Text | Patch]:
    if diff and diff["lines"] != [""]:
        yield Patch(diff["lines"], "What it changed")
    if diff and diff["note"]:
        yield Text(diff["note"], "note")


def _need(one: Shape) -> Card:
    return Card([_head(one), *(Text(line, "ask") for line in one["question"]), *_patch(one["diff"]), _commands(one["commands"])])


def _unwell(one: Shape) -> Card:
    said = [Text(f"It said last: {one['said']}", "note")] if one["said"] and not one["printed"] else []
    printed = [Patch(one["printed"])] if one["printed"] else []
    tampering = [Text(Span(f"tampering: {what}", "bad")) for what in one["tampering"]]
    head = _head(one, " ", state(one["state"]))
    return Card(
        [head, Text(one["reason"], "ask"), *printed, *said, *tampering, *_patch(one["diff"]), _commands(one["commands"])], is_bad=True
    )


def _ready(facts: Shape) -> Section:
    left = [one for one in facts["ready"] if not one["taken"]]
    taken = [one["name"] for one in facts["ready"] if one["taken"]]
    on, not_tried = facts["repository"]["on"], facts["not_tried"]
    tried = f"Each was merged on trial into {on} and with each other, without touching anything."
    tried += f" {many(not_tried, 'pair')} of branches were too many to try." if not_tried else ""
    blocks: list[Block] = [Text(f"{tried} Run the commands in the repository.", "lead")] if left and on else []
    blocks += [Items([_takeable(one, on) for one in left])] if left else [Text("Nothing is left to take." if taken else "Nothing to take.")]
    blocks += [Text(f"Taken already: {listed(taken, NAMES_SHOWN)}.", "note")] if taken else []
    return Section("ready", "Ready to take", blocks, "To take", len(left))


def _takeable(one: Shape, on: str) -> Card:
    gate = Span("its gate passed", "good") if one["gate"] == "passed" else Span(f"its gate: {one['gate']}", "bad")
    size = f"{many(one['commits'], 'commit')}, {many(one['files'], 'file')} (+{one['plus']:,} −{one['minus']:,})"
    flags = [gate if one["gate"] else Span("it has no gate", "muted")]
    flags += [Span(f"tampering: {what}", "bad") for what in one["tampering"]]
    flags += [Span("its branch was removed", "warn")] if one["gone"] else []
    flags += [Span(what, "warn") for what in conflict(one, on)]
    return Card([_head(one, f", {size}"), *map(Text, flags), Text(command(one["command"]))])


def _elsewhere(one: Shape) -> Card:
    return Card([_head(one, " ", state(one["state"])), Text(f"It {ELSEWHERE}."), _commands(one["commands"])])


def _cost(facts: Shape) -> Iterator[Block]:
    spent = facts["figures"]["spent"]
    yield Figures(sums(facts))
    if facts["models"]:
        heads = ["Model", "Cost:", "Requests:", "Input:", "To cache:", "From cache:", "Output:", "Cache ratio:"]
        yield Table(heads, [_model(one) for one in facts["models"]])
    if spent["unpriced"]:
        yield Text(f"{many(spent['unpriced'], 'request')} went to models of no known price.", "note")
    if spent["estimated"]:
        yield Text(f"Of {many(spent['estimated'], 'request')} the provider never said the tokens; theirs are estimates.", "note")
    tasks = sorted((one for one in facts["tasks"] if one["attempts"]), key=lambda one: -one["spent"]["known_usd"])
    if tasks:
        rows: list[list[Line]] = [[code(one["name"]), state(one["state"]), *(cell for _, cell in task_figures(one))] for one in tasks]
        yield Table(["Task", "State", *(f"{head}:" for head in TASK_FIGURES)], rows)


def _model(one: Shape) -> list[Line]:
    kinds = [f"{one['tokens'][kind]:,}" for kind in ("input", "cache_write", "cache_read", "output")]
    name = code(one["model"] or "not known any more")
    return [name, price(one), f"{one['requests']:,}", *kinds, percent(one["cache_hits"])]


def _time(facts: Shape, several: bool) -> Iterator[Block]:
    times, drawn = facts["figures"]["times"], facts["lanes"]
    if not drawn["rows"]:
        return
    yield _lanes(drawn, several)
    if times["measured"]:
        rows: list[list[Line]] = [[name, duration(value), percent(part)] for name, value, part in time_rows(times)]
        yield Table(["All agents together", "Time:", "Part:"], rows)
    else:
        yield Text("Nobody measured it.")
    if times["unmeasured"]:
        yield Text(f"Without an account of their time: {many(times['unmeasured'], 'attempt')} (still at work, or lost).", "note")
    yield Text(alone(facts), "lead")
    yield Text(facts["alone"]["how"], "note")


def _lanes(drawn: Shape, several: bool) -> Lanes:
    rows = [
        Lane(f"{row['name']}: {row['state']}", [(*span, "") for span in row["spans"]], row["state"] in _BAD, row["lost"])
        for row in drawn["rows"]
    ]
    used = {kind for row in drawn["rows"] for _, _, kind in row["spans"]}
    legend = [(kind, words) for kind, words in morning_rows.KINDS.items() if kind in used]
    legend += [("slept", "the machine slept")] if drawn["slept"] else []
    return Lanes(rows, drawn["length_s"], [*legend, ("", "✗ an attempt that did not end well")], ticks(drawn, several), drawn["slept"])


def ticks(drawn: Shape, several: bool) -> list[tuple[float, str]]:
    """Where full hours (or minutes) of the local clock lie on the axis, in percent, and what they are called."""
    zero, length = local(drawn["zero"]), drawn["length_s"]
    step = next((step for step in document.STEPS_S if step >= 60 and length / step <= TICKS), document.STEPS_S[-1])
    midnight = zero.replace(hour=0, minute=0, second=0, microsecond=0)
    at = midnight + timedelta(seconds=step * (1 + (zero - midnight).total_seconds() // step))
    found: list[tuple[float, str]] = []
    while (since := (at - zero).total_seconds()) < length and len(found) < 2 * TICKS:
        found.append((round(100 * since / length, 2), clock(at.isoformat(), several)))
        at += timedelta(seconds=step)
    return found


def _again(again: Sequence[Shape], troubles: Sequence[Shape], several: bool) -> Iterator[Block]:
    if troubles:
        yield Table(["When", "What"], [_event(one, several) for one in troubles])
    if again:
        rows = [
            [code(one["name"]), str(each["epoch"]), clock(each["at"], several), each["cause"] or NO_CAUSE]
            for one in again
            for each in one["tries"]
        ]
        yield Table(["Task", "Attempt:", "At:", "Because"], rows, f"{many(len(rows), 'further attempt')} of {many(len(again), 'task')}")


def _event(one: Shape, several: bool) -> list[Line]:
    lasted = f" ({duration(one['seconds'])})" if one["seconds"] else ""
    return [f"{event_time(one, several)}{lasted}", one["words"]]


def _group(one: Shape) -> Card:
    names = listed([task["name"] for task in one["tasks"]], NAMES_SHOWN)
    return Card([Text((state(one["state"]), f" {one['reason']}")), Text(f"{many(len(one['tasks']), 'task')}: {names}", "note")])


def _against(facts: Shape) -> Section:
    other = facts["against"]
    if not other:
        return Section("against", "Compared", [])
    said = f"With {other['title'] or other['run']}, {stamped(other['began'])}. {other['verdict']}"
    table = Table(["Figure", "This one:", f"{other['run']}:"], compared(facts))
    return Section("against", "Compared", [Text(said, "lead"), table], "Compared")


def _provenance(facts: Shape) -> Line:
    run, repository = facts["run"], facts["repository"]
    return (
        "Run ", code(run["id"]), " of ", code(repository["root"]), ", ", code(repository["base"]), " = ", code(repository["commit"]),
        f"; written {stamped(facts['generated'])} by nightcrew {facts['nightcrew']}.",
    )  # fmt: skip


# Write
# -----


def render_html(shape: Shape) -> str:
    """The page of a report."""
    return document.render_html(of_night(shape))


def render_markdown(shape: Shape) -> str:
    """The same as GitHub's Markdown, for a terminal, a mail or a pull request."""
    return document.render_markdown(of_night(shape))


FORMATS: dict[str, Callable[[Shape], str]] = {"json": document.as_json, "md": render_markdown, "html": render_html}
"""By the name's ending; each says the same."""


def write(shape: Shape, directory: Path) -> Path:
    """Write night.json, night.md and night.html into `directory`, see `document.write`. Returns the page."""
    return document.write(of_night(shape), shape, directory, "night")
