"""Several processes, and `kill -9` of any of them: what was acknowledged is there, and everything is done once."""

from __future__ import annotations

import collections
import contextlib
import functools
import multiprocessing
import random
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from supervisor.kernel.decision import Collect, Finish
from supervisor.kernel.errors import StaleEpoch
from supervisor.kernel.states import End, TaskState
from supervisor.store.ledger import Ledger
from tests.store import workers
from tests.store.kit import RUN, Wall, check_integrity, rows, submit
from tests.support import wait_until

Starter = Callable[..., ForkServerProcess]


@pytest.fixture
def start() -> Iterator[Starter]:
    """Start processes, forked from a clean one that has everything imported; whatever is left of them is ended afterwards."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([workers.__name__])
    made: list[ForkServerProcess] = []

    def starting(work: Callable[..., None], *args: Any) -> ForkServerProcess:
        made.append(context.Process(target=work, args=args))
        made[-1].start()
        return made[-1]

    yield starting
    for process in made:
        process.kill()
        process.join()
        process.close()


def has_lines(notes: Path, count: int) -> bool:
    return len(workers.lines(notes)) >= count


def test_the_same_keys_from_four_processes_at_once_are_one_run_each(path: Path, tmp_path: Path, start: Starter) -> None:
    Ledger(path, Wall()).close()
    keys = [f"key-{number}" for number in range(25)]
    team = [start(workers.submit_keys, path, tmp_path / f"notes-{name}", keys, f"run-{name}") for name in range(4)]
    (path.parent / "go").touch()
    for process in team:
        process.join()
        assert process.exitcode == 0
    said = [tuple(words) for name in range(4) for words in workers.lines(tmp_path / f"notes-{name}")]
    assert len(said) == 100
    runs = {row["key"]: row["id"] for row in rows(path, "SELECT key, id FROM run")}
    assert {(key, run) for key, run, _ in said} == set(runs.items())
    assert sorted(key for key, _, new in said if new == "True") == sorted(keys)
    assert rows(path, "SELECT count(*) AS n FROM task") == [{"n": 50}]


# S02 ---------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kills", [15, pytest.param(100, marks=pytest.mark.soak)])
def test_what_was_acknowledged_survives_the_writer(path: Path, tmp_path: Path, start: Starter, kills: int, seed: int) -> None:
    draw = random.Random(seed)
    Ledger(path, Wall()).close()
    acknowledged: list[str] = []
    for number in range(kills):
        notes = tmp_path / f"notes-{number}"
        wanted = draw.randrange(1, 30)
        writer = start(workers.submit_for_ever, path, notes, f"w{number}")
        wait_until(functools.partial(has_lines, notes, wanted), "the writer to write", every_s=0.001)
        writer.kill()
        writer.join()
        acknowledged += [run for (run,) in workers.lines(notes)]
        with contextlib.closing(Ledger(path, Wall(), create=False)) as ledger:
            assert [run for run in acknowledged if not ledger.run_exists(run)] == []
    counts = {row["run"]: row["n"] for row in rows(path, "SELECT run, count(*) AS n FROM task GROUP BY run")}
    assert set(acknowledged) <= counts.keys()
    assert set(counts.values()) == {5}, "a run is there whole or not at all"
    assert len(counts) <= len(acknowledged) + kills, "at most one more a writer: the one that nobody heard of"
    check_integrity(path)


# R02 ---------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claimers", "tasks", "kills"), [(6, 120, 6), pytest.param(16, 2000, 60, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])]
)
def test_every_task_is_done_once_whoever_dies(
    path: Path, tmp_path: Path, start: Starter, claimers: int, tasks: int, kills: int, seed: int
) -> None:
    draw = random.Random(seed)
    ledger = Ledger(path, Wall())
    notes: list[Path] = []
    team: dict[Path, ForkServerProcess] = {}

    def fill_up() -> None:
        while len(team) < claimers:
            notes.append(tmp_path / f"notes-{len(notes)}")
            team[notes[-1]] = start(workers.claim, path, notes[-1], tasks)

    fill_up()
    wait_until(lambda: all(has_lines(note, 1) for note in team), "every claimer to be there", every_s=0.001)
    submit(ledger, *(f"t{number}" for number in range(tasks)))
    for death in range(kills):
        fill_up()
        wait_until(functools.partial(all_done, path, tasks * death // kills), "some tasks to be done", every_s=0.001)
        victim = draw.choice(sorted(note for note in team if has_lines(note, 2)) or sorted(team))
        team[victim].kill()
        team.pop(victim).join()
        declare_lost(ledger, victim)
    wait_until(functools.partial(all_done, path, tasks), "every task to be done", 600)
    for process in team.values():
        process.join()
        assert process.exitcode == 0
    ledger.close()
    check_done_once(path, [words for note in notes for words in workers.lines(note)], tasks)


def all_done(path: Path, count: int) -> bool:
    return bool(rows(path, "SELECT count(*) AS n FROM task WHERE state = 'done'")[0]["n"] >= count)


def declare_lost(ledger: Ledger, notes: Path) -> None:
    """What the daemon does of a dead one's last attempt. It may be wrong: somebody else may have been first with that epoch and be
    alive. Then that one's end is stale, and the task is done in a later epoch."""
    started = [(words[1], int(words[2])) for words in workers.lines(notes) if words[0] == "start"]
    for task, epoch in started[-1:]:
        with contextlib.suppress(StaleEpoch):
            ledger.commit([Collect(task, epoch, End.LOST, "killed"), Finish(task, epoch, End.LOST, "killed", TaskState.READY, 0.0)])


def check_done_once(path: Path, said: list[list[str]], tasks: int) -> None:
    attempts = rows(path, "SELECT task, epoch, end FROM attempt ORDER BY task, epoch")
    by_task: dict[str, list[tuple[int, str]]] = collections.defaultdict(list)
    for row in attempts:
        by_task[row["task"]].append((row["epoch"], row["end"]))
    assert len(by_task) == tasks
    for task, ends in by_task.items():
        assert [epoch for epoch, _ in ends] == list(range(1, len(ends) + 1)), f"{task}: epochs have holes"
        assert [end for _, end in ends] == ["lost"] * (len(ends) - 1) + ["done"], f"{task}: {ends}"
    heard = collections.Counter((words[1], int(words[2])) for words in said if words[0] == "done")
    assert all(count == 1 for count in heard.values()), "done was acknowledged twice"
    assert set(heard) <= {(row["task"], row["epoch"]) for row in attempts if row["end"] == "done"}
    journal = rows(path, "SELECT count(*) AS n FROM journal WHERE event = 'end done'")
    assert journal == [{"n": tasks}]
    print(f"{len(attempts)} attempts for {tasks} tasks in {RUN}")
    check_integrity(path)
