"""The summary that `analyze` and `report` print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.cli import reporting
from supervisor.client import common
from tests.views.report.kit import analysis, finding, perspective, report, summary, young

PAGE = Path("/out/report.html")


def printed(made: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> list[str]:
    reporting.print_summary(reporting.Published(made, PAGE))
    return capsys.readouterr().out.splitlines()


def test_one_score_a_line_and_what_it_rests_on(capsys: pytest.CaptureFixture[str]) -> None:
    made = analysis(findings=30, exclude=["vendor/*", "docs/*"])
    lines = printed(made, capsys)
    assert lines[:4] == [
        "health 50 of 100: shop, 120 Python files, 24,000 lines",
        "nobody looked at vendor/*, docs/*",
        "",
        "  security      50.0  12 issues (1 high, 2 medium, 3 low)",
    ]
    assert lines[-1] == f"report: {PAGE}"


def test_a_part_says_that_it_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    made = report(summary=summary([perspective("structure", score=100.0, files=1)], lines=1), exclude=[])
    assert printed(made, capsys)[0] == "health 100 of 100 from 1 of 5 perspectives: shop, 1 Python file, 1 line"


def test_while_nothing_is_known_only_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(young(), capsys) == [
        "still running: 0 of 2 tasks ended; nothing is known yet",
        f"report: {PAGE}",
        "again: nightcrew report 1121-k3f9",
    ]


def test_while_it_runs_the_first_and_the_last_line_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(young(known=True), capsys)
    assert lines[0] == "still running: 1 of 2 tasks ended; this is what is known so far"
    assert lines[-2:] == [f"report: {PAGE}", "again: nightcrew report 1121-k3f9"]
    assert "  tests            -  running" in lines
    assert not [line for line in lines if "failed" in line or "No analyst" in line or line == "next"]


def test_nothing_to_fix_is_cut_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(common, "width", lambda: 60)
    long = finding("package/module.py", 7, message="Possible SQL injection vector through string-based query construction\x1b[2J.")
    made = report(summary=summary([perspective("security")], issues=[long, finding(".", 0)]), findings=[long], exclude=[])
    lines = printed(made, capsys)
    at = lines.index("fix first")
    assert lines[at + 1 : at + 6] == [
        "  high    Possible SQL injection vector through string-based",
        "          query construction\\x1b[2J. (B602)",
        "          package/module.py:7",
        "  high    shell=True (B602)",
        "          (repository)",
    ]
