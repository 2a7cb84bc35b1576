"""`nightcrew report [RUN]`."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor.cli import common
from supervisor.cli.names import run_id
from supervisor.host.paths import home


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
    report = reporting.build(where, reporting.run_named(where, run))
    reporting.show(reporting.publish(where, report, output), as_json=as_json, opened=opened)
    return 0
