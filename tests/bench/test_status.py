"""`nightcrew bench status`: as small as it gets it has every figure, says what it could not measure, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nightcrew.plugins.bench import crews
from nightcrew.plugins.bench import status as measure
from nightcrew.plugins.bench.figures import rows
from nightcrew.plugins.bench.status import Options
from tests.bench.test_spawn import users_of

TINY = Options(live=2, busy_s=0.1, pushes=3, hooks=1, texts=1, changes=2, starts=1)
OF_CLAUDE = ("poll_ms", "delivery_ms_p50")


def measured(where: Path) -> tuple[dict[str, Any], list[str]]:
    said: list[str] = []
    report: dict[str, Any] = json.loads(json.dumps(crews.report(measure, TINY, where, said.append)))
    assert list(where.iterdir()) == [] and users_of(where) == []
    return report, said


def test_without_claude_code_every_other_figure_is_there_and_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "binary_claude", lambda: None)
    report, said = measured(tmp_path)
    assert {name: report.pop(name) for name in OF_CLAUDE} == dict.fromkeys(OF_CLAUDE)
    assert any("Claude Code is not installed" in line for line in said)
    push = report.pop("push_ms")
    assert 0 < push["p50"] <= push["p99"]
    hooks = {"hook_ms_p50", "python_hook_ms_p50", "hook_cpu_ms", "python_hook_cpu_ms"}
    assert report.keys() - {"options", "machine"} == {"live_agents", "cpu_percent", "builtin_start_ms_p50", *hooks}
    assert (report["live_agents"], report["hook_ms_p50"] > 0, report["builtin_start_ms_p50"] > 0) == (2, True, True)
    shown = "\n".join(rows(measure.AIMS, {**report, "push_ms": push}))
    assert shown.count("not measured") == 3 and "aim <= 150" in shown


@pytest.mark.soak
def test_with_claude_code_its_figures_are_there(tmp_path: Path) -> None:
    if measure.binary_claude() is None:
        pytest.skip("make clients installs it")
    report, _ = measured(tmp_path)
    assert report["poll_ms"].keys() == {"p50", "p99"} and report["delivery_ms_p50"] > 0
