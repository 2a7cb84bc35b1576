"""report.html: one file that opens from a disk without a network, and runs nothing that it was not written with.

The page's policy allows exactly the two scripts and style sheets we ship, by their hashes, and no connection to anywhere; the template
escapes every text, and the charts' data is JSON that cannot end its own element.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from supervisor.faces.report import charts, words

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
            failures=words.failures(facts),
            issues=words.issues(facts) if facts["summary"] else [],
            ready=[task for task in facts["tasks"] if words.takeable(task)],
            charts=drawn,
            panels=panels,
            styles=charts.styles(panels),
            data=json_island(drawn),
            script=script,
            style=style,
            policy=_policy(script, style),
        )
    )


def json_island(value: Any) -> str:
    """JSON for inside `<script type="application/json">`: without any character that could end the element or a line of JavaScript."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate({ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


def _policy(script: str, style: str) -> str:
    allowed = f"script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _script() -> str:
    licence = _read("vendor/LICENSE").rstrip()
    return f"/*!\nuPlot draws the charts.\n{licence}\n*/\n{_read('vendor/uPlot.iife.min.js')}\n{_read('report.js')}"


@cache
def _style() -> str:
    return f"{_read('vendor/uPlot.min.css')}\n{_read('report.css')}"


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    made = Environment(loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.globals |= {"words": words}
    made.filters |= {"number": words.number, "ratio": words.ratio, "seconds": words.seconds, "moment": words.moment, "many": words.many}
    return made
