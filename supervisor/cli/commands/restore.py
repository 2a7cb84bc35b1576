"""`nightcrew restore`."""

from __future__ import annotations

import contextlib
import shlex

import click

from supervisor.cli import common
from supervisor.cli.names import ended_name
from supervisor.core.errors import NotFound
from supervisor.host.paths import Home, home
from supervisor.ledger.queries import TaskView


@click.command()
@click.argument("name", shell_complete=ended_name)
@click.option("--branch", metavar="BRANCH", help="What to call the branch (default: restored/RUN/TASK.EPOCH).")
@click.option("--tips", is_flag=True, help="Instead of the result what was amended, reset or rebased away.")
@common.json_option
def command(name: str, branch: str | None, tips: bool, as_json: bool) -> None:
    """Bring back what an attempt of a task left, as a branch of yours.

    NAME may end with the number of the attempt, as in lint.1; else it is the newest. The rescue ref stays, and no checkout changes.

    \b
    nightcrew restore lint
    nightcrew restore lint.1 --branch second-look
    """
    from supervisor.daemon import results

    where = home()
    view, epoch = _attempt(where, name)
    with contextlib.closing(common.ledger(where, view.id)) as db:
        root, done = results.restore(db, view, epoch, branch or "", tips=tips)
    if as_json:
        common.print_json(task=view.id, epoch=epoch, branch=done.branch, commit=done.commit, created=done.is_new, repository=str(root))
        return
    click.echo(done.branch)
    how = "is at" if done.is_new else "was already at"
    beside = shlex.quote(f"../{root.name}-{view.name}.{epoch}")
    common.say(
        f"{done.branch} {how} {done.commit[:12]}; next: git -C {shlex.quote(str(root))} worktree add {beside} {shlex.quote(done.branch)}"
    )


def _attempt(where: Home, name: str) -> tuple[TaskView, int]:
    """The task that was named, and which attempt of it: a name that a task has comes before one with a number."""
    try:
        view = common.task_named(where, name)
    except NotFound:
        task, _, number = name.rpartition(".")
        if not (task and number.isascii() and number.isdigit() and len(number) < 10):
            raise
        return common.task_named(where, task), int(number)
    return view, view.epoch
