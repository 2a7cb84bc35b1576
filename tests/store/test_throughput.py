"""L02: thousands of tasks that do nothing, through `decide` and the ledger with every commit durable."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from supervisor.kernel.crew import Crew
from supervisor.kernel.decide import decide
from supervisor.kernel.decision import Collect, Command, Finish, Start
from supervisor.kernel.events import Event, Secured, Started, Submitted, TreeGone
from supervisor.kernel.states import End
from supervisor.store.ledger import Ledger
from tests.store.kit import RUN, check_integrity, rows, spec, submission


def heard_of(command: Command) -> list[Event]:
    """What the outside answers at once."""
    match command:
        case Start(task, epoch, _):
            return [Started(task, epoch), TreeGone(task, epoch, End.DONE, "")]
        case Collect(task, epoch, end, cause):
            return [Secured(task, epoch, end, cause)]
        case _:
            return []


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_every_task_is_done_once(ledger: Ledger, path: Path, count: int) -> None:
    began = time.perf_counter()
    names = [f"task-{number}" for number in range(count)]
    after = [() if number % 10 else (names[number - 10],) for number in range(10, count)]
    ledger.submit(submission(*names[:10], *(spec(name, after=needs) for name, needs in zip(names[10:], after, strict=True))), RUN)
    crew, events, now, finished = Crew(slots=16), [Submitted(ledger.tasks_of_run(RUN, 0.0))], 0.0, 0
    waiting: list[Event] = list(events)
    while waiting:
        change, commands = decide(crew, waiting, now)
        ledger.commit(commands)
        crew.apply(change)
        finished += sum(isinstance(command, Finish) for command in commands)
        waiting = [event for command in commands for event in heard_of(command)]
        now += 0.01
    print(f"{count / (time.perf_counter() - began):.0f} tasks/s")
    assert finished == count
    assert crew.tasks == {}
    assert rows(path, "SELECT state, epoch, count(*) AS n FROM task GROUP BY 1, 2") == [{"state": "done", "epoch": 1, "n": count}]
    assert rows(path, "SELECT count(*) AS n FROM journal WHERE event = 'end done'") == [{"n": count}]
    check_integrity(path)
