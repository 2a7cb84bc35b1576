"""`nightcrew wait`."""

from __future__ import annotations

import time

import click

from supervisor.client import common, follow
from supervisor.client.names import unfinished_name
from supervisor.host.paths import home
from supervisor.kernel.errors import TimedOut
from supervisor.store import queries
from supervisor.views import status

LOOK_S = 0.1


@click.command()
@click.argument("names", nargs=-1, shell_complete=unfinished_name)
@click.option("--any", "first", is_flag=True, help="Until one of them has ended, not all.")
@click.option("--timeout", type=common.Duration(), help='Give up after this long ("90s", "10m"), with exit code 124.')
@common.json_option
def command(names: tuple[str, ...], first: bool, timeout: float | None, as_json: bool) -> int:
    """Wait until tasks or runs have ended; without NAMES, until nothing is unfinished. Exit code 1 when one did not end well.

    \b
    nightcrew wait
    nightcrew wait --any --timeout 1h lint types
    """
    where = home()
    db = common.ledger(where)
    wanted = common.tasks_named(where, names) if names else queries.unfinished_ids(db)
    deadline = None if timeout is None else time.monotonic() + timeout
    watch = common.SupervisorWatch(where)
    followed = follow.Followed(db, lambda: queries.several(db, wanted))
    enough = max(0, len(wanted) - 1) if first else 0
    while len(followed.unfinished) > enough:
        if deadline is not None and time.monotonic() >= deadline:
            left = f"{len(followed.unfinished)} of {len(wanted)} tasks"
            raise TimedOut("still unfinished", on=left, kept="they go on", hint="nightcrew status")
        watch.look()
        time.sleep(LOOK_S)
        followed.look()
    found = {view.id: view for view in followed.all()}
    ended = [found[name] for name in wanted if found[name].final]
    if as_json:
        common.print_json(tasks=[status.task_shape(view) for view in ended])
    elif ended:
        common.say(status.tally(status.counted(ended)))
    return follow.exit_code(ended)
