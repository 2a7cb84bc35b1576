"""What the daemon writes is there whole, once, and by the newest attempt only."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.kernel.crew import Attempt, PauseState
from supervisor.kernel.decision import Collect, Command, Finish, MarkRunning, Pause, Resume, Revive, SetState, Start, Stop
from supervisor.kernel.errors import LedgerError, Refused, StaleEpoch
from supervisor.kernel.retry import BACKOFF_CAP_S, Tally
from supervisor.kernel.states import FINAL, AttemptState, End, TaskState, Until
from supervisor.store.ledger import Ledger
from supervisor.store.rows import AttemptRow
from tests.store.kit import RUN, Wall, check_integrity, ended, rows, spec, submission, submit, whole

A, B, C = f"{RUN}/a", f"{RUN}/b", f"{RUN}/c"


def states(path: Path) -> dict[str, str]:
    return {row["id"].partition("/")[2]: row["state"] for row in rows(path, "SELECT id, state FROM task ORDER BY ord")}


def everything(path: Path) -> list[list[dict[str, Any]]]:
    return [rows(path, sql) for sql in ("SELECT * FROM task", "SELECT * FROM attempt", "SELECT * FROM journal")]


# Submissions -------------------------------------------------------------------------------------------------------------------------


def test_a_run_is_there_with_all_its_tasks(ledger: Ledger, path: Path) -> None:
    tasks = (spec("a", priority=7, timeout_s=5.0, retries=2), spec("a.b", after=("a",)), spec("a:b"), spec("A", title="nul\0 \u202e $(x)"))
    assert ledger.submit(submission(*tasks), RUN) == (RUN, True)
    made = ledger.tasks_of_run(RUN, 0.0)
    assert [task.id for task in made] == [f"{RUN}/{name}" for name in ("a", "a-b", "a-b-2", "a-2")]
    assert (made[0].priority, made[0].timeout_s, made[0].retries, made[0].state) == (7, 5.0, 2, TaskState.WAITING)
    assert made[1].after == {A}
    assert [task.order for task in made] == sorted({task.order for task in made})
    assert rows(path, "SELECT title FROM task WHERE name = 'A'") == [{"title": "nul\0 \u202e $(x)"}]
    assert ledger.run_exists(RUN) and not ledger.run_exists("0731-zzzz")


def test_what_a_launch_needs_comes_back(ledger: Ledger, wall: Wall) -> None:
    task = spec("a", argv=("caf\udce9", ""), params={"X": "\udcff"}, prompt="p", cores=(1, 2))
    ledger.submit(submission(task, env={"PATH": "/bin", "LC_X": "\udcfe"}), RUN)
    row = ledger.launch_row(A)
    assert row.spec == task
    assert (row.run, row.base_oid, row.root, row.common_dir, row.project) == (RUN, "c0ffee", "/repo", "/repo/.git", "0123456789ab")
    assert row.env == {"PATH": "/bin", "LC_X": "\udcfe"}
    assert row.created == wall.now
    for ask in (ledger.launch_row, lambda name: ledger.task(name, 0.0)):
        with pytest.raises(KeyError):
            ask("nobody")


def test_the_same_key_twice_is_one_run(ledger: Ledger, path: Path) -> None:
    assert ledger.submit(submission("a", key="k"), RUN) == (RUN, True)
    assert ledger.submit(submission("a", "b", key="k"), "0731-bbbb") == (RUN, False)
    assert ledger.submit(submission("a", key="other", root="/moved"), "0731-cccc") == ("0731-cccc", True)
    assert [row["id"] for row in rows(path, "SELECT id FROM task ORDER BY ord")] == [A, "0731-cccc/a"]
    assert rows(path, "SELECT root FROM project") == [{"root": "/moved"}]


def test_a_submission_is_there_whole_or_not_at_all(ledger: Ledger, path: Path) -> None:
    ledger.submit(submission("a", key="k"), RUN)
    with pytest.raises(LedgerError, match="UNIQUE"):
        ledger.submit(submission("b", key="other", project="ba9876543210"), RUN)
    with pytest.raises(LedgerError, match="not Unicode text"):
        ledger.submit(submission("b", key="other", project="ba9876543210", root="/caf\udce9"), "0731-bbbb")
    assert rows(path, "SELECT count(*) AS n FROM project") == [{"n": 1}]
    assert [row["id"] for row in rows(path, "SELECT id FROM task")] == [A]


def test_an_environment_is_open_once_at_a_time(ledger: Ledger, path: Path) -> None:
    named = spec("a", environment="review")
    ledger.submit(submission(named, key="k"), RUN)
    with pytest.raises(Refused) as caught:
        ledger.submit(submission("b", spec("c", environment="review"), key="other"), "0731-bbbb")
    assert caught.value.line() == f"cannot open review: {A} is waiting in it; kept: it as it was; next: nightcrew attach {A}"
    assert [row["id"] for row in rows(path, "SELECT id FROM run")] == [RUN], "nothing of it is written"
    assert ledger.submit(submission(named, key="k"), "0731-bbbb") == (RUN, False), "the same key is still the same run"
    ledger.submit(submission(named, key="elsewhere", project="ba9876543210"), "0731-cccc")
    ledger.commit([SetState(A, TaskState.CANCELLED, "")])
    assert ledger.submit(submission(named, key="later"), "0731-dddd") == ("0731-dddd", True)


# Commands, and their fence -----------------------------------------------------------------------------------------------------------


def test_a_life_is_written_step_by_step(ledger: Ledger, wall: Wall) -> None:
    submit(ledger, "a")
    began = wall.now
    ledger.commit([Start(A, 1, "")])
    wall.now += 1
    ledger.commit([MarkRunning(A, 1)])
    assert ledger.task(A, 50.0).attempt == Attempt(1, AttemptState.RUNNING, 50.0)
    ledger.note(A, 1, worktree="/w", admin_dir="/d", branch="b", base_oid="o", session_id="$1", pane_id="%1", server_pid=7)
    ledger.commit([Collect(A, 1, End.FAILED, "exit code 1")])
    wall.now += 1
    ledger.commit([Finish(A, 1, End.FAILED, "exit code 1", TaskState.FAILED, 0.0)])
    expected = AttemptRow(
        task=A,
        epoch=1,
        state=AttemptState.ENDED,
        cause="",
        stop_why="",
        end="failed",
        judged="failed",
        end_cause="exit code 1",
        created=began,
        started=began + 1,
        ended=began + 2,
        worktree="/w",
        admin_dir="/d",
        branch="b",
        base_oid="o",
        session_id="$1",
        pane_id="%1",
        server_pid=7,
    )
    assert ledger.attempt(A, 1) == expected
    assert ledger.unreleased() == ledger.worktrees([A]) == [expected]
    assert ledger.worktrees([]) == []
    ledger.release(A, 1)
    ledger.release(A, 1)
    assert ledger.unreleased() == []
    ledger.note(A, 1, removed=wall.now)
    assert ledger.worktrees([A]) == []
    assert ledger.attempt(A, 2) is None


def test_what_stands_still_is_known_until_all_of_it_goes_on(ledger: Ledger, wall: Wall) -> None:
    submit(ledger, "a")
    ledger.commit([Start(A, 1, ""), MarkRunning(A, 1), Pause(A, 1, Until.PERSON)])
    paused = PauseState(Until.PERSON, 50.0)
    assert ledger.task(A, 50.0).attempt == Attempt(1, AttemptState.RUNNING, 50.0, paused=paused)
    ledger.note(A, 1, paused=json.dumps({"at": wall.now, "until": "person", "for": "", "held": 3, "before": [[7, 8, "boot"]]}))
    assert ledger.task(A, 50.0).attempt == Attempt(1, AttemptState.RUNNING, 50.0, paused=replace(paused, still=True))
    wall.now += 7
    ledger.commit([Pause(A, 1, Until.SLOT, "x")])
    waits = PauseState(Until.SLOT, 43.0, still=True, made_for="x")
    assert ledger.task(A, 50.0).attempt == Attempt(1, AttemptState.RUNNING, 50.0, paused=waits), "what it found is kept"
    ledger.commit([Resume(A, 1)])
    assert ledger.task(A, 50.0).attempt == Attempt(1, AttemptState.RUNNING, 50.0), "its deadline counts again"
    row = ledger.attempt(A, 1)
    assert row is not None
    kept = {"at": wall.now - 7, "until": "slot", "for": "x", "held": 3, "before": [[7, 8, "boot"]]}
    assert json.loads(row.paused or "") == {**kept, "resuming": 1}
    ledger.commit([Pause(A, 1, Until.PERSON)])
    assert ledger.task(A, 50.0).attempt == Attempt(1, AttemptState.RUNNING, 50.0, paused=paused), "it may move again: a pause of its own"


def test_a_batch_is_one_transaction(ledger: Ledger, path: Path) -> None:
    submit(ledger, "a", "b")
    with pytest.raises(StaleEpoch, match=f"nothing written for {B}:2"):
        ledger.commit([Start(A, 1, ""), SetState(B, TaskState.CANCELLED, ""), Start(B, 2, "")])
    assert states(path) == {"a": "ready", "b": "ready"}
    assert rows(path, "SELECT * FROM attempt") == []
    ledger.commit([])


STALE: list[Command] = [
    Start(A, 1, "again"),
    Start(A, 2, "again"),
    Start(A, 3, "again"),
    MarkRunning(A, 1),
    Stop(A, 1, "cancelled"),
    Pause(A, 1, Until.PERSON),
    Resume(A, 1),
    Collect(A, 1, End.DONE, ""),
    Finish(A, 1, End.DONE, "", TaskState.DONE, 0.0),
    MarkRunning(A, 3),
    Finish(A, 3, End.DONE, "", TaskState.DONE, 0.0),
    SetState(A, TaskState.CANCELLED, ""),
    Revive(A, "again"),
    SetState("nobody", TaskState.CANCELLED, ""),
    Revive("nobody", "again"),
    Start("nobody", 1, ""),
]


@pytest.mark.parametrize("late", STALE, ids=str)
def test_a_late_writer_changes_nothing(ledger: Ledger, path: Path, late: Command) -> None:
    """The task's second attempt is running."""
    submit(ledger, "a")
    ledger.commit([*whole(A, 1, End.LOST, TaskState.READY), Start(A, 2, "lost")])
    before = everything(path)
    with pytest.raises(StaleEpoch, match="nothing written for"):
        ledger.commit([late])
    assert everything(path) == before


