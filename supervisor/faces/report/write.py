"""Writes a report where people find it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from supervisor.faces.report import html, markdown
from supervisor.faces.report.words import Report
from supervisor.host.files import atomic_write, private_dir


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
    atomic_write(paths.markdown, markdown.render(report).encode())
    atomic_write(paths.html, html.render(report).encode())
    return paths
