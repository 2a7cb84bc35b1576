"""How much of the code the tests ran, from closing lines; what is not said for sure is unknown."""

from __future__ import annotations

import pytest

from supervisor.core.gate_coverage import Coverage, read

LLVM = "TOTAL                  123    10    91.87%     20     2    90.00%    300    25    91.67%     0     0       -"
GO = "ok  \texample.com/a\t0.012s\tcoverage: 87.1% of statements"


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (
            "Name    Stmts   Miss  Cover\n----\na.py       63      8    87%\n----\nTOTAL      63      8    87%",
            Coverage("coverage.py", 87.0),
        ),
        ("TOTAL      63      8     10      2  86.30%\n==== 3 passed in 0.12s ====", Coverage("coverage.py", 86.3)),
        ("TOTAL 63 8 87%\nTOTAL 63 8 87%", Coverage("coverage.py", 87.0)),
        ("\x1b[31mTOTAL   63   63   0%\x1b[0m", Coverage("coverage.py", 0.0)),
        (LLVM, Coverage("llvm-cov", 91.67)),
        ("All files          |    87.3 |       75 |     100 |   88.25 |                   ", Coverage("istanbul", 87.3)),
        ("Statements   : 87.3% ( 55/63 )\nBranches     : 75% ( 3/4 )", Coverage("istanbul", 87.3)),
        ("Summary coverage rate:\n  lines......: 87.3% (55 of 63 lines)\n  functions..: 90.0% (9 of 10 functions)", Coverage("lcov", 87.3)),
        ("Line Coverage: 87.3% (55 / 63)", Coverage("SimpleCov", 87.3)),
        ("Coverage report generated for RSpec to /x/coverage. 55 / 63 LOC (87.3%) covered.", Coverage("SimpleCov", 87.3)),
        (GO, Coverage("go test", 87.1)),
        (f"PASS\ncoverage: 87.1% of statements in ./...\n{GO} in ./...", Coverage("go test", 87.1)),
        (
            f"{GO}\nok  \texample.com/b\t(cached)\tcoverage: 1.0% of statements\ntotal:\t(statements)\t85.0%",
            Coverage("go tool cover", 85.0),
        ),
    ],
)
def test_closing_lines_are_read(said: str, found: Coverage) -> None:
    assert read(said) == found
    assert read(f"before\n{said}\nmake: done") == found


@pytest.mark.parametrize(
    "said",
    [
        "",
        "TOTAL 87%",
        "coverage is 87%",
        "TOTAL 63 8 870%",
        "TOTAL 63 8 87%\nTOTAL 12 6 50%",
        "TOTAL 63 8 87%\nline coverage: none\n  lines......: 87.3% (55 of 63 lines)",
        f"{GO}\n{GO.replace('/a', '/b')}",
        f"{GO}\n\texample.com/b\t\tcoverage: 0.0% of statements",
        "a.py | 87.3 | 75 | 100 | 88.25 |",
    ],
)
def test_what_is_not_said_for_sure_is_unknown(said: str) -> None:
    assert read(said) is None


def test_of_a_log_that_was_cut_no_package_is_taken_for_all() -> None:
    assert read(GO, whole=False) is None
    assert read("TOTAL      63      8    87%", whole=False) == Coverage("coverage.py", 87.0)


def test_long_lines_of_an_agent_cost_little() -> None:
    assert read(f"TOTAL{' 1' * 500_000}%\n" + "All files" + " " * 500_000 + "| 1") is None
