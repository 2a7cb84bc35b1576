"""`nightcrew conflicts`."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from supervisor.client import common, reading
from supervisor.client.names import any_name
from supervisor.host.paths import home
from supervisor.results import conflicts
from supervisor.store import queries

_LOOK_S = 60.0


@click.command()
@click.argument("names", nargs=-1, shell_complete=any_name)
@common.json_option
def command(names: tuple[str, ...], as_json: bool) -> None:
    """Show which results would conflict with each other and with the branch that is checked out. Nothing is merged.

    \b
    nightcrew conflicts
    nightcrew conflicts lint --json
    """
    where = home()
    only = common.tasks_named(where, names)
    with contextlib.closing(common.ledger(where)) as db:
        project = queries.one(db, only[0]).project if only else queries.project_at(db, str(Path.cwd()))
        matrix = reading.conflict_matrix(where, db, project or "", _LOOK_S)
    if as_json:
        common.print_json(project=project, **conflicts.shape(matrix, only))
        return
    for line in conflicts.lines(matrix, only):
        common.show(line)
    common.say(conflicts.summary(matrix))
