"""The look before a night: `night check`, `night run --check`, and `night install`."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli import common, snapshot_progress
from supervisor.core.errors import NightcrewError
from supervisor.host.paths import home

if TYPE_CHECKING:
    import sqlite3

    from supervisor.core.admission import Verdict
    from supervisor.core.gateway.settings import GatewaySettings
    from supervisor.core.spec import Submission
    from supervisor.doctor.check_context import CheckContext
    from supervisor.doctor.finding import Checked
    from supervisor.doctor.preflight import Evening
    from supervisor.doctor.preflight_tasks import Tried
    from supervisor.host.paths import Home
    from supervisor.ledger.queries import TaskView
    from worktrees.repository import Repository

TERMS = ("until", "grace", "cost_max", "parallel", "on_cap")
SEEN_S = 5.0
"""A supervisor looks at the machine within two seconds of its start."""


def show(plan: Path, options: Mapping[str, Any], *, as_json: bool, err: bool = False, due: datetime | None = None) -> int:
    """Look, print what was seen (on stderr with `err`), and return 0 when the night is ready, else 1. `options`: `repo`, `base` and the
    terms as they were typed. `due`: when it begins, local time; None: now. Raises what keeps the plan from being read at all."""
    from supervisor.doctor import output, preflight

    evening = _evening(plan, options, due)
    checked = preflight.look(evening)
    ready = preflight.ready(checked)
    if as_json:
        predicted = evening.predicted.shape() if evening.predicted is not None else None
        common.print_json(ready=ready, verdict=verdict(checked), prediction=predicted, **output.shape(checked, []))
    else:
        for line in output.lines(checked, common.width(), color=common.use_color()):
            click.echo(line, err=err, color=common.use_color())
        common.say(verdict(checked))
    return 0 if ready else 1


def verdict(checked: list[Checked]) -> str:
    """The last line."""
    from supervisor.doctor import output

    count = output.counts(checked)
    if count["fail"]:
        return f"not ready: {count['fail']} of {sum(count.values())} would keep it from going well"
    open_ends = [f"{number} {word}" for number, word in ((count["warn"], "to look at"), (count["unknown"], "unknown")) if number]
    if count["unknown"]:
        return f"ready as far as is known: {', '.join(open_ends)}"
    return f"ready, with {', '.join(open_ends)}" if open_ends else "ready"


def _evening(plan: Path, options: Mapping[str, Any], due: datetime | None) -> Evening:
    from supervisor.config.reading import Once
    from supervisor.daemon import night_terms, start, submit
    from supervisor.doctor import check_context, preflight, preflight_fit

    where, environ, files = home(), os.environ, Once()
    place = submit.workplace(options["repo"], files)
    submission = submit.to_look_at(plan, place, options["base"], environ, files)
    terms = night_terms.order(plan, {name: options[name] for name in TERMS}, files, due=due.astimezone() if due else None).terms
    start.ensure_running(where, common.settings_file(), common.say)
    models, context = _models(where.keys), check_context.here()
    tried = _tried(where, submission, models, context, place.repository)
    predicted = None
    with suppress(NightcrewError):  # then the prediction is unknown, and said to be
        predicted = preflight_fit.predict(where, submission, terms, due.timestamp() if due else time.time(), _machine(where.daemon_socket))
    return preflight.Evening(
        context=context,
        submission=submission,
        terms=terms,
        repository=place.repository,
        tried=tried,
        models=models,
        predicted=predicted,
    )


def _tried(where: Home, submission: Submission, models: GatewaySettings, context: CheckContext, repository: Repository) -> list[Tried]:
    """What came of the gates and the calls. Nothing is begun on a disk that is too full for it; calls need no base of the plan's."""
    from supervisor.doctor import preflight_tasks, state
    from supervisor.doctor.finding import State

    gates, calls = preflight_tasks.gates(submission.spec.tasks), preflight_tasks.calls(models, submission.spec.tasks)
    if state.disk(context).state is State.FAIL:
        return preflight_tasks.untried([*gates, *calls], "the disk is too full for anything to start")
    missing: list[Tried] = []
    if submission.base_oid:
        submission = snapshot_progress.ready_for(where, submission)
        gates = preflight_tasks.gates(submission.spec.tasks)
    else:
        missing, gates = preflight_tasks.untried(gates, f"{submission.spec.base} names no commit"), []
        submission = replace(submission, base_oid=repository.head, spec=replace(submission.spec, base="HEAD"))
    if trials := [*gates, *calls]:
        common.say(f"tries out {', '.join(task.name for task in trials)}")
    return [*missing, *preflight_tasks.run(where, submission, trials, functools.partial(reasons, where))]


def reasons(where: Home, db: sqlite3.Connection, views: Sequence[TaskView]) -> Mapping[str, Verdict]:
    """What those wait for that have not started, as `status` says it."""
    from supervisor.daemon import gateway_report, lock
    from supervisor.faces import waits

    return waits.reasons(db, views, gateway_report.hear(where).conditions, runs=lock.holder(where.lock) is not None, wall=time.time())


def _models(keys: Path) -> Any:
    from supervisor.config import user

    return user.load_gateway(common.settings_file(), keys)


def _machine(socket: Path) -> dict[str, Any]:
    """What the supervisor says of its capacity, once it has looked."""
    from supervisor.daemon import protocol

    ends_at = time.monotonic() + SEEN_S
    while True:
        shape = protocol.call(socket, "capacity", {}, timeout_s=SEEN_S)
        if shape["means"] is not None or time.monotonic() > ends_at:
            return shape
        time.sleep(0.1)
