"""The report as HTML and Markdown."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import cache, partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from memory import reports
from supervisor.features.best_of import view as best_of_view
from supervisor.features.conflicts import view as conflicts_view
from supervisor.host.files import atomic_write, private_dir
from supervisor.kernel.format import duration, many, stamped
from supervisor.views import waits as waited
from supervisor.views.report import model, words
from supervisor.views.report.words import Report, code, number, ratio, text

# Markdown
# --------
# report.md: the report for a terminal or a pull request.


MAX_FINDINGS = 50
"""In this form; report.html and report.json have all that were kept."""
MAX_PLACES = 5
"""Of one issue, beside the first."""


def render_markdown(report: words.Report) -> str:
    """The report (schema 1) as GitHub's Markdown, ending with a newline."""
    facts = words.shown(report)
    sections = [_head(facts), *_result(facts, report["prose"]), tries(facts.get("choices") or ())]
    if found := facts.get("conflicts"):
        sections.append(_conflicts(found))
    sections += _crew(facts)
    if used := facts.get("memory"):
        sections.append(_memory(used))
    if pairs := facts.get("mail"):
        sections.append(_mail(pairs))
    if found := facts.get("waits"):
        sections.append(waits(found))
    if words.compared(facts):
        sections.append(_parallel(facts))
    if facts["summary"]:
        sections.append(_method(facts["summary"]))
    sections.append(_provenance(facts))
    return "\n\n".join(section for section in sections if section) + "\n"


def _head(facts: Mapping[str, Any]) -> str:
    run, found = facts["run"], words.verdict(facts)
    where = f"{text(facts['repository']['name'])} at {code(facts['repository']['commit'][:12])}"
    hidden = f"; nobody looked at {', '.join(code(one) for one in facts['exclude'])}" if facts.get("exclude") else ""
    return (
        f"# {text(words.title(facts))}\n\n**{found.sign} {found.word}.** {text(found.sentence)}\n\n"
        f"{where}, {stamped(run['ended'] or run['started'] or run['submitted'], UTC)}, {duration(run['wall_s'])}, "
        f"{many(len(facts['tasks']), 'task')}{hidden}"
    )


def _result(facts: Mapping[str, Any], prose: Mapping[str, str] | None) -> Iterable[str]:
    summary = facts["summary"]
    if summary is None:
        yield _ready(facts)
        return
    yield _health(summary)
    if prose:
        yield "\n\n".join(f"> {text(one)}" for one in words.paragraphs(prose["text"]))
        model = text(facts["prose"]["model"])
        yield f"_Written by a model ({model}) from the figures here; where the two differ, the figures are right._"
    if summary["actions"]:
        yield "## Next\n\n" + "\n".join(f"{index}. {text(action)}" for index, action in enumerate(summary["actions"], 1))
    if summary["issues"]:
        yield "## What to fix first\n\n" + "\n".join(_issue(one) for one in words.issues(facts))
    yield _perspectives(summary)
    yield _hot_spots(summary["hot_spots"])
    yield _all_findings(facts)


def _ready(facts: Mapping[str, Any]) -> str:
    lines = [
        f"- {text(task['title'] or task['name'])}{_changes(task)}{_flags(facts, task)}: {code(words.command('take', task['id']))}"
        for task in facts["tasks"]
        if words.takeable(task)
    ]
    return "## To take\n\n" + "\n".join(lines) if lines else ""


def _flags(facts: Mapping[str, Any], task: Mapping[str, Any]) -> str:
    """A person's verdict on it, and with whom it conflicts."""
    said = task.get("review")
    why = f": {said['why']}" if said and said["why"] else ""
    verdict = [text(f"{said['verdict']}{why}")] if said else []
    clashes = [f"**conflicts with {text(what)}**" for what in conflicts_view.of_task(facts.get("conflicts"), task["id"])]
    return "".join(f", {one}" for one in (*verdict, *clashes))


def _changes(task: Mapping[str, Any]) -> str:
    diff = task["diff"]
    return f", {many(task['commits'], 'commit')}" + (f" (+{diff['plus']:,} −{diff['minus']:,})" if diff else "")


