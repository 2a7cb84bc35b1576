"""Submitting a run and watching it to its end: `run`, `add -f` and `analyze`."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click

from supervisor.client import common, terminal
from supervisor.features.night import rows as night_rows
from supervisor.host.paths import Home
from supervisor.kernel.format import listed, many
from supervisor.kernel.retry import GATE
from supervisor.kernel.spec import Submission
from supervisor.kernel.states import TaskState
from supervisor.store import journal, queries
from supervisor.store.queries import TaskView
from supervisor.views import status

LOOK_S = 0.2
WIDE = 10_000
"""Columns where nothing is cut."""


def submit_and_follow(home: Home, submission: Submission, notes: Iterable[str], *, detach: bool, as_json: bool) -> int:
    """Hand the run over; then return, or print each change until all have ended. Returns the exit code."""
    accepted = hand_over(home, submission, notes)
    if detach:
        return say_accepted(accepted, as_json=as_json)
    views = to_the_end(home, accepted.run, quiet=as_json)
    if as_json:
        common.print_json(run=accepted.run, tasks=[status.task_shape(view) for view in views])
    return exit_code(views)


def exit_code(views: Iterable[TaskView]) -> int:
    """0 when every task is done, else 1."""
    return 0 if all(view.state is TaskState.DONE for view in views) else 1


@dataclass(frozen=True, slots=True)
class Accepted:
    """A run that is on disk at the supervisor's."""

    run: str
    tasks: tuple[str, ...]
    """Full ids."""
    new: bool
    """False when the same key had made it before."""


def hand_over(home: Home, submission: Submission, notes: Iterable[str]) -> Accepted:
    """Give the run to the supervisor, which is started when none runs; first have the snapshots made that its tasks start from."""
    from supervisor.client import submit  # `wait` does not pay for it

    for note in notes:
        common.say(note)
    submission = submit.with_snapshots(home, submission)
    answer = common.ask(home, "submit", submission)
    accepted = Accepted(str(answer["run"]), tuple(answer["tasks"]), bool(answer["new"]))
    known = "" if accepted.new else " (known already: the same key)"
    common.say(f"run {accepted.run}: {many(len(accepted.tasks), 'task')}{known}; nightcrew status {accepted.run}")
    return accepted


def say_accepted(accepted: Accepted, *, as_json: bool) -> int:
    """What a detached command prints. Returns its exit code."""
    if as_json:
        common.print_json(run=accepted.run, new=accepted.new, tasks=list(accepted.tasks))
    else:
        click.echo("\n".join(accepted.tasks))
    return 0


def to_the_end(home: Home, run: str, *, quiet: bool) -> list[TaskView]:
    """Watch the run until all have ended, then say what came of it and what to do next; `quiet` does neither."""
    try:
        views = deque(looks(home, run), maxlen=1).pop().all() if quiet else print_changes(home, run)
    except KeyboardInterrupt:
        common.say(f"the tasks go on; nightcrew status {run}")
        common.say(f"to end them: nightcrew kill {run}")
        raise
    if not quiet:
        common.say(f"run {run}: {status.tally(status.counted(views))}")
        _say_next(views)
        common.say(f"all of it on one page: nightcrew {'night ' if _is_night(home, run) else ''}report {run}")
    return views


def _is_night(home: Home, run: str) -> bool:
    with contextlib.closing(common.ledger(home, run)) as db:
        return night_rows.of_run(db, run) is not None


class Followed:
    """Some tasks as they are. A look reads again what happened and what runs, however many others wait."""

    def __init__(self, db: sqlite3.Connection, read: Callable[[], list[TaskView]]) -> None:
        """`read` gives the tasks to follow."""
        self._db = db
        self._seen = journal.newest_entry(db)  # before they are read: what happens meanwhile is read twice
        self._views: dict[str, TaskView] = {}
        self._running: set[str] = set()
        self.unfinished: set[str] = set()
        self.changed = read()
        """What the newest look read."""
        self._take()

    def all(self) -> list[TaskView]:
        """Every task, in the order of `read`."""
        return list(self._views.values())

    def look(self) -> None:
        """Look again."""
        names, self._seen = journal.touched(self._db, self._seen)
        self.changed = queries.several(self._db, self._views.keys() & {*names, *self._running})
        self._take()

    def _take(self) -> None:
        for view in self.changed:
            self._views[view.id] = view
            _keep(self._running, view.id, view.state is TaskState.RUNNING)
            _keep(self.unfinished, view.id, not view.final)


