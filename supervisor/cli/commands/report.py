"""`nightcrew report [RUN]`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from supervisor.cli import common
from supervisor.core.errors import NotFound
from supervisor.host.paths import Home, home
from supervisor.ledger import queries


@click.command()
@click.argument("run", required=False)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Where to write it (default: with the run's records)."
)
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
    published = reporting.publish(where, _run(where, run), output)
    if as_json:
        click.echo(json.dumps(published.report, indent=2))
    else:
        reporting.print_summary(published)
        reporting.show_in_browser(published.page, wanted=opened)
    return 0


def _run(where: Home, name: str | None) -> str:
    db = common.ledger(where)
    here = queries.project_at(db, str(Path.cwd()))
    if name is not None:
        return queries.one(db, queries.match_tasks(db, common.typed(name), here)[0]).run
    newest = queries.runs(db, 1, here or None)
    if not newest:
        raise NotFound("no runs", on=str(where.root), hint="nightcrew run PLAN, or nightcrew analyze")
    return newest[0].id