def _conflicts(found: Mapping[str, Any]) -> str:
    known = [(one, code(conflicts_view.files_of(one))) for one in found["conflicts"]]
    known += [(one, f"not known: {text(one['why'])}") for one in found["unknown"]]
    rows = [[code(one["task"]), code(one["with"] or found["base"]["branch"]), said] for one, said in known]
    lead = f"## Conflicts\n\n{text(conflicts_view.sentence(found))}"
    return lead + (f"\n\n{table(['Result', 'Conflicts with', 'In'], rows)}" if rows else "")


def _health(summary: Mapping[str, Any]) -> str:
    if summary["health"] is None:
        return "## Health: no score"
    basis = words.basis(summary)
    return f"## Health: {number(summary['health'])} of 100{basis and f', {basis}'}\n\n{words.health_sum(summary)}"


def _issue(issue: words.Issue) -> str:
    first, *others = issue.places
    more = ", ".join(code(place) for place in others[:MAX_PLACES]) + (", …" if len(others) > MAX_PLACES else "")
    return f"- **{issue.severity}** {code(first)} {text(issue.message)} ({text(issue.code)})" + (
        f"; {issue.others}: {more}" if others else ""
    )


def _findings(findings: Iterable[Mapping[str, Any]]) -> str:
    return "\n".join(f"- **{one['severity']}** {code(words.place(one))} {text(one['message'])} ({text(one['code'])})" for one in findings)


def _perspectives(summary: Mapping[str, Any]) -> str:
    rows = [
        [
            text(one["name"]),
            "done" if one["state"] == "done" else f"**{text(one['state'])}**" + (f": {text(one['reason'])}" if one["reason"] else ""),
            number(one["score_per_kloc"]),
            number(one["score"]),
            ", ".join(f"{count:,} {text(name.replace('_', ' '))}" for name, count in one["counts"].items()),
            " / ".join(number(one["severities"].get(name, 0)) for name in words.SEVERITIES) if one["severities"] else "",
        ]
        for one in summary["perspectives"]
    ]
    return "## Perspectives\n\n" + table(["Perspective", "State", "Per 1,000 lines:", "Plain:", "Counted", "High / medium / low:"], rows)


def _hot_spots(spots: Sequence[Mapping[str, Any]]) -> str:
    rows = [[code(words.file(one["file"])), number(one["high"]), number(one["medium"]), number(one["low"])] for one in spots]
    return "## Hot spots\n\n" + table(["File", "High:", "Medium:", "Low:"], rows) if rows else ""


def _all_findings(facts: Mapping[str, Any]) -> str:
    shown, total = facts["findings"][:MAX_FINDINGS], facts["findings_total"]
    if not shown:
        return ""
    title = f"The worst {len(shown)} of {many(total, 'finding')}" if total > len(shown) else many(total, "finding")
    return f"## Findings\n\n<details><summary>{title}</summary>\n\n{_findings(shown)}\n\n</details>"


def tries(groups: Sequence[Mapping[str, Any]]) -> str:
    """Each group of candidates: what came of it, its ranking and the reasons; empty where there is none."""
    return "\n\n".join(["## The best of several", *map(_group, groups)]) if groups else ""


def _group(group: Mapping[str, Any]) -> str:
    heads = ["Place", *(head.capitalize() + (":" if head in best_of_view.NUMBERS else "") for head in best_of_view.HEADS[1:])]
    rows = [[text(cell) for cell in row] for row in best_of_view.cells(group)]
    commands = "".join(f"; {code(command)}" for command in group["commands"])
    why = "\n".join(f"- {text(reason)}" for reason in best_of_view.reasons(group))
    return f"**{text(best_of_view.short(group['group']))}**: {text(group['said'])}{commands}\n\n{table(heads, rows)}\n\n{why}"


