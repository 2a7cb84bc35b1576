"""`nightcrew night report [RUN]`."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor.cli.names import run_id
from supervisor.core.errors import UsageError
from supervisor.host.paths import home

_FORMATS = ("html", "md", "json")


@click.command()
@click.argument("run", required=False, shell_complete=run_id)
@click.option("--against", metavar="RUN", shell_complete=run_id, help="Compare with this run (default: the night before).")
@click.option("--format", "form", type=click.Choice(_FORMATS), help="One form, on stdout or in --out (default: all three, with the run).")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write one form into this file.")
@click.option("--open/--no-open", "opened", default=None, help="Open it in a browser (default: on a graphical desktop).")
def command(run: str | None, against: str | None, form: str | None, out: Path | None, opened: bool | None) -> int:
    """Write the morning report of a run as it stands: night.html, night.md, night.json. Without RUN the newest night of this repository.

    It works for every run, a night or not, while it still runs, and when the supervisor is down.

    \b
    nightcrew night report --open
    nightcrew night report 1122-n1gh --against 1121-k3f9
    nightcrew night report --format md | less
    """
    from supervisor.cli import night_reporting, reporting
    from supervisor.faces.night import rows

    form = form or (None if out is None else out.suffix.removeprefix(".") if out.suffix.removeprefix(".") in _FORMATS else "html")
    if opened and form not in (None, "html"):
        raise UsageError("--open shows the page", why=f"--format {form} is none")
    where = home()
    name = reporting.run_named(where, run, rows.newest_night)
    shape = night_reporting.build(where, name, reporting.run_named(where, against) if against else None)
    page = night_reporting.publish(where, shape, form, out)
    if page is not None:
        reporting.show_in_browser(page, wanted=opened)
    return 0
