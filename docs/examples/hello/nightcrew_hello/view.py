"""A table of the page `More`."""

import contextlib

from supervisor.contract import Section
from supervisor.host.paths import Home
from supervisor.store import queries, sqlite


def sections(home: Home) -> list[Section]:
    """Return a table of the tasks of the five newest runs, and their states."""
    with contextlib.closing(sqlite.connect_readonly(home.ledger)) as db:
        views = [view for run in queries.runs(db, 5) for view in queries.of_run(db, run.id)]
    rows = tuple((view.id, str(view.state)) for view in views)
    return [Section("Hello from a package", ("Task", "State"), rows)]
