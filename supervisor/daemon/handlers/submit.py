"""Take a run into the ledger. `run` and `add` both end here; when it answers, every task is on disk."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import fields
from datetime import datetime
from typing import Any

from supervisor.core import admission, names
from supervisor.core.admission import Decision
from supervisor.core.errors import NotFound, Refused
from supervisor.core.night import NightOrder
from supervisor.core.spec import RunSpec, Submission, TaskSpec
from supervisor.daemon.loop import Loop
from supervisor.ledger.ledger import Settle


def to_wire(submission: Submission) -> dict[str, Any]:
    """The shape that `handle` takes."""
    spec = submission.spec
    run = {"title": spec.title, "base": spec.base, "tasks": [task.to_shape() for task in spec.tasks]}
    rest = {field.name: getattr(submission, field.name) for field in fields(submission)}
    night = submission.night.to_shape() if submission.night is not None else None
    return {**rest, "spec": run, "env": dict(submission.env), "night": night}


async def hand_over(loop: Loop, submission: Submission) -> dict[str, Any]:
    """`handle`, for the supervisor's own rooms."""
    return await handle(loop, to_wire(submission))


async def handle(loop: Loop, args: dict[str, Any], settle: Settle | None = None) -> dict[str, Any]:
    """Returns the run's id, its tasks' ids, and whether it is new: the same key twice is one run. `settle`: see `Ledger.submit_all`."""
    run = dict(args["spec"])
    tasks = tuple(TaskSpec.from_shape(shape).submitted_at(loop.clock.wall()) for shape in run["tasks"])
    spec = RunSpec(title=str(run["title"]), base=str(run["base"]), tasks=tasks)
    night = NightOrder.from_shape(args["night"]) if args.get("night") else None
    submission = Submission(**{**args, "spec": spec, "night": night})
    if not loop.ledger.key_is_known(str(args["key"])):
        await loop.jobs.refuse_used_up([task.continue_from for task in tasks if task.continue_from], "cannot continue")
    _refuse_large_groups(spec, min(loop.settings.slots, (night and night.terms.parallel) or loop.settings.slots))
    _refuse_unknown(loop, submission)
    _refuse_when_full(loop, len(tasks), str(args["key"]))
    run_id, new = await loop.submissions.commit(submission, _fresh_id(loop), settle)
    return {"run": run_id, "new": new, "tasks": loop.ledger.names_of_run(run_id)}


def _refuse_unknown(loop: Loop, submission: Submission) -> None:
    """Raise NotFound or Refused for a task of an earlier run that these cannot come after."""
    for name in sorted({need for task in submission.spec.tasks for need in task.after if "/" in need}):
        try:
            project = loop.ledger.launch_row(name).project
        except KeyError:
            raise NotFound("no task", on=name, why="a task was to come after it", hint="nightcrew status --all") from None
        if project != submission.project:
            raise Refused("cannot come after", on=name, why="it works in another repository")


def _refuse_when_full(loop: Loop, new: int, key: str) -> None:
    verdict = admission.of_submission(loop.queued(), new, loop.settings.admission)
    if verdict.decision is Decision.REFUSE and not loop.ledger.key_is_known(key):
        raise Refused(
            "cannot take the run", why=verdict.words, kept="what was taken before", hint="later, or `queue.waiting_max` in config.toml"
        )


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
        if not loop.submissions.has(run) and not loop.ledger.run_exists(run):
            return run
