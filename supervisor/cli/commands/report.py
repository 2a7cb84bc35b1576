"""`nightcrew report [RUN]`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from supervisor.cli import common
from supervisor.cli.names import run_id
from supervisor.core.errors import NotFound
from supervisor.host.paths import Home, home
from supervisor.ledger import queries

if TYPE_CHECKING:
    from worktrees.repository import Repository


@click.command()
@click.argument("run", required=False, shell_complete=run_id)
@common.output_option
@click.option("--open/--no-open", "opened", default=None, help="Open it in a browser (default: on a graphical desktop).")
@common.json_option
def command(run: str | None, output: Path | None, opened: bool | None, as_json: bool) -> int:
    """Write the report of a run as it stands: report.html, report.md, report.json. Without RUN the newest one of this repository.

    \b
    nightcrew report
    nightcrew report 1121-k3f9 --open
    nightcrew report --json | jq .summary.health
    """
    from supervisor.cli import reporting

    where = home()
    report = reporting.build(where, _run(where, run))
    reporting.show(reporting.publish(where, report, output), as_json=as_json, opened=opened)
    return 0


def _run(where: Home, name: str | None) -> str:
    db = common.ledger(where)
    if name is not None:
        here = queries.project_at(db, str(Path.cwd()))
        return queries.one(db, queries.match_tasks(db, common.typed(name), here)[0]).run
    repository = _repository(where)
    newest = queries.runs(db, 1, repository.project if repository else None)
    if not newest:
        on = f" of {repository.root}" if repository else ""
        raise NotFound(f"no run{on} yet", hint="nightcrew analyze" if repository else "nightcrew run PLAN, or nightcrew analyze PATH")
    if repository is None:
        common.say(f"this is no repository: the newest run of all, {newest[0].id} of {newest[0].root}")
    return newest[0].id


def _repository(where: Home) -> Repository | None:
    """The one around the current directory, if any."""
    from worktrees.git import Git
    from worktrees.repository import discover

    try:
        return discover(Git(where.root / "git"), Path.cwd())
    except NotFound:
        return None
