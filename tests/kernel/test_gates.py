"""What a gate says, and what is made of it."""

from __future__ import annotations

import pytest

from supervisor.kernel import retry
from supervisor.kernel.records import GateExit, parse_exit
from supervisor.kernel.retry import SAID_MAX, Missed
from supervisor.kernel.states import End

GOOD = GateExit(0, None, "exit")


@pytest.mark.parametrize(
    ("gate", "cause"),
    [
        (GateExit(3, None, "exit"), "gate: exit code 3"),
        (GateExit(None, 9, "exit"), "gate: killed by signal 9"),
        (GateExit(None, 15, "timeout", duration_s=600.2), "gate: stopped after 10m"),
        (GateExit(0, None, "timeout", duration_s=600.2), "gate: stopped after 10m"),
        (GateExit(None, None, "exec", "make: no such command"), "gate: could not start: make: no such command"),
        (None, "gate: it did not run"),
    ],
)
def test_a_gate_that_was_not_passed_is_a_failure_with_its_reason(gate: GateExit | None, cause: str) -> None:
    assert retry.judge_gate(True, gate, End.DONE, "") == (End.FAILED, cause)
    assert retry.judge_gate(True, gate, End.FAILED, "exit code 1") == (End.FAILED, "exit code 1"), "its own failure is what counts"


def test_a_gate_that_was_passed_changes_nothing_and_neither_does_none() -> None:
    assert retry.judge_gate(True, GOOD, End.DONE, "") == (End.DONE, "")
    assert retry.judge_gate(False, None, End.DONE, "") == (End.DONE, "")


def test_what_it_said_is_kept_as_text_for_people() -> None:
    said = b"x" * SAID_MAX + b"\n\x1b[31mred\x1b[0m\t\xff\x00 end\r\n\n"
    kept = retry.shape(GateExit(1, None, "exit", duration_s=1.23456), said)
    assert kept["said"].endswith("x\n[31mred[0m\t\ufffd end") and len(kept["said"]) <= SAID_MAX
    assert {**kept, "said": ""} == {
        "passed": False,
        "why": "exit code 1",
        "exit": {"code": 1, "signal": None},
        "duration_s": 1.235,
        "said": "",
    }
    assert retry.shape(GOOD, b"")["passed"]


def test_only_a_gate_that_was_missed_is_told() -> None:
    shape = retry.shape(GateExit(1, None, "exit"), b"3 tests fail\n")
    assert Missed.of({"gate": shape, "tip": "c0ffee"}) == Missed("exit code 1", "3 tests fail", "c0ffee")
    assert Missed.of({"gate": retry.shape(GOOD, b"")}) is None is Missed.of({"gate": None})
    assert Missed.of({}) is None, "of an older version"


@pytest.mark.parametrize("gate", ["1", "[]", '{"code": 1}', '{"code": 0, "signal": null, "why": "exit", "detail": "", "duration_s": -1}'])
def test_a_forged_gate_is_no_record(gate: str) -> None:
    times = '"started": 1, "ended": 2, "duration_s": 1, "cpu_s": 0'
    whole = f'{{"schema": 1, "task": "t", "epoch": 1, "code": 0, "signal": null, "why": "exit", {times}'
    assert parse_exit(whole + "}") is not None
    assert parse_exit(f'{whole}, "gate": {gate}}}') is None
