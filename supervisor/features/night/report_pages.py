"""The morning report as a document: what its page and its Markdown say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from supervisor.features.night import report_rows, report_words
from supervisor.kernel.format import duration, listed, many, percent, stamped
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
TICKS = 5
"""Labels that a phone has room for below the lanes."""
_BAD = frozenset({"failed", "quarantined", "cancelled", "expired"})


def of_night(shape: Shape) -> Document:
    """The document for a night's report (`report.of`)."""
    facts = report_words.shown(shape)
    run, found, several = facts["run"], facts["verdict"], report_words.zoned(facts)
    trouble = f"Not everything could be read: {facts['trouble'][0]}" if facts["trouble"] else ""
    troubles = [one for one in facts["events"] if one["kind"] in ("outage", "breaker")]
    moments = [one for one in facts["events"] if one["kind"] not in ("outage", "breaker")]
    return Document(
        brand="morning report" if run["night"] else "report of a run",
        title=run["title"] or run["id"],
        verdict=Verdict(found["kind"], found["sign"], f"{found['word']}:", found["sentence"]),
        notes=[note for note in (found["why"], trouble) if note],
        meta=[code(facts["repository"]["root"]), report_words.period(run, facts["generated"])],
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
    blocks += [Text(f"Taken already: {listed(taken, report_words.NAMES_SHOWN)}.", "note")] if taken else []
    return Section("ready", "Ready to take", blocks, "To take", len(left))


def _takeable(one: Shape, on: str) -> Card:
    gate = Span("its gate passed", "good") if one["gate"] == "passed" else Span(f"its gate: {one['gate']}", "bad")
    size = f"{many(one['commits'], 'commit')}, {many(one['files'], 'file')} (+{one['plus']:,} −{one['minus']:,})"
    flags = [gate if one["gate"] else Span("it has no gate", "muted")]
    flags += [Span(f"tampering: {what}", "bad") for what in one["tampering"]]
    flags += [Span("its branch was removed", "warn")] if one["gone"] else []
    flags += [Span(what, "warn") for what in report_words.conflict(one, on)]
    return Card([_head(one, f", {size}"), *map(Text, flags), Text(command(one["command"]))])


def _elsewhere(one: Shape) -> Card:
    return Card([_head(one, " ", state(one["state"])), Text(f"It {report_words.ELSEWHERE}."), _commands(one["commands"])])


def _cost(facts: Shape) -> Iterator[Block]:
    spent = facts["figures"]["spent"]
    yield Figures(report_words.facts(facts))
    if facts["models"]:
        heads = ["Model", "Cost:", "Requests:", "Input:", "To cache:", "From cache:", "Output:", "Cache ratio:"]
        yield Table(heads, [_model(one) for one in facts["models"]])
    if spent["unpriced"]:
        yield Text(f"{many(spent['unpriced'], 'request')} went to models of no known price.", "note")
    if spent["estimated"]:
        yield Text(f"Of {many(spent['estimated'], 'request')} the provider never said the tokens; theirs are estimates.", "note")
    tasks = sorted((one for one in facts["tasks"] if one["attempts"]), key=lambda one: -one["spent"]["known_usd"])
    if tasks:
        rows: list[list[Line]] = [
            [code(one["name"]), state(one["state"]), *(cell for _, cell in report_words.task_figures(one))] for one in tasks
        ]
        yield Table(["Task", "State", *(f"{head}:" for head in report_words.TASK_FIGURES)], rows)


def _model(one: Shape) -> list[Line]:
    kinds = [f"{one['tokens'][kind]:,}" for kind in ("input", "cache_write", "cache_read", "output")]
    name = code(one["model"] or "not known any more")
    return [name, report_words.price(one), f"{one['requests']:,}", *kinds, percent(one["cache_hits"])]


def _time(facts: Shape, several: bool) -> Iterator[Block]:
    times, drawn = facts["figures"]["times"], facts["lanes"]
    if not drawn["rows"]:
        return
    yield _lanes(drawn, several)
    if times["measured"]:
        rows: list[list[Line]] = [[name, duration(value), percent(part)] for name, value, part in report_words.time_rows(times)]
        yield Table(["All agents together", "Time:", "Part:"], rows)
    else:
        yield Text("Nobody measured it.")
    if times["unmeasured"]:
        yield Text(f"Without an account of their time: {many(times['unmeasured'], 'attempt')} (still at work, or lost).", "note")
    yield Text(report_words.alone(facts), "lead")
    yield Text(facts["alone"]["how"], "note")


def _lanes(drawn: Shape, several: bool) -> Lanes:
    rows = [
        Lane(f"{row['name']}: {row['state']}", [(*span, "") for span in row["spans"]], row["state"] in _BAD, row["lost"])
        for row in drawn["rows"]
    ]
    used = {kind for row in drawn["rows"] for _, _, kind in row["spans"]}
    legend = [(kind, words) for kind, words in report_rows.KINDS.items() if kind in used]
    legend += [("slept", "the machine slept")] if drawn["slept"] else []
    return Lanes(rows, drawn["length_s"], [*legend, ("", "✗ an attempt that did not end well")], ticks(drawn, several), drawn["slept"])


def ticks(drawn: Shape, several: bool) -> list[tuple[float, str]]:
    """Where full hours (or minutes) of the local clock lie on the axis, in percent, and what they are called."""
    zero, length = report_words.local(drawn["zero"]), drawn["length_s"]
    step = next((step for step in document.STEPS_S if step >= 60 and length / step <= TICKS), document.STEPS_S[-1])
    midnight = zero.replace(hour=0, minute=0, second=0, microsecond=0)
    at = midnight + timedelta(seconds=step * (1 + (zero - midnight).total_seconds() // step))
    found: list[tuple[float, str]] = []
    while (since := (at - zero).total_seconds()) < length and len(found) < 2 * TICKS:
        found.append((round(100 * since / length, 2), report_words.clock(at.isoformat(), several)))
        at += timedelta(seconds=step)
    return found


def _again(again: Sequence[Shape], troubles: Sequence[Shape], several: bool) -> Iterator[Block]:
    if troubles:
        yield Table(["When", "What"], [_event(one, several) for one in troubles])
    if again:
        rows = [
            [code(one["name"]), str(each["epoch"]), report_words.clock(each["at"], several), each["cause"] or report_words.NO_CAUSE]
            for one in again
            for each in one["tries"]
        ]
        yield Table(["Task", "Attempt:", "At:", "Because"], rows, f"{many(len(rows), 'further attempt')} of {many(len(again), 'task')}")


def _event(one: Shape, several: bool) -> list[Line]:
    lasted = f" ({duration(one['seconds'])})" if one["seconds"] else ""
    return [f"{report_words.event_time(one, several)}{lasted}", one["words"]]


def _group(one: Shape) -> Card:
    names = listed([task["name"] for task in one["tasks"]], report_words.NAMES_SHOWN)
    return Card([Text((state(one["state"]), f" {one['reason']}")), Text(f"{many(len(one['tasks']), 'task')}: {names}", "note")])


def _against(facts: Shape) -> Section:
    other = facts["against"]
    if not other:
        return Section("against", "Compared", [])
    said = f"With {other['title'] or other['run']}, {stamped(other['began'])}. {other['verdict']}"
    table = Table(["Figure", "This one:", f"{other['run']}:"], report_words.compared(facts))
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
