"""`nightcrew restore`."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from supervisor.cli import common
from supervisor.cli.names import ended_name
from supervisor.core.errors import NotFound, one_line
from supervisor.host.paths import Home, home
from supervisor.ledger.queries import TaskView

if TYPE_CHECKING:
    from worktrees.repository import Repository
    from worktrees.restoring import Restored


@click.command()
@click.argument("name", shell_complete=ended_name)
@click.option("--branch", metavar="BRANCH", help="What to call the branch (default: restored/RUN/TASK.EPOCH).")
@click.option("--worktree", metavar="DIR", type=click.Path(path_type=Path), help="Also check it out, in a new worktree of yours.")
@click.option("--tips", is_flag=True, help="Instead of the result what was amended, reset or rebased away.")
@common.json_option
def command(name: str, branch: str | None, worktree: Path | None, tips: bool, as_json: bool) -> None:
    """Bring back what an attempt of a task left, as a branch of yours.

    NAME may end with the number of the attempt, as in lint.1; else it is the newest. The rescue ref stays, and your checkout does not
    change.

    \b
    nightcrew restore lint
    nightcrew restore lint.1 --branch second-look
    nightcrew restore lint --worktree ../lint
    """
    from supervisor.daemon import results

    where = home()
    view, epoch = _attempt(where, name)
    with contextlib.closing(common.ledger(where, view.id)) as db:
        repository, done = results.restore(db, view, epoch, branch or "", tips=tips)
    place = worktree.resolve() if worktree is not None else None
    added = place is not None and _checked_out(where, repository, done, place)
    if as_json:
        facts = {"branch": done.branch, "commit": done.commit, "created": done.is_new, "repository": str(repository.root)}
        common.print_json(task=view.id, epoch=epoch, **facts, worktree=str(place) if place else None)
        return
    click.echo(done.branch)
    how = "is at" if done.is_new else "was already at"
    common.say(f"{done.branch} {how} {done.commit[:12]}; {_next(repository.root, f'{view.name}.{epoch}', done.branch, place, new=added)}")


def _checked_out(where: Home, repository: Repository, done: Restored, place: Path) -> bool:
    from worktrees import restoring

    return restoring.check_out(repository, done, place, where.root)


def _next(root: Path, name: str, branch: str, place: Path | None, *, new: bool) -> str:
    if place is not None:
        return f"it is {'checked out' if new else 'checked out already'} in {one_line(str(place))}"
    return f"next: git -C {shlex.quote(str(root))} worktree add {shlex.quote(f'../{root.name}-{name}')} {shlex.quote(branch)}"


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
