"""Submitting a run and watching it to its end: `run` and `add -f`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import replace

import click

from supervisor.cli import common
from supervisor.core.spec import Submission
from supervisor.core.states import TaskState
from supervisor.faces import status, tasks_json
from supervisor.host.paths import Home
from supervisor.ledger import queries

LOOK_S = 0.2


def submit_and_follow(home: Home, submission: Submission, notes: Iterable[str], *, detach: bool, as_json: bool) -> int:
    """Hand the run over; then return, or print each change until all have ended. Returns the exit code."""
    from supervisor.daemon import protocol, start
    from supervisor.daemon.handlers import submit

    for note in notes:
        common.say(note)
    start.ensure_running(home, common.settings_file(), common.say)
    answer = protocol.call(home.daemon_socket, "submit", submit.to_wire(submission))
    run, tasks = str(answer["run"]), list(answer["tasks"])
    known = "" if answer["new"] else " (known already: the same key)"
    common.say(f"run {run}: {len(tasks)} task{'s' if len(tasks) != 1 else ''}{known}; nightcrew status {run}")
    if detach:
        if as_json:
            common.print_json(run=run, new=answer["new"], tasks=tasks)
        else:
            click.echo("\n".join(tasks))
        return 0
    views = to_the_end(home, run, quiet=as_json)
    if as_json:
        common.print_json(run=run, tasks=[tasks_json.task(view) for view in views])
    return 0 if all(view.state is TaskState.DONE for view in views) else 1


def to_the_end(home: Home, run: str, *, quiet: bool) -> list[queries.TaskView]:
    """Print a line for each task that starts or ends, until all have; the supervisor may come and go meanwhile."""
    db = common.ledger(home)
    shown: dict[str, tuple[TaskState, int]] = {}
    watch = common.SupervisorWatch(home)
    try:
        while True:
            watch.look()
            views = queries.of_run(db, run)
            if not quiet:
                _print_changes(home, views, shown)
            if all(view.final for view in views):
                break
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        common.say(f"the tasks go on; nightcrew status {run}, nightcrew kill {run}")
        raise
    if not quiet:
        common.say(f"run {run}: {status.tally(views)}")
        _say_next(views)
    return views


def _print_changes(home: Home, views: list[queries.TaskView], shown: dict[str, tuple[TaskState, int]]) -> None:
    now = time.time()
    for view in views:
        mark = (view.state, view.epoch)
        if shown.get(view.id) == mark or view.state in (TaskState.WAITING, TaskState.READY):
            continue
        shown[view.id] = mark
        detail = status.detail(view, home.root) if view.final else ""
        # A step of its attempt that we happen to see (launching, collecting) is no news.
        plain = replace(view, attempt_state=None)
        common.show(status.line(plain, now, width=common.width(), color=common.use_color(), detail=detail))
    sys.stdout.flush()


def _say_next(views: list[queries.TaskView]) -> None:
    done = next((view for view in views if view.state is TaskState.DONE and (view.result or {}).get("commits")), None)
    bad = next((view for view in views if view.state in (TaskState.FAILED, TaskState.QUARANTINED)), None)
    if done is not None:
        common.say(f"to see and keep a result: nightcrew diff {done.id}, nightcrew take {done.id}")
    if bad is not None:
        common.say(f"to see what went wrong: nightcrew logs {bad.id}")
