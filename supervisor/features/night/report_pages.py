"""The morning report as a page and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment

from supervisor.features.best_of import view as best_of_view
from supervisor.features.night import report_rows, report_words
from supervisor.host.files import atomic_write, private_dir
from supervisor.kernel.format import duration, many, percent, stamped
from supervisor.views import waits as waited
from supervisor.views.report import pages
from supervisor.views.report.pages import table, tries, waits
from supervisor.views.report.words import code, number, text

# Markdown
# --------
# night.md: the report for a terminal, a mail or a pull request, in the order of the page.


TASKS = 40
"""Rows of a table here; night.html and night.json have all."""


def render_markdown(shape: Mapping[str, Any]) -> str:
    """The report (see `shape`) as GitHub's Markdown, ending with a newline."""
    facts = report_words.shown(shape)
    return "\n\n".join(section for section in _sections(facts) if section) + "\n"


def _sections(facts: Mapping[str, Any]) -> Iterator[str]:
    several = report_words.zoned(facts)
    yield _head(facts)
    yield _list("Needs you", [_need(one) for one in facts["needs"]])
    yield _list("Did not end well", [_unwell(one) for one in facts["unwell"]])
    yield tries(facts.get("choices") or ())
    yield from _ready(facts)
    yield from _cost(facts)
    yield from _time(facts)
    if found := facts.get("waits"):
        yield waits(found)
    yield from _again(facts, several)
    moments = [one for one in facts["events"] if one["kind"] not in ("outage", "breaker")]
    yield _list("Moments", [_event(one, several) for one in moments])
    yield _list("Not started", [_group(one) for one in facts["unstarted"]])
    if facts["against"]:
        yield _against(facts)
    yield _list("Could not be read", [text(what) for what in facts["trouble"]])
    yield _provenance(facts)


def _list(title: str, lines: Sequence[str]) -> str:
    more = [f"- and {len(lines) - TASKS:,} more, in night.html"] if len(lines) > TASKS else []
    return f"## {title}\n\n" + "\n".join([*(f"- {line}" for line in lines[:TASKS]), *more]) if lines else ""


def _head(facts: Mapping[str, Any]) -> str:
    run, found = facts["run"], facts["verdict"]
    trouble = f"Not everything could be read: {facts['trouble'][0]}" if facts["trouble"] else ""
    why = "".join(f"\n\n{text(note)}" for note in (found["why"], trouble) if note)
    return (
        f"# {text(run['title'] or run['id'])}\n\n**{found['sign']} {found['word']}:** {text(found['sentence'])}{why}\n\n"
        f"{code(facts['repository']['root'])}, {text(report_words.period(run, facts['generated']))}"
    )


def _name(one: Mapping[str, Any]) -> str:
    title = f" ({text(one['title'])})" if one["title"] and one["title"] != one["name"] else ""
    return f"**{text(one['name'])}**{title}"


def _commands(some: Sequence[str]) -> str:
    return ", ".join(map(code, some))


def _need(one: Mapping[str, Any]) -> str:
    return f"{_name(one)}: {text(' '.join(one['question']))} {_commands(one['commands'])}"


def _unwell(one: Mapping[str, Any]) -> str:
    tampering = "".join(f"; **tampering**: {text(what)}" for what in one["tampering"])
    said = f"; {code(one['printed'][-1])}" if one["printed"] else ""
    return f"{_name(one)} {one['state']}: {text(one['reason'])}{said}{tampering}; {_commands(one['commands'])}"


def _ready(facts: Mapping[str, Any]) -> Iterator[str]:
    left = [one for one in facts["ready"] if not one["taken"]]
    yield _list("Ready to take", [_takeable(one, facts["repository"]["on"]) for one in left]) or "## Ready to take\n\nNothing."
    if taken := [one for one in facts["ready"] if one["taken"]]:
        yield f"Taken already: {text(report_words.names(taken))}."
    yield _list("Commits elsewhere", [f"{_name(one)} {report_words.ELSEWHERE}: {_commands(one['commands'])}" for one in facts["elsewhere"]])


