"""What the charts are told to draw."""

from __future__ import annotations

from typing import Any

from supervisor.views.report import model
from tests.views.report.kit import ZERO, perspective, report, summary, task


def attempt(created: float, began: float | None, ended: float | None, end: str | None = "done") -> dict[str, Any]:
    began = None if began is None else ZERO + began
    ended = None if ended is None else ZERO + ended
    return {"epoch": 1, "created": ZERO + created, "up": None, "began": began, "ended": ended, "end": end, "cause": ""}


def test_the_score_of_each_perspective() -> None:
    lanes = model.scores(summary([perspective("security", score=0.0, score_per_kloc=88.2), perspective("tests", "failed", None)]))
    assert [(row.name.split()[0], [span[:3] for span in row.spans]) for row in lanes.rows] == [
        ("security", [(0.0, 88.2, "score")]),
        ("tests", []),
    ]


def test_severities_of_a_file_follow_each_other() -> None:
    lanes = model.hot_spots({"hot_spots": [{"file": "a.py", "high": 1, "medium": 0, "low": 4}] * 40})
    assert len(lanes.rows) == model.MAX_FILES
    assert [span[:3] for span in lanes.rows[0].spans] == [(0, 1, "high"), (1, 5, "low")]
    assert lanes.length == 5


def test_baseline_and_crew_begin_together_on_one_scale() -> None:
    tasks = [
        task("alone-a", phase="baseline", attempts=[attempt(0, 1, 10)]),
        task("alone-b", phase="baseline", attempts=[attempt(10, 11, 30)]),
        task("a", phase="crew", attempts=[attempt(30, 31, 44)]),
    ]
    (before, alone), (at_once, crew) = model.timeline(report(tasks=tasks))
    assert (before, at_once) == ("One after another", "At once")
    assert [span[:3] for span in crew.rows[0].spans] == [(0, 1, "setup"), (1, 14, "work")]
    assert alone.length == crew.length == 30


def test_what_did_not_end_well_is_marked_in_its_last_part() -> None:
    tries = [attempt(0, 1, 5, "failed"), attempt(6, None, 7, "lost"), attempt(8, 9, 12)]
    ((_, chart),) = model.timeline(report(tasks=[task("a", attempts=tries)]))
    assert [span[2] for span in chart.rows[0].spans] == ["setup", "bad", "bad", "setup", "work"]
    assert chart.rows[0].spans[1][3] == "a: work 4s, then failed"


def test_a_running_attempt_lasts_until_the_report() -> None:
    made = report(generated="2026-11-21T06:31:00.000Z", tasks=[task("a", "running", attempts=[attempt(0, 1, None, None)])])
    ((_, chart),) = model.timeline(made)
    assert chart.rows[0].spans[-1][:3] == (1, 60, "work")


def test_a_task_that_never_began_has_no_row() -> None:
    assert model.timeline(report(tasks=[task("a", "skipped", attempts=[])])) == []


def test_a_timeline_stays_within_a_screen() -> None:
    ((_, chart),) = model.timeline(report(tasks=[task(f"t{n}") for n in range(300)]))
    assert len(chart.rows) == model.MAX_ROWS
