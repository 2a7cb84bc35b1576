"""The sentences: honest about what is missing, whatever the rest looks like."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.views.report import words
from tests.views.report.kit import NAMES, ZERO, analysis, finding, perspective, report, sample, summary, task, young


def line(made: dict[str, Any]) -> str:
    found = words.verdict(made)
    return f"{found.sign} {found.line}"


def run(state: str, **changes: Any) -> dict[str, Any]:
    made = report(**changes)
    made["run"]["state"] = state
    return made


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (run("done", tasks=[task("a", commits=2), task("b")]), "✓ Done. All 2 tasks are done; 1 left commits to take."),
        (run("done", tasks=[task("a")]), "✓ Done. The task is done; none left commits."),
        (run("failed", tasks=[task("a"), task("b", "failed"), task("c", "skipped")]),
         "! Failed in part. 1 of 3 tasks are done; 1 failed and 1 skipped."),
        (run("failed", tasks=[task("a", "failed"), task("b", "quarantined")]),
         "✗ Failed. None of 2 tasks is done: 1 failed and 1 quarantined."),
        (run("failed"), "! Nothing ran. The run has no task."),
        (run("running", tasks=[task("a"), task("b", "running")]), "● Still running. 1 of 2 tasks ended; this is what is known so far."),
        (young(), "● Still running. 0 of 2 tasks ended; nothing is known yet."),
        (young(known=True), "● Still running. 1 of 2 tasks ended; this is what is known so far."),
        (analysis(), "✓ Complete. 5 perspectives looked at 120 files and 24,000 lines: 5 high, 10 medium and 15 low-severity findings."),
        (
            run("failed", summary=summary([perspective("security", "partial"), perspective("tests", "failed", None)])),
            "! Incomplete. No result from tests; only a part from security. The health score stands on 1 of 5 perspectives.",
        ),
        (
            run("failed", summary=summary([perspective("security", "failed", None), perspective("tests", "missing", None)])),
            "✗ Failed. None of 2 perspectives gave a result, so there is no health score.",
        ),
        (run("done", summary=summary([perspective("tests", score=None)])), "! Nothing to score. There is no Python file at this commit."),
        (
            run("failed", summary=summary([perspective("tests")])),
            "! Failed in part. Every perspective is whole (120 files and 24,000 lines), but a task of the run failed: see the crew.",
        ),
    ],
)  # fmt: skip
def test_the_headline(made: dict[str, Any], said: str) -> None:
    assert line(made) == said


@pytest.mark.parametrize("name", NAMES)
def test_the_headline_of_a_sample_is_good_only_when_the_run_was(name: str) -> None:
    made = sample(name)
    assert (words.verdict(made).kind == "good") == (made["run"]["state"] == "done")


def test_the_health_can_be_checked_by_hand() -> None:
    made = summary([perspective("security", score=40.0), perspective("tests", "failed", None), perspective("structure", score=80.0)])
    assert words.health_sum(made) == "(3 × 40.0 + 1 × 80.0) / 4 = 50.0"
    assert words.health_sum(summary([perspective("tests", "failed", None)])) == ""


def test_a_health_that_is_not_from_all_says_from_how_many() -> None:
    every = analysis()["summary"]
    assert words.basis(every) == ""
    assert words.basis(summary([perspective("structure", score=100.0)])) == "from 1 of 5 perspectives"
    assert words.basis(summary([perspective("tests", "failed", None)])) == ""


def test_issues_that_differ_by_their_place_alone_are_one() -> None:
    many = [finding("a.py", line) for line in (1, 2)]
    made = report(
        summary=summary([perspective("security", severities={"high": 4})], issues=[many[0], finding(".", 0, code="no-tests"), many[1]]),
        findings=[*many, finding("b.py", 3), finding("a.py", 9, severity="low")],
        findings_total=5,
    )
    first, second = words.issues(made)
    assert (first.places, first.others) == (("a.py:1", "a.py:2", "b.py:3"), "in at least 2 other places")
    assert (second.places, second.others) == (("(repository)",), "")
    made["summary"]["perspectives"][0]["severities"]["high"] = 3
    assert words.issues(made)[0].others == "in 2 other places"


@pytest.mark.parametrize(
    ("name", "counts", "said"),
    [
        ("security", {"issues": 1, "ignored": 9}, "1 issue (1 high, 2 medium, 3 low)"),
        ("complexity", {"functions": 300, "over": 12, "worst": 41}, "12 of 300 functions over 5, the worst 41"),
        ("complexity", {"functions": 1, "over": 0, "worst": 3}, "0 of 1 function over 5"),
        ("docstrings", {"objects": 10, "documented": 4}, "4 of 10 public objects documented"),
        ("tests", {"test_files": 2, "test_functions": 1}, "2 of 120 files for tests, 1 test function"),
        ("structure", {"functions": 2000, "classes": 7}, "2,000 functions in 120 files"),
        ("tests", {}, ""),
    ],
)
def test_what_a_score_rests_on(name: str, counts: dict[str, int], said: str) -> None:
    assert words.rests_on(perspective(name, counts=counts)) == said


def test_every_formula_is_written_out() -> None:
    assert words.formulas(perspective("tests")) == ["min(100, 2 × test-file %)"] * 2
    assert words.formulas(perspective("security"))[0] == "max(0, 100 − 10 × issues per 1,000 lines)"


def test_every_failure_is_told_once_with_its_command() -> None:
    told = summary([], failed=[{"task": task("a")["id"], "perspective": "tests", "shard": "1/2", "reason": "it printed nothing"},
                               {"task": "1121-k3f9/gone", "perspective": "tests", "shard": "2/2", "reason": "no attempt"}])  # fmt: skip
    found = words.failures(report(summary=told, tasks=[
        task("a", "failed"), task("b", "skipped", reason=""), task("c"), task("d", "failed", reason="gate: exit code 3")
    ]))  # fmt: skip
    assert [(one.name, one.reason, one.command) for one in found] == [
        ("a", "it printed nothing", "nightcrew logs 1121-k3f9/a"),
        ("b", "no reason was recorded", "nightcrew status 1121-k3f9/b"),
        ("d", "gate: exit code 3", "nightcrew logs --stream gate 1121-k3f9/d"),
        ("tests 2/2", "no attempt", "nightcrew logs 1121-k3f9/gone"),
    ]


def test_a_command_keeps_a_hostile_id_one_word() -> None:
    assert words.command("take", "a; rm -rf ~") == "nightcrew take 'a; rm -rf ~'"


def attempt(up: float | None, began: float | None, ended: float | None) -> dict[str, Any]:
    return {"epoch": 1, "created": ZERO, "up": up, "began": began, "ended": ended, "end": "done", "cause": ""}


def test_where_the_time_of_an_attempt_went() -> None:
    assert words.parts(attempt(ZERO + 1, ZERO + 3, ZERO + 10)) == [
        ("setup", ZERO, ZERO + 1),
        ("held", ZERO + 1, ZERO + 3),
        ("work", ZERO + 3, ZERO + 10),
    ]
    assert words.parts(attempt(None, ZERO + 3, None)) == [("setup", ZERO, ZERO + 3)]
    assert words.parts(attempt(None, ZERO + 3, None), ZERO + 5)[-1] == ("work", ZERO + 3, ZERO + 5)
    assert words.parts(attempt(None, None, ZERO + 2)) == [("setup", ZERO, ZERO + 2)]
    assert words.parts(attempt(ZERO + 1, None, ZERO + 2)) == [("setup", ZERO, ZERO + 1), ("work", ZERO + 1, ZERO + 2)]
    assert words.parts(attempt(ZERO + 1, ZERO + 1.02, ZERO + 2))[0] == ("setup", ZERO, ZERO + 1.02)


def test_the_time_of_a_task_is_that_of_all_its_attempts() -> None:
    made = task("a", attempts=[attempt(None, ZERO + 1, ZERO + 3), attempt(None, ZERO + 1, ZERO + 6)])
    assert words.spent(made) == words.Spent(2.0, None, 7.0)
    assert words.spent(task("b", attempts=[])) == words.Spent(None, None, None)


def test_clean_shows_what_cannot_be_seen() -> None:
    made = words.shown({"a\n": ["\u202egpj\x1b", 3, None, ("\udcff",)], "summary": None})
    assert made == {"a\\n": ["\\u202egpj\\x1b", 3, None, ["\\udcff"]], "summary": None}