def _crew(facts: Mapping[str, Any]) -> Iterable[str]:
    lost = [f"- **{text(one.name)}** {one.state}: {text(one.reason)}; {code(one.command)}" for one in words.failures(facts)]
    if lost:
        yield "## Did not end well\n\n" + "\n".join(lost)
    if noted := [f"- **{text(name)}** {text(note)}" for name, note in words.notes(facts)]:
        yield "## Notes\n\n" + "\n".join(noted)
    taken = words.models(facts)
    heads = ["Task", "State", "Set-up:", "Work:", "CPU:", *(["Models"] if taken else []), "Last line"]
    rows = [_task(task, models=bool(taken)) for task in facts["tasks"]]
    said = [text(one) for one in (words.at_once(facts), f"Models: {taken}." if taken else "") if one]
    yield "\n\n".join(["## The crew", *said, table(heads, rows) if rows else "No task belongs to this run."])


def _task(task: Mapping[str, Any], *, models: bool) -> list[str]:
    time = words.spent(task)
    state = task["state"] + (f", attempt {task['epoch']}" if task["epoch"] > 1 else "")
    times = [duration(time.setup), duration(time.work), duration(task["cpu_s"])]
    return [code(task["name"]), state, *times, *([text(words.models(task))] if models else []), code(words.last_line(task))]


def _memory(used: Mapping[str, Any]) -> str:
    rows = [[code(one["path"]), number(one["given"]), number(one["asked"]), number(one["agents"])] for one in used["top"]]
    heads = ["Note", "Before a prompt:", "Asked for:", "Agents:"]
    return f"## What they knew\n\n{text(reports.sentence(used))}" + (f"\n\n{table(heads, rows)}" if rows else "")


def _mail(pairs: Sequence[Mapping[str, Any]]) -> str:
    rows = [[code(one["from"]), code(one["to"]), number(one["messages"]), number(one["tokens"])] for one in pairs]
    return f"## What they wrote to each other\n\n{table(['From', 'To', 'Messages:', 'Tokens:'], rows)}"


def waits(found: Mapping[str, Any]) -> str:
    """Who waited for whom, and how long."""
    rows = [
        [code(one["task"]), code(waited.whom(one)), one["kind"], number(one["waits"]), duration(one["seconds"])] for one in found["top"]
    ]
    said = f"## What they waited for\n\n{text(waited.sentence(found))}"
    return said + (f"\n\n{table(['Task', 'For', 'Kind', 'Waits:', 'Time:'], rows)}" if rows else "")


def _parallel(facts: Mapping[str, Any]) -> str:
    figures, summary = facts["figures"], facts["summary"]
    said = f"{text(summary['parallel'])}\n\n" if summary and summary["parallel"] else ""
    rows = [
        [text(one["name"]), duration(one["alone_s"]), duration(one["together_s"]), duration(one["setup_s"])] for one in figures["per_agent"]
    ]
    compared = (
        f"Faster {ratio(figures['speedup'])} times, the work alone {ratio(figures['speedup_work'])} times; efficiency "
        f"{ratio(figures['efficiency_agents'])} of {many(figures['agents'], 'agent')}, {ratio(figures['efficiency_usable'])} of "
        f"{many(figures['usable_cores'], 'usable core')}.\n\n"
    )
    return "## At once\n\n" + said + compared + table(["Agent", "Alone:", "At once:", "Set-up:"], rows)


def _method(summary: Mapping[str, Any]) -> str:
    rows = [
        [
            text(one["name"]),
            number(summary["weights"].get(one["name"], 0)),
            *map(code, words.formulas(one)),
        ]
        for one in summary["perspectives"]
    ]
    return (
        "## How it was computed\n\n" + table(["Perspective", "Weight:", "Score per 1,000 lines", "Plain score"], rows) + "\n\n"
        "The health is the mean of the scores per 1,000 lines by weight, over the perspectives that have one."
    )