def _takeable(one: Mapping[str, Any], on: str) -> str:
    gate = {"passed": "gate passed", "": "no gate", None: "no gate"}.get(one["gate"]) or f"gate: {text(one['gate'])}"
    flags = [f"**{text(what)}**" for what in report_words.conflict(one, on)] + [f"**tampering**: {text(what)}" for what in one["tampering"]]
    size = f"{many(one['commits'], 'commit')}, {many(one['files'], 'file')} (+{one['plus']:,} −{one['minus']:,})"
    return "; ".join([f"{_name(one)}, {size}", gate, *flags, code(one["command"])])


def _cost(facts: Mapping[str, Any]) -> Iterator[str]:
    yield "## Cost and tokens\n\n" + table(["", ""], [[name, text(value)] for name, value in report_words.facts(facts)])
    if facts["models"]:
        heads = ["Model", "Cost:", "Requests:", "Input:", "To cache:", "From cache:", "Output:", "Cache ratio:"]
        yield table(heads, [_model(one) for one in facts["models"]])
    tasks = sorted((one for one in facts["tasks"] if one["attempts"]), key=lambda one: -one["spent"]["known_usd"])
    if tasks:
        heads = ["Task", "State", *(f"{head}:" for head in report_words.TASK_FIGURES)]
        more = f"\n\nand {len(tasks) - TASKS:,} more, in night.html" if len(tasks) > TASKS else ""
        yield table(heads, [_task(one) for one in tasks[:TASKS]]) + more


def _model(one: Mapping[str, Any]) -> list[str]:
    kinds = [f"{one['tokens'][kind]:,}" for kind in ("input", "cache_write", "cache_read", "output")]
    return [
        code(one["model"] or "not known any more"),
        text(report_words.price(one)),
        f"{one['requests']:,}",
        *kinds,
        percent(one["cache_hits"]),
    ]


def _task(one: Mapping[str, Any]) -> list[str]:
    return [code(one["name"]), one["state"], *(text(cell) for _, cell in report_words.task_figures(one))]


def _time(facts: Mapping[str, Any]) -> Iterator[str]:
    times = facts["figures"]["times"]
    if not facts["lanes"]["rows"]:
        return
    rows = [[name, duration(value), percent(part)] for _, name, value, part in report_words.time_rows(times)]
    yield "## Where the time went\n\n" + (
        table(["All agents together", "Time:", "Part:"], rows) if times["measured"] else "Nobody measured it."
    )
    if times["unmeasured"]:
        yield f"Without an account of their time: {many(times['unmeasured'], 'attempt')} (still at work, or lost)."
    yield f"{text(report_words.alone(facts))}\n\n_{facts['alone']['how']}_"


def _again(facts: Mapping[str, Any], several: bool) -> Iterator[str]:
    troubles = [_event(one, several) for one in facts["events"] if one["kind"] in ("outage", "breaker")]
    tries = [
        f"{text(one['name'])}, attempt {each['epoch']} at {report_words.clock(each['at'], several)}: "
        f"{text(each['cause'] or report_words.NO_CAUSE)}"
        for one in facts["again"]
        for each in one["tries"]
    ]
    yield _list("Retries and outages", [*troubles, *tries])


def _event(one: Mapping[str, Any], several: bool) -> str:
    lasted = f" ({duration(one['seconds'])})" if one["seconds"] else ""
    return f"{report_words.event_time(one, several)}{lasted}: {text(one['words'])}"


def _group(one: Mapping[str, Any]) -> str:
    return f"**{one['state']}**: {text(one['reason'])}; {many(len(one['tasks']), 'task')}: {text(report_words.names(one['tasks']))}"


def _against(facts: Mapping[str, Any]) -> str:
    other = facts["against"]
    rows = [[name, text(this), text(that)] for name, this, that in report_words.compared(facts)]
    said = f"With {text(other['title'] or other['run'])}, {text(stamped(other['began']))}. {text(other['verdict'])}"
    return f"## Compared\n\n{said}\n\n" + table(["", "This one:", f"{other['run']}:"], rows)


