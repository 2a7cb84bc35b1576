"""What the charts are told to draw."""

from __future__ import annotations

from typing import Any

from supervisor.views.report import model
from tests.faces.report.kit import ZERO, analysis, perspective, report, summary, task


def attempt(created: float, began: float | None, ended: float | None, end: str | None = "done") -> dict[str, Any]:
    began = None if began is None else ZERO + began
    ended = None if ended is None else ZERO + ended
    return {"epoch": 1, "created": ZERO + created, "up": None, "began": began, "ended": ended, "end": end, "cause": ""}


def test_both_scores_of_each_perspective() -> None:
    chart = model.scores(summary([perspective("security", score=0.0, score_per_kloc=88.2), perspective("tests", "failed", None)]))
    assert chart["rows"] == ["security", "tests"]
    assert [span[:5] for span in chart["spans"]] == [[0, 0, 0, 88.2, "per"], [0, 1, 0, 0.0, "plain"]]


def test_severities_of_a_file_follow_each_other() -> None:
    chart = model.hot_spots({"hot_spots": [{"file": "a.py", "high": 1, "medium": 0, "low": 4}] * 40})
    assert len(chart["rows"]) == model.MAX_FILES
    assert [span[1:5] for span in chart["spans"][:2]] == [[0, 0, 1, "high"], [0, 1, 5, "low"]]
    assert chart["max"] == 5


def test_baseline_and_crew_begin_together_on_one_scale() -> None:
    tasks = [
        task("alone-a", phase="baseline", attempts=[attempt(0, 1, 10)]),
        task("alone-b", phase="baseline", attempts=[attempt(10, 11, 30)]),
        task("a", phase="crew", attempts=[attempt(30, 31, 44)]),
    ]
    (before, alone), (at_once, crew) = model.timeline(report(tasks=tasks))
    assert (before, at_once) == ("One after another", "At once")
    assert [span[2:5] for span in crew["spans"]] == [[0, 1, "setup"], [1, 14, "work"]]
    assert alone["max"] == crew["max"] == 30


def test_what_did_not_end_well_is_marked_in_its_last_part() -> None:
    tries = [attempt(0, 1, 5, "failed"), attempt(6, None, 7, "lost"), attempt(8, 9, 12)]
    ((_, chart),) = model.timeline(report(tasks=[task("a", attempts=tries)]))
    assert [span[4] for span in chart["spans"]] == ["setup", "bad", "bad", "setup", "work"]
    assert chart["spans"][1][5] == "a: work 4s, then failed"


def test_a_running_attempt_lasts_until_the_report() -> None:
    made = report(generated="2026-11-21T06:31:00.000Z", tasks=[task("a", "running", attempts=[attempt(0, 1, None, None)])])
    ((_, chart),) = model.timeline(made)
    assert chart["spans"][-1][2:5] == [1, 60, "work"]


def test_what_has_nothing_to_show_is_no_chart() -> None:
    assert model.all_charts(report(tasks=[task("a", "skipped", attempts=[])])) == {}
    assert model.all_charts(report(summary=summary([perspective("tests", "failed", None)]))) == {}
    assert set(model.all_charts(analysis())) == {"scores", "time-0"}


def test_a_timeline_stays_within_what_a_canvas_can_be() -> None:
    ((_, chart),) = model.timeline(report(tasks=[task(f"t{n}") for n in range(300)]))
    assert len(chart["rows"]) == model.MAX_ROWS
