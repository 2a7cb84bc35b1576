"""Random lives of a crew, on the real ledger: whatever is read back after a restart is what was decided."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from supervisor.kernel.crew import Task
from supervisor.kernel.decision import Command
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import FINAL, AttemptState
from supervisor.store.ledger import Ledger
from tests.kernel.machine import CrewMachine, facts
from tests.rounds import examples
from tests.store.kit import Wall, check_integrity, submission


class LedgerMachine(CrewMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="ledger-machine-"))
        self.path = self.directory / "ledger.db"
        self.wall = Wall()
        self.ledger = Ledger(self.path, self.wall)
        self.runs = 0

    def submit(self, plan: list[tuple[TaskSpec, list[int]]]) -> tuple[Task, ...]:
        self.runs += 1
        run = f"r{self.runs}"
        names = [tuple(f"t{need}" for need in needs) for _, needs in plan]
        specs = [
            replace(spec, name=f"t{index}", after=names[index], after_any=names[index] if spec.after_any else ()).submitted_at(self.wall())
            for index, (spec, _) in enumerate(plan)
        ]
        self.ledger.submit(submission(*specs, key=run), run)
        return self.ledger.tasks_of_run(run, self.now)

    def wall_now(self) -> float:
        return self.wall()

    def commit(self, commands: Iterable[Command]) -> None:
        self.ledger.commit(commands)

    def read_back(self) -> tuple[Task, ...]:
        self.ledger.close()
        self.ledger = Ledger(self.path, self.wall)
        return self.ledger.unfinished(self.now)

    def stood_still(self, name: str) -> None:
        super().stood_still(name)
        row = self.ledger.attempt(name, self.books.tasks[name].epoch)
        if row is not None and row.paused and row.state is AttemptState.RUNNING and "resuming" not in row.paused:
            self.ledger.note(name, row.epoch, paused=json.dumps({**json.loads(row.paused), "held": 1}))

    @rule(seconds=st.sampled_from([1.0, 3600.0, -3600.0, -315e6]))
    def the_wall_clock_jumps(self, seconds: float) -> None:
        self.wall.now += seconds

    @invariant()
    def the_ledger_knows_what_memory_knows(self) -> None:
        held = {task.id: facts(task) for task in self.ledger.unfinished(self.now) if task.state not in FINAL}
        assert held == {name: facts(task) for name, task in self.crew.tasks.items() if task.state not in FINAL}

    @invariant()
    def the_causes_agree(self) -> None:
        for task in self.ledger.unfinished(self.now):
            if task.epoch and task.state not in FINAL and task.attempt is None:
                assert task.cause == self.crew.tasks[task.id].cause

    def teardown(self) -> None:
        try:
            super().teardown()
            self.ledger.close()
            check_integrity(self.path)
        finally:
            self.ledger.close()
            shutil.rmtree(self.directory)


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=examples(40), stateful_step_count=30, report_multiple_bugs=False)
