"""`nightcrew conflicts`."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import click

from supervisor.cli import common
from supervisor.cli.names import any_name
from supervisor.core.errors import NotFound
from supervisor.host.paths import home
from supervisor.ledger import queries

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
    from supervisor.core.conflicts import SIDES_MAX
    from supervisor.daemon import conflict_matrix
    from supervisor.faces import conflicts as text
    from supervisor.host import files
    from supervisor.ledger import branches, conflict_book
    from worktrees.git import Git
    from worktrees.repository import discover

    where = home()
    only = common.tasks_named(where, names)
    with contextlib.closing(common.ledger(where)) as db:
        project = queries.one(db, only[0]).project if only else queries.project_at(db, str(Path.cwd()))
        root = queries.project_root(db, project)
        if root is None:
            raise NotFound("no results", on=str(Path.cwd()), why="nothing was ever run in this repository", hint="nightcrew status --all")
        found = branches.of_project(db, project, 2 * SIDES_MAX)
    repository = discover(Git(files.private_dir(where.root) / "git"), Path(root))
    known = conflict_book.load(where.conflicts(project)).matrix.known
    matrix = conflict_matrix.look(repository, found, known, time.monotonic() + _LOOK_S)
    if as_json:
        common.print_json(project=project, **text.shape(matrix, only))
        return
    for line in text.lines(matrix, only):
        common.show(line)
    common.say(text.summary(matrix))