@pytest.mark.parametrize("late", [*ended(A, 1), MarkRunning(A, 1), Stop(A, 1, "x"), Start(A, 2, "again")], ids=str)
def test_an_end_is_written_once(ledger: Ledger, late: Command) -> None:
    submit(ledger, "a")
    ledger.commit(whole(A))
    with pytest.raises(StaleEpoch):
        ledger.commit([late])
    assert ledger.task(A, 0.0).state is TaskState.DONE


def test_a_launch_that_was_not_released_is_not_released_by_mistake(ledger: Ledger) -> None:
    submit(ledger, "a")
    ledger.commit([Start(A, 1, "")])
    ledger.release(A, 1)
    assert [row.state for row in ledger.unreleased()] == [AttemptState.LAUNCHING]


RACE: list[list[Command]] = [
    [Stop(A, 1, "cancelled"), *ended(A, 1, End.CANCELLED, TaskState.CANCELLED)],
    ended(A, 1, End.DONE, TaskState.DONE),
    ended(A, 1, End.LOST, TaskState.READY),
]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_stop_complete_and_crash_at_once_give_one_end(path: Path, wall: Wall, order: tuple[int, ...]) -> None:
    """Three writers that each know of a different end: a second daemon, and a third."""
    ledgers = [Ledger(path, wall) for _ in range(3)]
    submit(ledgers[0], "a")
    ledgers[0].commit([Start(A, 1, "")])
    won: list[int] = []
    for index in order:
        try:
            ledgers[index].commit(RACE[index])
            won.append(index)
        except StaleEpoch:
            pass
    for one in ledgers:
        one.close()
    assert won == [order[0]]
    assert states(path) == {"a": ("cancelled", "done", "ready")[order[0]]}
    assert len(rows(path, "SELECT 1 FROM journal WHERE event LIKE 'end %'")) == 1


