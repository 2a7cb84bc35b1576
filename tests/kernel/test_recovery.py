"""Every row of the two tables by which an attempt's traces are judged."""

from __future__ import annotations

import pytest

from supervisor.kernel.records import Exit
from supervisor.kernel.recovery import Life, Verdict, judge_traces, stopped, verdict
from supervisor.kernel.states import End

NO = False


def exit_record(why: str = "exit", code: int | None = 0, signal: int | None = None, detail: str = "") -> Exit:
    return Exit("r/a", 1, code, signal, why, detail, duration_s=12.4)


@pytest.mark.parametrize(
    ("pane", "runner", "started", "recorded", "expected"),
    [
        (NO, NO, NO, NO, Verdict.NEVER_STARTED),
        (NO, NO, True, NO, Verdict.LOST),
        (NO, True, True, NO, Verdict.LIVE),
        (True, NO, NO, NO, Verdict.LIVE),
        (True, NO, True, NO, Verdict.LOST),  # tmux shows a pane whose process it never reaped
        (True, True, True, NO, Verdict.LIVE),
        (NO, NO, NO, True, Verdict.RECORDED),
        (NO, NO, True, True, Verdict.RECORDED),
        (NO, True, True, True, Verdict.RECORDED),
        (True, NO, NO, True, Verdict.RECORDED),
        (True, NO, True, True, Verdict.RECORDED),
        (True, True, True, True, Verdict.RECORDED),
    ],
)
def test_verdicts(pane: bool, runner: bool, started: bool, recorded: bool, expected: Verdict) -> None:
    record = exit_record() if recorded else None
    assert verdict(Life(pane=pane, runner=runner, started=started), record) is expected


@pytest.mark.parametrize(
    ("record", "end", "cause"),
    [
        (exit_record(), End.DONE, ""),
        (exit_record(code=3), End.FAILED, "exit code 3"),
        (exit_record(code=None, signal=11), End.FAILED, "killed by signal 11"),
        (exit_record("timeout", None, 9), End.TIMEOUT, "stopped after 12s"),
        (exit_record("stopped", None, 15), End.LOST, "its runner was told to stop from outside"),
        (exit_record("hangup", None, 1), End.CANCELLED, "its session was closed by hand"),
        (exit_record("finished", None, 15), End.DONE, ""),
        (exit_record("exec", None, None, "No such file or directory"), End.FAILED, "could not start: No such file or directory"),
    ],
)
def test_judgements_of_what_nobody_asked_to_stop(record: Exit, end: End, cause: str) -> None:
    assert judge_traces(record, stop_why="", server_died=False) == (end, cause)


@pytest.mark.parametrize("why", ["exit", "stopped", "hangup", "exec"])
@pytest.mark.parametrize("server_died", [False, True])
def test_the_reason_of_our_own_stop_decides(why: str, server_died: bool) -> None:
    assert judge_traces(exit_record(why, None, 15), stop_why="cancelled", server_died=server_died) == (End.CANCELLED, "cancelled")
    assert judge_traces(exit_record(why, None, 15), stop_why="timeout", server_died=server_died)[0] is End.TIMEOUT


def test_who_was_stopped_for_a_limit_failed_by_it() -> None:
    why = "limit: disk_max: too much"
    assert (
        stopped(why)
        == judge_traces(exit_record("stopped", None, 15), stop_why=why, server_died=False)
        == (End.FAILED, "disk_max: too much")
    )
    assert judge_traces(exit_record(), stop_why=why, server_died=False) == (End.DONE, ""), "it had ended by itself before"
    assert (stopped("timeout"), stopped("cancelled")) == ((End.TIMEOUT, "timeout"), (End.CANCELLED, "cancelled"))


def test_a_timeout_stays_one_when_a_cancel_came_after_it() -> None:
    assert judge_traces(exit_record("timeout", None, 15), stop_why="cancelled", server_died=False)[0] is End.TIMEOUT


def test_a_hangup_is_nobodys_doing_when_the_server_died() -> None:
    assert judge_traces(exit_record("hangup", None, 1), stop_why="", server_died=True) == (End.LOST, "the tmux server died")
    assert judge_traces(exit_record("exit", 0), stop_why="", server_died=True) == (End.DONE, "")
