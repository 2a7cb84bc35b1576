"""What a submission costs for each of its tasks, counted and not timed: a plan has up to 20,000."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

from supervisor.kernel import codec
from supervisor.kernel.settings import Settings
from supervisor.kernel.spec import Submission
from supervisor.server import requests
from supervisor.server.hooks import Hooks
from supervisor.server.loop import Submissions
from supervisor.store.ledger import Ledger
from tests.kernel.effort import steps
from tests.store.kit import Wall, spec, submission

STEPS = 5000
"""Instructions of the interpreter for one task. It has about 50 fields, so each of them may cost 100 on the whole way; it takes 60. Copying
the plan deeply took 21,000."""


def test_a_submission_costs_little_for_each_task(tmp_path: Path) -> None:
    def counted(tasks: int) -> int:
        with closing(Ledger(tmp_path / f"{tasks}.db", Wall())) as ledger:
            return steps(lambda: handed_over(ledger, submission(*(spec(f"t{number}") for number in range(tasks)))))

    few, many = counted(10), counted(60)
    assert 0 < (many - few) / 50 <= STEPS


async def none_is_used_up(tasks: list[str], what: str) -> None:
    assert tasks == []


def handed_over(ledger: Ledger, order: Submission) -> None:
    """From the client's plan to the supervisor's answer, without the socket between them."""
    clock = SimpleNamespace(wall=Wall(), monotonic=lambda: 0.0)
    loop = SimpleNamespace(
        ledger=ledger,
        submissions=Submissions(ledger, clock, Hooks(()), lambda _: None),
        clock=clock,
        settings=Settings(),
        queued=lambda: 0,
        jobs=SimpleNamespace(refuse_used_up=none_is_used_up),
    )
    answer = asyncio.run(requests.handle_submit(loop, **json.loads(json.dumps(order, default=codec.brief))))  # type: ignore[arg-type]  # what it uses of a loop
    assert len(answer["tasks"]) == len(order.spec.tasks)