def test_a_stop_leaves_work_that_is_being_secured_where_it_is(ledger: Ledger) -> None:
    submit(ledger, "a", "b")
    ledger.commit([Start(A, 1, ""), Stop(A, 1, "timeout"), Stop(A, 1, "cancelled")])
    ledger.commit([Start(B, 1, ""), Collect(B, 1, End.FAILED, "exit code 1"), Stop(B, 1, "cancelled")])
    found = {row.task: (row.state, row.stop_why, row.judged) for row in ledger.unreleased()}
    assert found == {A: (AttemptState.STOPPING, "cancelled", None), B: (AttemptState.COLLECTING, "cancelled", "failed")}
    assert [task.attempt.stop_why for task in ledger.unfinished(0.0) if task.attempt] == ["cancelled", "cancelled"]


def test_facts_are_checked(ledger: Ledger) -> None:
    submit(ledger, "a")
    with pytest.raises(ValueError, match="no such fact: \\['end'\\]"):
        ledger.note(A, 1, end="done")


# Read back ---------------------------------------------------------------------------------------------------------------------------


def test_unfinished_is_what_is_open_and_what_it_needs(ledger: Ledger) -> None:
    submit(ledger, "a", "b", spec("c", after=("a", "b")), "d")
    ledger.commit([*whole(A), *whole(f"{RUN}/d")])
    assert {task.id: task.state for task in ledger.unfinished(0.0)} == {A: TaskState.DONE, B: TaskState.READY, C: TaskState.WAITING}
    ledger.commit(whole(B))
    ledger.commit([SetState(C, TaskState.SKIPPED, "b is failed")])
    assert ledger.unfinished(0.0) == ()


