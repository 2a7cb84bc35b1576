"""Take a run into the ledger. `run` and `add` both end here; when it answers, every task is on disk."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import asdict
from datetime import datetime
from typing import Any

from supervisor.core import names
from supervisor.core.crew import Submitted
from supervisor.core.errors import NotFound, Refused
from supervisor.core.spec import RunSpec, Submission, TaskSpec
from supervisor.core.task import Task
from supervisor.daemon.loop import Loop
from supervisor.host.failpoint import failpoint


def to_wire(submission: Submission) -> dict[str, Any]:
    """The shape that `handle` takes."""
    spec = submission.spec
    run = {"title": spec.title, "base": spec.base, "tasks": [task.to_json() for task in spec.tasks]}
    return {**asdict(submission), "spec": run, "env": dict(submission.env)}


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """Returns the run's id, its tasks' ids, and whether it is new: the same key twice is one run."""
    run = dict(args["spec"])
    tasks = tuple(TaskSpec.from_json(text) for text in run["tasks"])
    spec = RunSpec(title=str(run["title"]), base=str(run["base"]), tasks=tasks)
    _refuse_large_groups(spec, loop.settings.slots)
    submission = Submission(**{**args, "spec": spec})
    before = _before(loop, submission)
    run_id, new = loop.ledger.submit(submission, _fresh_id(loop))
    failpoint("submit.committed")
    crew = loop.ledger.tasks_of_run(run_id, loop.clock.monotonic())
    if new:
        # Offered, not fed: the run is acknowledged by its own commit, whatever becomes of the next one.
        loop.events([Submitted((*before, *crew))])
    return {"run": run_id, "new": new, "tasks": [task.id for task in crew]}


def _before(loop: Loop, submission: Submission) -> list[Task]:
    """The tasks of earlier runs that these come after: those that have ended are known to the ledger alone."""
    found = []
    for name in sorted({need for task in submission.spec.tasks for need in task.after if "/" in need}):
        try:
            project = loop.ledger.launch_row(name).project
        except KeyError:
            raise NotFound("no task", on=name, why="a task was to come after it", hint="nightcrew status --all") from None
        if project != submission.project:
            raise Refused("cannot come after", on=name, why="it works in another repository")
        found.append(loop.ledger.task(name, loop.clock.monotonic()))
    return found


def _refuse_large_groups(spec: RunSpec, slots: int) -> None:
    """Tasks that begin together need a slot each, or they would wait for one another."""
    groups = Counter(task.together for task in spec.tasks if task.together)
    for name, size in groups.most_common(1):
        if size > slots:
            why = f"{size} tasks are to begin together and there are {slots} slots"
            raise Refused(
                "cannot start", on=name, why=why, hint="a smaller group, or `slots` in config.toml, nightcrew down, nightcrew up -d"
            )


def _fresh_id(loop: Loop) -> str:
    today = datetime.fromtimestamp(loop.clock.wall()).astimezone()
    while True:
        run = names.run_id(today.month, today.day, secrets.randbelow(len(names.RUN_ALPHABET) ** 4))
        if not loop.ledger.run_exists(run):
            return run