def _provenance(facts: Mapping[str, Any]) -> str:
    run, repository = facts["run"], facts["repository"]
    return (
        f"---\n\n{text(repository['name'])}, {code(repository['base'])} = {code(repository['commit'])}; run {code(run['id'])}, "
        f"submitted {stamped(run['submitted'], UTC)}, written {stamped(facts['generated'], UTC)} by nightcrew {text(facts['nightcrew'])}"
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A head that ends with a colon is a column of numbers. The cells are escaped by who calls."""
    lines = [[head.rstrip(":") for head in heads], ["--:" if head.endswith(":") else "---" for head in heads], *rows]
    return "\n".join(f"| {' | '.join(cell or '–' for cell in line)} |" for line in lines)


# Page
# ----
# What our pages have in common: each is one file that opens from a disk without a network, and runs nothing that it was not written
# with.
#
# A page's policy allows exactly the script and the style sheet that we ship, by their hashes, and no connection to anywhere. The
# templates escape every text.


HERE = Path(__file__).parent
"""`report.css`, `copy.js` and `macros.html.j2` are every page's."""


def page_policy(script: str, style: str) -> str:
    """The page's Content-Security-Policy."""
    allowed = f"script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def page_text(file: Path) -> str:
    """A file of ours."""
    return file.read_text(encoding="utf-8")


def environment(directory: Path) -> Environment:
    """For the templates of `directory`, which may import `macros.html.j2`. What they print is escaped; what is not there is an error."""
    loader = FileSystemLoader([directory, HERE])
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.globals |= {"words": words}
    return made


# Html
# ----
# report.html: one file that opens from a disk without a network, see `page`. The charts' data is JSON that cannot end its own
# element.


_HERE = Path(__file__).parent


def render_html(report: words.Report) -> str:
    """The page for `report` (schema 1), with no reference to any other file."""
    facts = words.shown(report)
    drawn, panels = model.all_charts(facts), model.timeline(facts)
    script, style = _script(), _style()
    return (
        _environment()
        .get_template("template.html.j2")
        .render(
            report=facts,
            prose=report["prose"] and words.paragraphs(report["prose"]["text"]),
            verdict=words.verdict(facts),
            memory_sentence=reports.sentence,
            waited=waited,
            candidates=best_of_view,
            conflicts=conflicts_view,
            failures=words.failures(facts),
            issues=words.issues(facts) if facts["summary"] else [],
            ready=[task for task in facts["tasks"] if words.takeable(task)],
            charts=drawn,
            panels=panels,
            styles=model.styles(panels),
            data=json_island(drawn),
            script=script,
            style=style,
            policy=page_policy(script, style),
        )
    )


def report_policy() -> str:
    """The policy of every page that `render` makes."""
    return page_policy(_script(), _style())


def json_island(value: Any) -> str:
    """JSON for inside `<script type="application/json">`: without any character that could end the element or a line of JavaScript."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate({ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


@cache
def _script() -> str:
    licence = page_text(_HERE / "vendor/LICENSE").rstrip()
    figures = page_text(_HERE.parent / "web/static/format.js").replace("\nexport ", "\n")
    ours = "\n".join([figures, *(page_text(_HERE / name) for name in ("vendor/uPlot.iife.min.js", "report.js", "copy.js"))])
    return f"/*!\nuPlot draws the charts.\n{licence}\n*/\n{ours}"


@cache
def _style() -> str:
    return "\n".join(page_text(_HERE / name) for name in ("vendor/uPlot.min.css", "report.css"))


@cache
def _environment() -> Environment:
    made = environment(_HERE)
    made.filters |= {
        "number": words.number,
        "ratio": words.ratio,
        "duration": duration,
        "stamped": partial(stamped, zone=UTC),
        "many": many,
    }
    return made


# Write
# -----
# Writes a report where people find it.


@dataclass(frozen=True, slots=True)
class Written:
    """The three files; each says the same."""

    html: Path
    markdown: Path
    json: Path


def write(report: Report, directory: Path) -> Written:
    """Write report.html, report.md and report.json into `directory` (made, private, when missing), each whole or not at all and
    readable by its owner alone. Raises DiskFull, ToolFailed or Refused.

    report.json is written first: the pages can be made again from it.
    """
    if not directory.exists():
        private_dir(directory)
    paths = Written(directory / "report.html", directory / "report.md", directory / "report.json")
    atomic_write(paths.json, json.dumps(report, indent=1, allow_nan=False).encode() + b"\n")
    atomic_write(paths.markdown, render_markdown(report).encode())
    atomic_write(paths.html, render_html(report).encode())
    return paths