@pytest.mark.parametrize(
    ("jump", "left"),
    [(0.0, 32.0), (12.0, 20.0), (32.0, 0.0), (3600.0, 0.0), (-100.0, 132.0), (-3600.0, BACKOFF_CAP_S), (-315e6, BACKOFF_CAP_S)],
)
def test_a_backoff_outlives_the_daemon_and_any_clock(ledger: Ledger, wall: Wall, jump: float, left: float) -> None:
    submit(ledger, "a")
    ledger.commit(whole(A, 1, End.FAILED, TaskState.READY, 32.0))
    wall.now += jump
    (task,) = ledger.unfinished(now=77.0)
    assert task.not_before == (77.0 + left if left else 0.0)
    assert (task.tally, task.cause) == (Tally(failures=1), "failed")


def test_the_cause_of_a_retry_outlives_the_daemon(ledger: Ledger) -> None:
    submit(ledger, "a")
    ledger.commit(whole(A, 1, End.FAILED, TaskState.FAILED))
    ledger.commit([Revive(A, "retry asked; was failed"), SetState(A, TaskState.READY, "")])
    (task,) = ledger.unfinished(0.0)
    assert (task.cause, task.tally, task.epoch) == ("retry asked; was failed", Tally(), 1)


def test_a_retry_revives_what_was_skipped_because_of_it(ledger: Ledger) -> None:
    submit(ledger, "a", "b", spec("c", after=("a",)), spec("d", after=("c", "b")), spec("e", after=("b",)), spec("f", after=("d",)))
    name = {letter: f"{RUN}/{letter}" for letter in "abcdef"}
    ledger.commit([*whole(A, 1, End.FAILED, TaskState.FAILED), *whole(B)])
    ledger.commit([SetState(name[letter], TaskState.SKIPPED, "") for letter in "cdf"])
    ledger.commit([SetState(name["e"], TaskState.CANCELLED, "")])
    assert ledger.revivable(A) == [name[letter] for letter in "acdf"]
    assert ledger.revivable(B) == [B, name["d"], name["f"]]
    assert ledger.revivable(name["c"]) == [name[letter] for letter in "cdf"]
    assert ledger.revivable(name["f"]) == [name["f"]]


def test_the_history_of_a_task(ledger: Ledger, path: Path) -> None:
    submit(ledger, "a")
    ledger.commit([Start(A, 1, ""), Stop(A, 1, "cancelled"), *ended(A, 1, End.CANCELLED, TaskState.CANCELLED)])
    ledger.journal(A, 1, "worktree removed", {"path": "/w"})
    ledger.journal(None, None, "up")
    assert [row["event"] for row in rows(path, "SELECT event FROM journal ORDER BY seq")] == [
        "submitted",
        "ready",
        "start",
        "stopping",
        "tree gone",
        "end cancelled",
        "worktree removed",
        "up",
    ]


def test_every_state_is_open_or_final_for_the_index_too(ledger: Ledger, path: Path) -> None:
    """The partial index names the open states; a new state must be in one of the two sets."""
    sql = rows(path, "SELECT sql FROM sqlite_schema WHERE name = 'task_open'")[0]["sql"]
    assert {state for state in TaskState if f"'{state}'" in sql} == set(TaskState) - FINAL
    check_integrity(path)
