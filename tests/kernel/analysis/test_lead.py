"""What the lead makes of it: the same whoever ended first, and honest about what is missing."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

from supervisor.results import analysis as results
from supervisor.results import findings
from supervisor.results.analysis import Phase, Span, Told
from supervisor.results.findings import COUNTS, Facts, Finding, Perspective, Severity, Shard, merge

SECURITY, COMPLEXITY, DOCSTRINGS, TESTS, STRUCTURE = Perspective
HIGH, MEDIUM, LOW = Severity
WHOLE = Shard()


def facts(perspective: Perspective, shard: Shard = WHOLE, findings: tuple[Finding, ...] = (), **counts: int) -> Facts:
    return Facts(
        perspective,
        shard,
        files=10,
        lines=1000,
        counts={name: counts.get(name, 0) for name in COUNTS[perspective]},
        severities={severity: sum(one.severity is severity for one in findings) for severity in Severity},
        findings=findings,
        hot={one.file: (1, 0, 0) for one in findings},
    )


def say(found: Facts | None, perspective: Perspective = SECURITY, **changes: Any) -> Told:
    perspective = found.perspective if found else perspective
    shard = str(found.shard) if found else "1/1"
    state, reason = ("done", "") if found else ("failed", "exit code 3")
    return replace(Told(f"r/{perspective}-{shard[0]}", perspective, shard, Phase.CREW, state, reason, found), **changes)


def issue(severity: Severity, line: int, perspective: Perspective = SECURITY, file: str = "a.py", code: str = "B1") -> Finding:
    return Finding(perspective, severity, file, line, code, "words")


def test_shards_add_up_but_for_the_worst() -> None:
    parts = [
        facts(COMPLEXITY, Shard(1, 2), (issue(LOW, 2, COMPLEXITY),), functions=10, over=2, worst=12),
        facts(COMPLEXITY, Shard(2, 2), (issue(HIGH, 9, COMPLEXITY),), functions=5, over=1, worst=41),
    ]
    merged = merge(parts)[COMPLEXITY]
    assert dict(merged.counts) == {"functions": 15, "over": 3, "worst": 41}
    assert (merged.files, merged.lines, dict(merged.severities)) == (20, 2000, {HIGH: 1, MEDIUM: 0, LOW: 1})
    assert [one.severity for one in merged.findings] == [HIGH, LOW] and merged.hot == {"a.py": (2, 0, 0)}
    assert merge([*parts, parts[0]]) == merge(parts), "a shard that was run twice counts once"


def test_the_order_of_ending_changes_nothing() -> None:
    crew = [
        say(facts(SECURITY, Shard(number, 3), tuple(issue(random.Random(number).choice(list(Severity)), line) for line in range(30))))
        for number in (1, 2, 3)
    ] + [say(facts(perspective)) for perspective in (COMPLEXITY, DOCSTRINGS, TESTS)] + [say(None, STRUCTURE)]  # fmt: skip
    expected = json.dumps(results.summary(crew, None))
    for seed in range(20):
        random.Random(seed).shuffle(crew)
        assert json.dumps(results.summary(crew, None)) == expected


def test_a_perspective_that_failed_is_shown_and_not_scored() -> None:
    found = results.summary([say(None, SECURITY), say(facts(TESTS, test_files=5))], None)
    security, tests = found["perspectives"]
    assert (security["state"], security["reason"], security["score"]) == ("failed", "exit code 3", None)
    assert (tests["state"], found["health"]) == ("done", 100.0)
    assert found["failed"] == [{"task": "r/security-1", "perspective": "security", "shard": "1/1", "reason": "exit code 3"}]
    assert found["actions"][0] == ("The picture is not whole: 1 analyst failed (exit code 3). Run again: nightcrew retry r/security-1")


def test_a_perspective_of_which_one_piece_failed_is_partial() -> None:
    lost = say(None, SECURITY, task="r/security-2", shard="2/2")
    found = results.summary([say(facts(SECURITY, Shard(1, 2), issues=1)), lost, say(facts(TESTS))], None)
    assert [one["state"] for one in found["perspectives"]] == ["partial", "done"]
    assert found["perspectives"][0]["score"] == 90.0
    assert found["files"] == 10, "of the perspective that is whole"


def test_the_worst_come_first_and_every_perspective_gets_a_place() -> None:
    loud = facts(SECURITY, Shard(), tuple(issue(MEDIUM, line) for line in range(1, 60)))
    quiet = facts(COMPLEXITY, Shard(), (issue(MEDIUM, 5, COMPLEXITY, "z.py"), issue(HIGH, 6, COMPLEXITY, "z.py")))
    chosen = results.issues([loud, quiet])
    assert len(chosen) == results.MAX_ISSUES
    assert [(one.severity, one.perspective, one.line) for one in chosen[:3]] == [
        (HIGH, COMPLEXITY, 6),
        (MEDIUM, SECURITY, 1),
        (MEDIUM, COMPLEXITY, 5),
    ]


def test_what_to_do_next() -> None:
    found = results.summary(
        [
            say(facts(SECURITY, findings=(issue(HIGH, 3), issue(LOW, 1)))),
            say(facts(COMPLEXITY, findings=(issue(HIGH, 7, COMPLEXITY, code="complex-function"),))),
            say(facts(DOCSTRINGS, objects=10, documented=3, findings=(issue(LOW, 1, DOCSTRINGS, "doc.py"),))),
            say(facts(TESTS, test_files=1)),
            say(replace(facts(STRUCTURE, findings=(issue(MEDIUM, 0, STRUCTURE, "bad.py", "syntax-error"),)), unparsable=2)),
        ],
        None,
    )
    assert found["actions"] == [
        "Look at 1 high-severity security finding, first a.py:3 (B1).",
        "Mend or exclude 2 files that Python cannot parse, first bad.py.",
        "Split the most complex function: a.py:7: words.",
        "Write more tests: 10% of the files are tests; 50% would score 100.",
        "Document what others call: 30% of the public modules, classes and functions have a docstring; begin with doc.py.",
    ]


def test_nothing_to_do_and_nothing_to_look_at() -> None:
    assert results.summary([say(facts(SECURITY))], None)["actions"] == ["Nothing urgent was found."]
    empty = results.summary([say(Facts(SECURITY, counts={"issues": 0, "ignored": 0}))], None)
    assert (empty["health"], empty["files"]) == (None, 0)
    assert empty["actions"] == ["There are no Python files here, so there was nothing to look at."]
    assert empty["perspectives"][0]["reason"] == "no Python files"


# From outcomes -------------------------------------------------------------------------------------------------------------------


def outcome(found: Facts, **changes: Any) -> dict[str, Any]:
    result = {
        "output": json.loads(findings.write(found)),
        "started": "2026-11-21T06:00:01.000Z",
        "ended": "2026-11-21T06:00:03.500Z",
        "spawn_to_done_ms": 2700,
    }
    shape = {"id": "r/x", "name": str(found.perspective), "kind": "analyst", "state": "done", "reason": "done", "result": result}
    return {**shape, "params": {"ANALYST": str(found.perspective), "ANALYST_SHARD": str(found.shard), "ANALYST_PHASE": "crew"}, **changes}


def test_outcomes_become_what_was_told() -> None:
    other = {**outcome(facts(TESTS)), "kind": "shell"}
    (one,) = results.told([outcome(facts(TESTS)), other])
    assert results.spans([other]) == []
    assert (one.perspective, one.phase, one.reason, one.facts and one.facts.files) == (TESTS, Phase.CREW, "", 10)
    (span,) = results.spans([outcome(facts(TESTS))])
    assert (round(span.began - span.created, 3), round(span.ended - span.began, 3)) == (0.2, 2.5)


def test_what_a_plan_says_of_the_phase_is_not_believed() -> None:
    odd = outcome(facts(TESTS), params={"ANALYST": "tests", "ANALYST_PHASE": "nonsense"})
    assert results.told([odd])[0].phase is results.spans([odd])[0].phase is Phase.CREW


def test_what_did_not_end_well_or_makes_no_sense_has_no_facts() -> None:
    good = outcome(facts(TESTS))
    failed = results.told([{**good, "state": "failed", "reason": "failed: exit code 9"}])[0]
    assert (failed.facts, failed.reason) == (None, "exit code 9")
    assert results.told([{**good, "state": "skipped", "reason": ""}])[0].reason == "it is skipped"
    assert results.told([{**good, "result": None}])[0].reason == "it is no analyst's result of schema 1"
    assert results.told([outcome(facts(TESTS), params={**good["params"], "ANALYST_SHARD": "2/2"})])[0].reason == "it answered for tests 1/1"
    assert results.spans([{**good, "state": "failed"}, {**good, "result": {}}]) == []


# Figures -------------------------------------------------------------------------------------------------------------------------


def span(name: str, created: float, began: float, ended: float, phase: Phase = Phase.CREW) -> Span:
    return Span(name, phase, 1000 + created, 1000 + began, 1000 + ended)


ALONE = [span("a", 0, 1, 5, Phase.BASELINE), span("b", 5, 6, 10, Phase.BASELINE)]
CREW = [span("a", 20, 21, 26), span("b", 20, 21.5, 26)]


def test_set_up_and_work_apart() -> None:
    found = results.figures([*CREW, *ALONE], usable_cores=2)
    assert found is not None and found.sequential is not None
    assert (found.sequential.elapsed_s, found.sequential.setup_s, found.sequential.work_s) == (10.0, 2.0, 8.0)
    assert (found.parallel.elapsed_s, found.parallel.setup_s, found.parallel.work_s) == (6.0, 1.0, 5.0)
    assert (found.speedup, found.speedup_work, found.efficiency_agents, found.efficiency_usable) == (1.667, 1.6, 0.8, 0.8)
    assert [(one.name, one.alone_s, one.together_s, one.setup_s) for one in found.per_agent] == [("a", 4.0, 5.0, 1.0), ("b", 4.0, 4.5, 1.5)]
    assert {name: found.to_json()[name] for name in ("sequential_s", "parallel_s", "setup_s", "work_s")} == {
        "sequential_s": 10.0,
        "parallel_s": 6.0,
        "setup_s": 1.0,
        "work_s": 5.0,
    }
    assert results.plainly(found) == (
        "One after another 2 analysts took 10s, at once 6s; of that work 8s and 5s: 1.60 times as fast, "
        "80% of the 2.00 that 2 usable cores allow."
    )


def test_efficiency_is_of_the_cores_that_could_be_used() -> None:
    one_core, many = results.figures([*CREW, *ALONE], 1), results.figures([*CREW, *ALONE], 64)
    assert one_core and many
    assert (one_core.efficiency_usable, many.efficiency_usable) == (1.6, 0.8)


def test_the_plain_truth_when_it_did_not_help() -> None:
    slow = [span("a", 20, 21, 31), span("b", 20, 21, 31)]
    assert results.plainly(results.figures([*slow, *ALONE], 1)) == (
        "Running at once did not help: one after another 2 analysts took 10s, at once 11s; of that work 8s and 10s, on 1 usable core."
    )


def test_the_plain_truth_when_set_up_took_what_was_won() -> None:
    late = [span("a", 20, 25, 30), span("b", 20, 26, 30)]
    assert results.plainly(results.figures([*late, *ALONE], 2)).endswith(
        "80% of the 2.00 that 2 usable cores allow. Set-up took what was won."
    )


def test_without_a_whole_baseline_nothing_is_compared() -> None:
    for spans in (CREW, [*CREW, ALONE[0]]):
        found = results.figures(spans, 2)
        assert found is not None and found.speedup is None and found.to_json()["sequential_s"] is None
        assert "--baseline" in results.plainly(found)
    assert results.figures(ALONE, 2) is None
    assert "No analyst ended well" in results.plainly(None)


def test_work_too_short_to_measure() -> None:
    spans = [span("a", 20, 21, 21), span("a", 0, 1, 1, Phase.BASELINE)]
    assert (
        results.plainly(results.figures(spans, 2)) == "One after another 1 analyst took 1s, at once 1s; the work was too short to compare."
    )
    assert results.plainly(results.figures(spans[:1], 2)) == "1 analyst took 1s on 2 usable cores."


def test_one_that_still_runs_is_no_failure() -> None:
    shown = results.summary([say(None, state="running", reason="it is running")], None)
    assert (shown["failed"], shown["perspectives"][0]["state"]) == ([], "running")
    assert shown["actions"] == ["Wait: 1 analyst still at work."]
    half = [say(facts(SECURITY, Shard(1, 2))), say(None, state="running", reason="it is running", shard="2/2")]
    assert results.summary(half, None)["perspectives"][0]["state"] == "partial"


def test_more_than_the_cores_can_give_is_called_a_disturbance() -> None:
    slow = [span("a", 0, 1, 9, Phase.BASELINE), span("b", 9, 10, 18, Phase.BASELINE)]
    said = results.plainly(results.figures([*CREW, *slow], 2))
    assert said.endswith(
        "3.20 times as fast, more than 2 usable cores can give: something else slowed the runs one by one, so measure again."
    )


def test_what_failed_or_ran_again_is_compared_with_nothing() -> None:
    """One that hung ten minutes in the middle of the baseline is no set-up of the others."""
    alone = [span("a", 0, 1, 5, Phase.BASELINE), span("b", 605, 606, 610, Phase.BASELINE)]
    found = results.figures([*alone, *CREW], 2, ["alone-c", "c"])
    assert found and (found.sequential, found.speedup) == (None, None)
    assert results.plainly(found) == "alone-c and c failed or ran more than once, so the times say nothing about running at once."
    good = outcome(facts(TESTS))
    again = {**good, "result": {**good["result"], "epoch": 2}}
    assert results.spoilt([good, again, {**good, "state": "failed"}, {**good, "state": "running"}]) == ["tests", "tests"]


def test_a_task_of_another_kind_spoils_nothing_whatever_its_parameters() -> None:
    assert results.spoilt([{**outcome(facts(TESTS)), "kind": "shell", "state": "failed"}]) == []


def test_it_is_said_when_those_that_were_to_begin_together_did_not() -> None:
    def begun(*after_s: float, **marked: str) -> results.Figures:
        """One analyst a number, which began so many seconds after 06:00:01."""
        good = outcome(facts(TESTS))
        crew = [
            {
                **good,
                "name": f"tests-{number}",
                "params": {**good["params"], **marked},
                "result": {**good["result"], "started": f"2026-11-21T06:00:{1 + seconds:06.3f}Z", "ended": "2026-11-21T06:00:59.000Z"},
            }
            for number, seconds in enumerate(after_s)
        ]
        found = results.figures(results.spans(crew), 2)
        assert found is not None
        return found

    late = begun(0.0, 3.25, ANALYST_TOGETHER="1")
    assert late.to_json()["began_apart_s"] == 3.25
    assert results.plainly(late).endswith(". The analysts were to begin together, but began 3.2s apart.")
    held, never_asked = begun(0.0, 0.9, ANALYST_TOGETHER="1"), begun(0.0, 3.25)
    assert (held.began_apart_s, never_asked.began_apart_s) == (0.9, None)
    assert "apart" not in results.plainly(held) + results.plainly(never_asked)


def test_the_baseline_is_for_the_figures_and_for_nothing_else() -> None:
    crew = [say(facts(SECURITY, issues=1))]
    baseline = [
        say(facts(SECURITY, Shard(1, 2), (issue(HIGH, 1),), issues=9), task="r/alone-security", phase=Phase.BASELINE),
        say(None, TESTS, task="r/alone-tests", phase=Phase.BASELINE),
    ]
    assert results.summary([*baseline, *crew], None) == results.summary(crew, None)


def test_of_a_shard_that_was_told_twice_the_one_with_more_files_counts() -> None:
    small, large = facts(SECURITY, issues=1), replace(facts(SECURITY, issues=2), files=11)
    assert merge([small, large])[SECURITY].counts["issues"] == merge([large, small])[SECURITY].counts["issues"] == 2
