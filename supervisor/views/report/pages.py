"""The report of a run as a document: what the page and the Markdown say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

from memory import reports
from supervisor.kernel.format import duration, many, stamped
from supervisor.results import comparison, conflicts
from supervisor.views import document, figures
from supervisor.views import waits as waited
from supervisor.views.document import (
    Block,
    Card,
    Document,
    Figures,
    Items,
    Line,
    Section,
    Span,
    Table,
    Text,
    code,
    command,
    spaced,
    state,
    strong,
)
from supervisor.views.report import model, words
from supervisor.views.report.words import Report, number, ratio

MAX_PLACES = 5
"""Of one issue, beside the first."""

Shape = Mapping[str, Any]


def of_report(report: Report) -> Document:
    """The document for `report` (schema 1). The summary of an analysis that is too young to know anything is left out."""
    summary = report["summary"] if words.known(report) else None
    report = {**report, "summary": summary}
    verdict = words.verdict(report)
    return Document(
        brand="report",
        title=words.title(report),
        verdict=replace(verdict, word=f"{verdict.word}."),
        meta=list(_meta(report)),
        sections=[
            *(_analysis(report, summary) if summary else [Section("take", "To take", _ready(report), "To take")]),
            choices(report.get("choices") or ()),
            _conflicts(report.get("conflicts")),
            Section("crew", "The crew", list(_crew(report)), "Crew"),
            Section("routes", "Routes by the weight of work", _routes(report.get("routes") or ())),
            _memory(report.get("memory")),
            _mail(report.get("mail") or ()),
            waits(report.get("waits")),
            _parallel(report),
            _method(summary),
        ],
        footer=[_provenance(report)],
    )


def _meta(report: Report) -> Iterator[Line]:
    run, repository = report["run"], report["repository"]
    yield f"{repository['name']} at ", code(repository["commit"][:12])
    yield stamped(run["ended"] or run["started"] or run["submitted"], UTC)
    yield duration(run["wall_s"])
    yield many(len(report["tasks"]), "task")
    if hidden := report.get("exclude"):
        yield ["nobody looked at ", *spaced(map(code, hidden))]


def _provenance(report: Report) -> Line:
    run, repository = report["run"], report["repository"]
    return (
        f"{repository['name']}, ", code(repository["base"]), " = ", code(repository["commit"]), "; run ", code(run["id"]),
        f", submitted {stamped(run['submitted'], UTC)}, written {stamped(report['generated'], UTC)} by nightcrew {report['nightcrew']}.",
    )  # fmt: skip


# An analysis
# -----------


def _analysis(report: Report, summary: Shape) -> Iterator[Section]:
    yield _health(summary)
    if prose := report["prose"]:
        said = "from the figures here. Where the two differ, the figures are right."
        by = Text((strong("Written by a model"), f" ({prose['model']}) {said}"), "note")
        yield Section("prose", "In words", [*map(Text, words.paragraphs(prose["text"])), by])
    if actions := summary["actions"]:
        yield Section("actions", "Next", [Items(actions, ordered=True)], "Next")
    if issues := words.issues(report):
        yield Section("fix", "What to fix first", [Items([_issue(one) for one in issues])], "Fix first")
    yield Section("perspectives", "Perspectives", [_perspectives(summary["perspectives"])], "Perspectives")
    if spots := summary["hot_spots"]:
        rows: list[list[Line]] = [[code(words.file(one["file"])), *(number(one[name]) for name in words.SEVERITIES)] for one in spots]
        table = Table(["File", "High:", "Medium:", "Low:"], rows, summary=f"{many(len(spots), 'file')} as a table")
        yield Section("hot", "Hot spots", [model.hot_spots(summary), table], "Hot spots")
    if report["findings"]:
        yield Section("findings", "Findings", [_findings(report)], "Findings")


def _health(summary: Shape) -> Section:
    if summary["health"] is None:
        return Section("health", "Health: no score", [model.scores(summary)])
    basis = words.basis(summary)
    title = f"Health: {number(summary['health'])} of 100{basis and f', {basis}'}"
    return Section("health", title, [model.scores(summary), Text(words.health_sum(summary), "note")])


def _severity(finding: Shape) -> Span:
    return Span(finding["severity"], finding["severity"])


def _issue(issue: words.Issue) -> Card:
    first, *others = issue.places
    shown = [code(place) for place in others[:MAX_PLACES]]
    more: list[str | Span] = [f" and {issue.others}: ", *spaced(shown), " …" if len(others) > MAX_PLACES else ""] if others else []
    place = first if first == words.REPOSITORY_WIDE else command(first)
    found = Span(f"{issue.code}, {issue.perspective}", "muted")
    return Card([Text((Span(issue.severity, issue.severity), f" {issue.message} ", found)), Text([place, *more])])


def _perspectives(found: Sequence[Shape]) -> Table:
    heads = ["Perspective", "State", "Per 1,000 lines:", "Plain:", "Counted", "High / medium / low:"]
    extra = [name for name, usual in (("unparsable", 0), ("shards", 1)) if any(one[name] != usual for one in found)]
    labels = {"unparsable": "Unparsable:", "shards": "Parts:"}
    rows: list[list[Line]] = [
        [
            one["name"],
            (state(one["state"]), f" {one['reason']}"),
            number(one["score_per_kloc"]),
            number(one["score"]),
            ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in one["counts"].items()),
            " / ".join(number(one["severities"].get(name, 0)) for name in words.SEVERITIES) if one["severities"] else "",
            *(number(one[name]) for name in extra),
        ]
        for one in found
    ]
    return Table([*heads, *(labels[name] for name in extra)], rows)


def _findings(report: Report) -> Table:
    shown, total = report["findings"], report["findings_total"]
    title = f"The worst {len(shown):,} of {many(total, 'finding')}" if total > len(shown) else many(total, "finding")
    rows: list[list[Line]] = [[_severity(one), code(words.place(one)), one["message"], one["code"], one["perspective"]] for one in shown]
    return Table(["Severity", "Place", "Finding", "Code", "Perspective"], rows, summary=title, searchable=True)


def _method(summary: Shape | None) -> Section:
    if summary is None:
        return Section("method", "How it was computed", [])
    rows: list[list[Line]] = [
        [one["name"], number(summary["weights"].get(one["name"], 0)), *map(code, words.formulas(one))] for one in summary["perspectives"]
    ]
    said = (
        "The health is the mean of the scores per 1,000 lines by weight, over the perspectives that have one. The weights are a judgement, "
        "not a measurement. The plain scores suit small repositories: on a large one they are 0 for nearly everybody."
    )
    table = Table(["Perspective", "Weight:", "Score per 1,000 lines", "Plain score"], rows)
    return Section("method", "How it was computed", [table, Text(said, "note")], "Method")


def _parallel(report: Report) -> Section:
    figures, summary = report["figures"], report["summary"]
    if not words.compared(report):
        return Section("parallel", "At once", [])
    pairs = [
        ("One after another", duration(figures["sequential_s"])),
        ("At once", duration(figures["parallel_s"])),
        ("Faster", f"{ratio(figures['speedup'])} ×"),
        ("Faster, work alone", f"{ratio(figures['speedup_work'])} ×"),
        ("Set-up at once", duration(figures["setup_s"])),
        ("Work at once", duration(figures["work_s"])),
        (f"Efficiency of {many(figures['agents'], 'agent')}", ratio(figures["efficiency_agents"])),
        (f"Efficiency of {many(figures['usable_cores'], 'usable core')}", ratio(figures["efficiency_usable"])),
    ]
    rows: list[list[Line]] = [
        [one["name"], duration(one["alone_s"]), duration(one["together_s"]), duration(one["setup_s"])] for one in figures["per_agent"]
    ]
    said = [Text(summary["parallel"], "lead")] if summary and summary["parallel"] else []
    return Section("parallel", "At once", [*said, Figures(pairs), Table(["Agent", "Alone:", "At once:", "Set-up:"], rows)], "At once")


# The crew
# --------


def _ready(report: Report) -> list[Block]:
    cards = [_takeable(report, task) for task in report["tasks"] if words.takeable(task)]
    return [Items(cards)] if cards else []


def _takeable(report: Report, task: Shape) -> Card:
    diff, said = task["diff"], task.get("review")
    size = f", {many(task['commits'], 'commit')}" + (f" (+{diff['plus']:,} −{diff['minus']:,})" if diff else "")
    verdict = [f", {said['verdict']}{': ' + said['why'] if said['why'] else ''}"] if said else []
    clashes = [Span(f"conflicts with {what}", "bad") for what in conflicts.of_task(report.get("conflicts"), task["id"])]
    commands = [command(words.command(verb, task["id"])) for verb in ("review", "take")]
    return Card([Text((strong(task["title"] or task["name"]), size, *verdict)), *map(Text, clashes), Text(spaced(commands))])


def _conflicts(found: Shape | None) -> Section:
    if not found:
        return Section("conflicts", "Conflicts", [])
    said: list[tuple[Shape, Line]] = [(one, code(conflicts.files_of(one))) for one in found["conflicts"]]
    said += [(one, f"not known: {one['why']}") for one in found["unknown"]]
    rows = [[code(one["task"]), code(one["with"] or found["base"]["branch"]), why] for one, why in said]
    table = [Table(["Result", "Conflicts with", "In"], rows)] if rows else []
    return Section("conflicts", "Conflicts", [Text(conflicts.sentence(found), "lead"), *table], "Conflicts")


def _crew(report: Report) -> Iterator[Block]:
    if said := words.at_once(report):
        yield Text(said, "lead")
    if lost := words.failures(report):
        yield Text(strong("Did not end well"))
        yield Items([_lost(one) for one in lost])
    if noted := words.notes(report):
        yield Text(strong("Notes"))
        yield Items([(strong(name), f" {note}") for name, note in noted])
    for title, lanes in model.timeline(report):
        yield from ([Text(strong(title))] if title else [])
        yield lanes
    taken = words.models(report)
    if taken:
        yield Text(f"Models: {taken}.", "note")
    alone = [task for task in report["tasks"] if task["phase"] == "baseline"]
    crew = [task for task in report["tasks"] if task["phase"] != "baseline"]
    if crew:
        yield _tasks(crew, models=bool(taken))
    if alone:
        yield replace(_tasks(alone, models=bool(taken)), summary=f"{many(len(alone), 'task')} of the baseline")
    if not report["tasks"]:
        yield Text("No task belongs to this run.")


def _lost(one: words.Failure) -> Card:
    return Card([Text((strong(one.name), " ", state(one.state), f" {one.reason}")), Text(command(one.command))])


def _tasks(tasks: Iterable[Shape], *, models: bool) -> Table:
    heads = ["Task", "State", "Title", "Set-up:", "Work:", "CPU:", "Changes:", *(["Models"] if models else []), "Last line"]
    return Table(heads, [_task(task, models=models) for task in tasks])


def _task(task: Shape, *, models: bool) -> list[Line]:
    time, diff = words.spent(task), task["diff"]
    return [
        code(task["name"]),
        [state(task["state"]), f" attempt {task['epoch']}" if task["epoch"] > 1 else ""],
        task["title"] if task["title"] != task["name"] else "",
        duration(time.setup),
        duration(time.work),
        duration(task["cpu_s"]),
        f"+{diff['plus']:,} −{diff['minus']:,}" if task["commits"] and diff else "",
        *([words.models(task)] if models else []),
        code(words.last_line(task)) if task["last_line"] else "",
    ]


def _routes(found: Sequence[Shape]) -> list[Block]:
    rows: list[list[Line]] = [[weight, code(to), *rest] for weight, to, *rest in map(figures.work, found)]
    return [Table(list(figures.WORK), rows)] if rows else []


def _memory(used: Shape | None) -> Section:
    if not used:
        return Section("memory", "What they knew", [])
    rows: list[list[Line]] = [[code(one["path"]), number(one["given"]), number(one["asked"]), number(one["agents"])] for one in used["top"]]
    table = [Table(["Note", "Before a prompt:", "Asked for:", "Agents:"], rows)] if rows else []
    return Section("memory", "What they knew", [Text(reports.sentence(used), "lead"), *table])


def _mail(pairs: Sequence[Shape]) -> Section:
    rows: list[list[Line]] = [[code(one["from"]), code(one["to"]), number(one["messages"]), number(one["tokens"])] for one in pairs]
    return Section("mail", "What they wrote to each other", [Table(["From", "To", "Messages:", "Tokens:"], rows)] if rows else [])


# Parts of every report
# ---------------------


def waits(found: Shape | None) -> Section:
    """Who waited for whom, and how long."""
    if not found:
        return Section("waits", "What they waited for", [])
    rows: list[list[Line]] = [
        [code(one["task"]), code(waited.whom(one)), one["kind"], number(one["waits"]), duration(one["seconds"])] for one in found["top"]
    ]
    table = [Table(["Task", "For", "Kind", "Waits:", "Time:"], rows)] if rows else []
    return Section("waits", "What they waited for", [Text(waited.sentence(found), "lead"), *table])


def choices(groups: Sequence[Shape]) -> Section:
    """Each group of candidates: what came of it, its ranking and the reasons."""
    return Section("choices", "The best of several", [block for group in groups for block in _group(group)], "Best of several")


def _group(group: Shape) -> Iterator[Block]:
    heads = [head.capitalize() + (":" if head in comparison.NUMBERS else "") for head in comparison.HEADS[1:]]
    name = strong(comparison.short(group["group"]))
    yield Text([name, f": {group['said']} ", *spaced(map(command, group["commands"]))])
    yield Table(["Place", *heads], comparison.cells(group))
    yield Items(comparison.reasons(group))


# Write
# -----


def render_html(report: Report) -> str:
    """The page for `report` (schema 1)."""
    return document.render_html(of_report(report))


def render_markdown(report: Report) -> str:
    """The same as GitHub's Markdown."""
    return document.render_markdown(of_report(report))


def write(report: Report, directory: Path) -> Path:
    """Write report.json, report.md and report.html into `directory`, see `document.write`. Returns the page."""
    return document.write(of_report(report), report, directory, "report")
