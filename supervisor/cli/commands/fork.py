"""`nightcrew fork`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli import common, follow
from supervisor.cli.isolation import network_option
from supervisor.cli.names import environment_name, snapshot_name
from supervisor.core.errors import NotFound, UsageError
from supervisor.host.paths import home

if TYPE_CHECKING:
    from supervisor.core.spec import Submission
    from supervisor.daemon.forks import Asked
    from supervisor.daemon.submit import Workplace

MOST = 1000
"""Forks of one command: as many as there can be slots."""


@click.command()
@click.argument("words", nargs=-1, metavar="[NAME] [-- COMMAND...]", type=click.UNPROCESSED, shell_complete=snapshot_name)
@click.option("-n", "number", type=click.IntRange(1, MOST), default=1, show_default=True, help="How many.")
@click.option("--as", "environment", metavar="ENV", help="Give the environment a name, by which --reopen finds it.")
@click.option("--reopen", metavar="ENV", shell_complete=environment_name, help="Go on in the environment of that name, where it ended.")
@click.option("--base", help="Where the worktree starts (default: HEAD).")
@click.option("--sandbox", type=click.IntRange(0, 2), help="Isolation tier (default: 0, for a person sits there).")
@network_option
@click.option("-C", "--repo", type=click.Path(path_type=Path), default=Path(), help="The repository (default: here).")
@common.json_option
def command(words: tuple[str, ...], repo: Path, as_json: bool, reopen: str | None, **options: Any) -> int:
    """Open environments that start from the snapshot NAME, each with your shell, or COMMAND, in a pane to attach to.

    The snapshot is made when it is not there. What is left in an environment is kept as after any task: on its branch, or on a
    rescue ref. One that was opened with --as is opened again with --reopen: a new worktree of the same snapshot, at the commit where
    the last one ended.

    \b
    nightcrew fork deps
    nightcrew fork deps -n 3 -- claude
    nightcrew fork deps --as review
    nightcrew fork --reopen review
    """
    from supervisor.daemon import submit
    from supervisor.daemon.forks import Asked

    place = submit.workplace(repo)
    given = {key: value for key, value in options.items() if value is not None}
    if reopen is not None:
        submission = _reopened(reopen, Asked(words, **given), place)
    elif words:
        submission = _fresh(words[0], Asked(words[1:], **given), place)
    else:
        raise UsageError("which snapshot, or which environment?", hint="nightcrew fork NAME, or nightcrew fork --reopen ENV")
    accepted = follow.hand_over(home(), submission, place.repository.notes)
    task = submission.spec.tasks[0]
    if as_json:
        common.print_json(run=accepted.run, tasks=list(accepted.tasks), snapshot=task.snapshot, environment=task.environment or None)
        return 0
    click.echo("\n".join(accepted.tasks))
    common.say(f"to work in it: nightcrew attach {accepted.tasks[0]}; Ctrl-b d leaves, and it goes on")
    return 0


def _fresh(snapshot: str, asked: Asked, place: Workplace) -> Submission:
    from supervisor.config.task_keys import check_id
    from supervisor.daemon import forks

    if asked.environment and asked.number != 1:
        raise UsageError("one name cannot be given to", on=f"{asked.number} environments", hint="without --as, or without -n")
    if asked.environment:
        try:
            check_id(asked.environment)
        except ValueError as error:
            raise UsageError("bad value", on="--as", why=str(error)) from None
    earlier = forks.newest(home(), common.typed(asked.environment), place.repository.project) if asked.environment else None
    submission = forks.forks(snapshot, asked, place, os.environ)
    if earlier is not None:
        forks.refuse_open(earlier[0])
        common.say(f"{asked.environment} starts anew; what it held before stays with {earlier[0].id}")
    return submission


def _reopened(name: str, asked: Asked, place: Workplace) -> Submission:
    from supervisor.daemon import forks

    if asked.environment or asked.base or asked.number != 1:
        raise UsageError("--reopen goes with neither --as, --base nor -n", hint=f"nightcrew fork --reopen {name}")
    found = forks.newest(home(), common.typed(name), place.repository.project)
    if found is None:
        raise NotFound("no environment is called", on=name, hint=f"nightcrew fork SNAPSHOT --as {name}")
    return forks.reopened(found, asked, place, os.environ)