def _keep(names: set[str], name: str, belongs: bool) -> None:
    if belongs:
        names.add(name)
    else:
        names.discard(name)


def looks(home: Home, run: str) -> Iterator[Followed]:
    """The tasks of a run as they are, again and again until all have ended; the supervisor may come and go meanwhile."""
    db = common.ledger(home, run)  # the archive's, when the same key had made it long ago
    supervisor = common.SupervisorWatch(home)
    supervisor.look()
    followed = Followed(db, lambda: queries.of_run(db, run))
    yield followed
    while followed.unfinished:
        time.sleep(LOOK_S)
        supervisor.look()
        followed.look()
        yield followed


def watch(home: Home, run: str, heading: str) -> list[TaskView]:
    """Show the run on stderr until every task of it has ended: a line for each task, in place on a terminal, else a line for each change.
    Returns the tasks. Ctrl-C passes through: the tasks go on."""
    console = terminal.console()
    if not sys.stderr.isatty() or console.is_dumb_terminal:  # FORCE_COLOR makes rich call a pipe a terminal
        return print_changes(home, run, err=True)
    views: list[TaskView] = []
    with terminal.live() as show:
        for followed in looks(home, run):
            views, layout = followed.all(), status.Layout(console.width, color=True, took=True)
            lines = [status.line(view, time.time(), layout, detail=_last_said(view, home.root)) for view in views]
            show("\n".join([f"\x1b[1m{heading}\x1b[0m", *lines, f"\x1b[2m{status.tally(status.counted(views))}\x1b[0m"]))
    return views


def _last_said(view: TaskView, root: Path) -> str:
    """Why a task ended badly, or the last line that its agent printed for people."""
    if view.final and view.state is not TaskState.DONE:
        return status.why(view)
    return status.last_line(root / "runs" / view.id / str(view.epoch) / "stderr.log") if view.epoch else ""


def print_changes(home: Home, run: str, *, err: bool = False) -> list[TaskView]:
    """Print a line for each task that starts, runs again or ends, until all have; returns them. On stdout, or plain on stderr."""
    shown: dict[str, tuple[TaskState, int]] = {}
    views: list[TaskView] = []
    for followed in looks(home, run):
        for view in followed.changed:
            mark = (view.state, view.epoch)
            if shown.get(view.id) != mark and _is_news(view):
                shown[view.id] = mark
                _print(home, view, err=err)
        sys.stdout.flush()
        views = followed.all() if not followed.unfinished else views
    return views


def _is_news(view: TaskView) -> bool:
    return view.state not in (TaskState.WAITING, TaskState.READY) or _runs_again(view)


def _runs_again(view: TaskView) -> bool:
    return view.state is TaskState.READY and view.epoch > 0


def _print(home: Home, view: TaskView, *, err: bool) -> None:
    detail = status.detail(view, home.root) if view.final else f"{view.reason}; it runs again soon" if _runs_again(view) else ""
    # A step of its attempt that we happen to see (launching, collecting) is no news.
    plain = replace(view, attempt_state=None)
    if err:
        click.echo(status.line(plain, time.time(), status.Layout(WIDE, color=False, took=True), detail=detail), err=True)
    else:
        common.show(status.line(plain, time.time(), status.Layout(common.width(), common.use_color(), took=True), detail=detail))


def _say_next(views: list[TaskView]) -> None:
    done = [view for view in views if view.state is TaskState.DONE and (view.result or {}).get("commits")]
    bad = next((view for view in views if view.state in (TaskState.FAILED, TaskState.QUARANTINED)), None)
    if done:
        common.say(f"to see and keep a result: nightcrew diff {done[0].id}, nightcrew take {done[0].id}")
    if len(done) > 1:
        common.say(f"the same for: {listed([view.name for view in done[1:]], 5)}")
    if bad is not None:
        stream = "--stream gate " if status.why(bad).startswith(GATE) else ""
        common.say(f"to see what went wrong: nightcrew logs {stream}{bad.id}")
