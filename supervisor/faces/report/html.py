"""report.html: one file that opens from a disk without a network, see `page`. The charts' data is JSON that cannot end its own element."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment

from supervisor.faces import candidates, conflicts, memory_use, waited
from supervisor.faces.report import charts, page, words

_HERE = Path(__file__).parent


def render(report: words.Report) -> str:
    """The page for `report` (schema 1), with no reference to any other file."""
    facts = words.shown(report)
    drawn, panels = charts.all_charts(facts), charts.timeline(facts)
    script, style = _script(), _style()
    return (
        _environment()
        .get_template("template.html.j2")
        .render(
            report=facts,
            prose=report["prose"] and words.paragraphs(report["prose"]["text"]),
            verdict=words.verdict(facts),
            memory_sentence=memory_use.sentence,
            waited=waited,
            candidates=candidates,
            conflicts=conflicts,
            failures=words.failures(facts),
            issues=words.issues(facts) if facts["summary"] else [],
            ready=[task for task in facts["tasks"] if words.takeable(task)],
            charts=drawn,
            panels=panels,
            styles=charts.styles(panels),
            data=json_island(drawn),
            script=script,
            style=style,
            policy=page.policy(script, style),
        )
    )


def policy() -> str:
    """The policy of every page that `render` makes."""
    return page.policy(_script(), _style())


def json_island(value: Any) -> str:
    """JSON for inside `<script type="application/json">`: without any character that could end the element or a line of JavaScript."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate({ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


@cache
def _script() -> str:
    licence = page.text(_HERE / "vendor/LICENSE").rstrip()
    ours = "\n".join(page.text(_HERE / name) for name in ("vendor/uPlot.iife.min.js", "report.js", "copy.js"))
    return f"/*!\nuPlot draws the charts.\n{licence}\n*/\n{ours}"


@cache
def _style() -> str:
    return "\n".join(page.text(_HERE / name) for name in ("vendor/uPlot.min.css", "report.css"))


@cache
def _environment() -> Environment:
    made = page.environment(_HERE)
    made.filters |= {"number": words.number, "ratio": words.ratio, "seconds": words.seconds, "moment": words.moment, "many": words.many}
    return made
