"""`nightcrew bench status`: as small as it gets it has every figure, says what it could not measure, and leaves nothing behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from nightcrew.plugins.bench import crews
from nightcrew.plugins.bench.figures import rows
from nightcrew.plugins.bench.status import measure
from nightcrew.plugins.bench.status.measure import Options, Size
from supervisor.kernel.gateway_settings import Limits
from tests.bench.test_spawn import users_of
from tests.support import make_repository

TINY = Options(live=2, busy_s=0.1, pushes=3, hooks=1, texts=1, changes=2, starts=1, turns=1, crew=Size(agents=1, tools=1))
OF_CLAUDE = ("poll_ms", "delivery_ms_p50", "crew")


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
    assert report.keys() - {"options", "machine"} == {
        "live_agents", "cpu_percent", "hook_ms_p50", "builtin_start_ms_p50", "builtin_turn_overhead_ms_p50"
    }  # fmt: skip
    assert (report["live_agents"], report["hook_ms_p50"] > 0, report["builtin_start_ms_p50"] > 0) == (2, True, True)
    shown = "\n".join(rows(measure.AIMS, {**report, "push_ms": push}))
    assert shown.count("not measured") == 8 and "aim <= 150" in shown


@pytest.mark.soak
def test_with_claude_code_its_figures_are_there(tmp_path: Path) -> None:
    if measure.binary_claude() is None:
        pytest.skip("make clients installs it")
    report, _ = measured(tmp_path)
    assert report["poll_ms"].keys() == {"p50", "p99"} and report["delivery_ms_p50"] > 0
    assert report["crew"] == {"agents": 1, "failed_turns": 0, "upstream_429": 0, "without_gateway": {"failed_turns": 0, "upstream_429": 0}}


IMPATIENT = f"""#!{sys.executable}
import json, os, sys, urllib.request
body = {{"model": "claude-opus-5-5", "max_tokens": 8, "messages": [{{"role": "user", "content": sys.argv[-1]}}]}}
headers = {{"x-api-key": os.environ["ANTHROPIC_AUTH_TOKEN"], "anthropic-version": "2023-06-01"}}
request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(), headers)
try:
    urllib.request.urlopen(request).read()
except OSError:
    print(json.dumps({{"is_error": True}}))
else:
    print(json.dumps({{"is_error": False}}))
"""
"""A client that gives up at once, in Claude Code's place."""


def test_refusals_of_the_limit_and_the_turns_that_they_cost_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "LIMIT", Limits(rpm=2))
    client = tmp_path / "claude"
    client.write_text(IMPATIENT)
    client.chmod(0o700)
    fared = measure.by_script(tmp_path / "crew", make_repository(tmp_path / "repo"), client, Size(agents=3))
    assert fared == {"failed_turns": 1, "upstream_429": 1}
