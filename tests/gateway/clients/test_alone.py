"""What the clients do without a gateway: the facts that its design rests on. When one of these changes, look at the design again.

Measured with Claude Code 2.1.329 and Codex 0.169.0. What takes minutes to see is not tested here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.clients.kit import ClaudeCode, Codex, Direct


def outcomes(direct: Direct) -> list[tuple[str, bool]]:
    """(outcome, whether a stream was asked for) of every request."""
    return [(entry["outcome"], entry["stream"]) for entry in direct.sim.last()]


def test_claude_gives_up_at_once_when_it_shall_wait_longer_than_a_minute(claude: ClaudeCode, direct: Direct, tmp_path: Path) -> None:
    direct.sim.faults(status=429, retry_after="61", times=1)
    turn = claude.turn(direct, "say hello", where=tmp_path)
    assert not claude.went_well(turn)
    assert turn.last["api_error_status"] == 429
    assert outcomes(direct) == [("fault:429", True)]


@pytest.mark.soak
def test_claude_waits_a_whole_minute(claude: ClaudeCode, direct: Direct, tmp_path: Path) -> None:
    direct.sim.faults(status=429, retry_after="60", times=1)
    turn = claude.turn(direct, "say hello", where=tmp_path)
    assert claude.went_well(turn), turn.explain()
    assert outcomes(direct) == [("fault:429", True), ("answered", True)]


def test_claude_does_not_survive_the_third_529(claude: ClaudeCode, direct: Direct, tmp_path: Path) -> None:
    direct.sim.faults(status=529)
    turn = claude.turn(direct, "say hello", where=tmp_path)
    assert not claude.went_well(turn)
    assert outcomes(direct) == [("fault:529", True)] * 3


def test_claude_told_to_wait_such_errors_out_survives_them(claude: ClaudeCode, direct: Direct, tmp_path: Path) -> None:
    direct.sim.faults(status=529, times=3)
    turn = claude.turn(direct, "say hello", where=tmp_path, env={"CLAUDE_CODE_RETRY_WATCHDOG": "1"})
    assert claude.went_well(turn), turn.explain()


def test_claude_ends_at_once_on_403(claude: ClaudeCode, direct: Direct, tmp_path: Path) -> None:
    direct.sim.faults(status=403)
    assert not claude.went_well(claude.turn(direct, "say hello", where=tmp_path))
    assert outcomes(direct) == [("fault:403", True)]


def test_claude_sends_the_whole_prompt_again_after_a_cut_and_both_headers_when_it_has_two_keys(
    claude: ClaudeCode, direct: Direct, tmp_path: Path
) -> None:
    direct.sim.faults(then="cut", after=6, times=1)
    assert claude.went_well(claude.turn(direct, "say hello", where=tmp_path, env={"ANTHROPIC_API_KEY": "another"}))
    first, second = direct.sim.last()
    assert {"authorization", "x-api-key"} <= {name for name, _ in first["headers"]}
    assert outcomes(direct) == [("cut", True), ("answered", True)]
    assert first["body_sha256"] == second["body_sha256"], "an equal body keeps its place in the queue"


def test_claude_asks_for_the_whole_answer_after_three_errors_inside_streams(claude: ClaudeCode, direct: Direct, tmp_path: Path) -> None:
    direct.sim.faults(then="error", after=1, times=3)
    assert claude.went_well(claude.turn(direct, "say hello", where=tmp_path))
    assert outcomes(direct) == [("answered", True)] * 3 + [("answered", False)]


def test_codex_does_not_survive_a_429_that_names_no_time(codex: Codex, direct: Direct, tmp_path: Path) -> None:
    direct.sim.faults(status=429, times=1)
    assert not codex.went_well(codex.turn(direct, "say hello", where=tmp_path))
    assert outcomes(direct) == [("fault:429", True)]


@pytest.mark.parametrize(("retries", "survives"), [(3, False), (4, True)])
def test_codex_survives_as_many_timed_429s_as_it_is_told_to(
    codex: Codex, direct: Direct, tmp_path: Path, retries: int, survives: bool
) -> None:
    direct.sim.faults(status=429, retry_after="1", times=4)
    turn = codex.turn(direct, "say hello", "-c", f"model_providers.endpoint.stream_max_retries={retries}", where=tmp_path)
    assert codex.went_well(turn) is survives, turn.explain()