def _provenance(facts: Mapping[str, Any]) -> str:
    run, repository = facts["run"], facts["repository"]
    return (
        f"---\n\nRun {code(run['id'])} of {code(repository['root'])}, {code(repository['base'])} = {code(repository['commit'])}; "
        f"written {text(stamped(facts['generated']))} by nightcrew {text(facts['nightcrew'])}"
    )


# Html
# ----
# night.html: one file for a phone or a desk, see `report.page`. The lanes are drawn as SVG, so the page needs no script to be read.


_HERE = Path(__file__).parent
CARDS, LANES, TRIES = 12, 60, 30
"""Of one list; what is beyond is folded."""
TICKS = 5
"""Labels that a phone has room for below the lanes."""
_STEPS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200, 86_400)


def render_html(shape: Mapping[str, Any]) -> str:
    """The page of a report (see `shape`), with no reference to any other file."""
    facts = report_words.shown(shape)
    script, style = pages.page_text(pages.HERE / "copy.js"), _style()
    several = report_words.zoned(facts)
    return (
        _environment()
        .get_template("night.html.j2")
        .render(
            report=facts,
            several=several,
            ticks=ticks(facts["lanes"], several),
            kinds=_kinds(facts["lanes"]),
            script=script,
            style=style,
            policy=pages.page_policy(script, style),
        )
    )


def policy() -> str:
    """The policy of every page that `render` makes."""
    return pages.page_policy(pages.page_text(pages.HERE / "copy.js"), _style())


def ticks(drawn: Mapping[str, Any], several: bool) -> list[tuple[float, str]]:
    """Where full hours (or minutes) of the local clock lie on the axis, in percent, and what they are called."""
    zero, length = report_words.local(drawn["zero"]), drawn["length_s"]
    step = next((step for step in _STEPS if length / step <= TICKS), _STEPS[-1])
    midnight = zero.replace(hour=0, minute=0, second=0, microsecond=0)
    first = midnight + timedelta(seconds=step * (1 + (zero - midnight).total_seconds() // step))
    found: list[tuple[float, str]] = []
    at = first
    while (since := (at - zero).total_seconds()) < length and len(found) < 2 * TICKS:
        found.append((round(100 * since / length, 2), report_words.clock(_iso(at), several)))
        at += timedelta(seconds=step)
    return found


def _iso(at: datetime) -> str:
    return at.isoformat()


def _kinds(drawn: Mapping[str, Any]) -> dict[str, str]:
    """What the legend has to explain."""
    used = {kind for row in drawn["rows"] for _, _, kind in row["spans"]}
    return {kind: text for kind, text in report_rows.KINDS.items() if kind in used}


@cache
def _style() -> str:
    return pages.page_text(pages.HERE / "report.css") + pages.page_text(_HERE / "night.css")


@cache
def _environment() -> Environment:
    made = pages.environment(_HERE)
    made.globals |= {"say": report_words, "waited": waited, "candidates": best_of_view, "CARDS": CARDS, "LANES": LANES, "TRIES": TRIES}
    made.filters |= {"number": number, "duration": duration, "percent": percent, "stamped": stamped, "many": many}
    return made


# Write
# -----
# Writes a morning report where people find it.


def as_json(shape: Mapping[str, Any]) -> str:
    """As text in ASCII: what is hostile to a terminal is an escape there."""
    return json.dumps(shape, indent=1, allow_nan=False) + "\n"


FORMATS: dict[str, Callable[[Mapping[str, Any]], str]] = {"json": as_json, "md": render_markdown, "html": render_html}
"""By the name's ending; each says the same."""


def write(shape: Mapping[str, Any], directory: Path) -> Path:
    """Write night.json, night.md and night.html into `directory` (made, private, when missing), each whole or not at all and readable by
    its owner alone. Returns the page. Raises DiskFull, ToolFailed or Refused."""
    if not directory.exists():
        private_dir(directory)
    for ending, form in FORMATS.items():
        atomic_write(directory / f"night.{ending}", form(shape).encode())
    return directory / "night.html"
