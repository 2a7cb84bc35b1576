"""The deadline of an agent that stood still, as the supervisor's record says."""

from __future__ import annotations

import signal
import time

import pytest

from tests.agents.runner.kit import Lab


def test_the_time_that_an_agent_stood_still_does_not_count(lab: Lab) -> None:
    attempt = lab.attempt("sh", "-c", "sleep 0.5; exit 3", timeout_s=0.1)
    (attempt.directory / "paused").write_text("1000.5 0.0")
    assert attempt.run() == 3
    attempt = lab.attempt("sleep", "60", timeout_s=0.1)
    (attempt.directory / "paused").write_text("0.05 0.0")
    assert (attempt.run(), attempt.record().why) == (128 + signal.SIGTERM, "timeout")


def test_while_an_agent_stands_still_its_deadline_does_too(lab: Lab) -> None:
    attempt = lab.attempt("sh", "-c", "sleep 0.5; exit 3", timeout_s=0.1)
    (attempt.directory / "paused").write_text(f"0.0 {time.monotonic()}")
    assert attempt.run() == 3


@pytest.mark.parametrize("text", ["", "nan nan", "inf 0", "-5 0", "1e300 0", "1 2 3", "0 x", "\0"])
def test_an_agent_that_forges_its_time_gains_none(lab: Lab, text: str) -> None:
    attempt = lab.attempt("sleep", "60", timeout_s=0.1)
    (attempt.directory / "paused").write_text(text)
    assert (attempt.run(), attempt.record().why) == (128 + signal.SIGTERM, "timeout")
