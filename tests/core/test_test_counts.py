"""How many tests passed, from closing lines; what is not said for sure is unknown."""

from __future__ import annotations

import pytest

from supervisor.core.test_counts import TestCounts as Counts
from supervisor.core.test_counts import read

CARGO = "test result: ok. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s"
GO = """=== RUN   TestA
=== RUN   TestA/sub
    --- PASS: TestA/sub (0.00s)
--- PASS: TestA (0.00s)
=== RUN   TestB
--- FAIL: TestB (0.10s)"""


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("collected 3 items\n==== 3 passed, 1 skipped in 0.12s ====", Counts("pytest", 3, 0)),
        ("12 passed in 3.40s", Counts("pytest", 12, 0)),
        ("\x1b[31m\x1b[1m2 failed\x1b[0m, \x1b[32m10 passed\x1b[0m, 1 warning in 61.02s (0:01:01)\x1b[0m", Counts("pytest", 10, 2)),
        ("1 error in 0.10s", Counts("pytest", 0, 1)),
        ("Ran 5 tests in 0.101s\n\nOK (skipped=1)", Counts("unittest", 4, 0)),
        ("Ran 5 tests in 0.101s\n\nFAILED (failures=2, errors=1)", Counts("unittest", 2, 3)),
        ("Tests:       1 failed, 4 passed, 5 total\nTime: 1 s", Counts("jest", 4, 1)),
        ("      Tests  2 failed | 10 passed (12)", Counts("vitest", 10, 2)),
        (f"running 3 tests\n{CARGO}\nrunning 3 tests\n{CARGO}", Counts("cargo", 4, 2)),
        (GO, Counts("go test", 2, 1)),
    ],
)
def test_closing_lines_are_read(said: str, found: Counts) -> None:
    assert read(said) == found
    assert read(f"before\n{said}\nmake: done") == found


@pytest.mark.parametrize(
    "said",
    [
        "",
        "12 passed the exam in 3 weeks",
        "echo 3 passed",
        "no tests ran in 0.01s",
        "3 skipped in 0.01s",
        "3 passed, 1 lied in 0.01s",
        "Ran 5 tests in 0.101s",
        "ok  \texample.com/a\t0.01s",
        "=== RUN   TestA\n--- PASS: TestB (0.00s)",
        "3 passed in 0.01s\nTests:       4 passed, 4 total",
    ],
)
def test_what_is_not_said_for_sure_is_unknown(said: str) -> None:
    assert read(said) is None


def test_parts_of_a_log_that_was_cut_are_no_sum() -> None:
    assert read(CARGO, whole=False) is None and read(GO, whole=False) is None
    assert read("12 passed in 3.40s", whole=False) == Counts("pytest", 12, 0)
