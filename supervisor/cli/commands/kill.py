"""`nightcrew kill`."""

from __future__ import annotations

import time

import click

from supervisor.cli import common
from supervisor.cli.names import unfinished_name
from supervisor.core.errors import TimedOut, UsageError
from supervisor.host.paths import home
from supervisor.ledger import queries

WAIT_S = 30.0


@click.command()
@click.argument("names", nargs=-1, shell_complete=unfinished_name)
@click.option("-a", "--all", "everything", is_flag=True, help="Every unfinished task.")
@common.json_option
def command(names: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """End tasks or runs: those that run are stopped with everything that they started, those that wait never start.

    Their work so far is kept: committed to their branch, or under a rescue ref.

    \b
    nightcrew kill lint
    nightcrew kill 1121-k3f9
    """
    if bool(names) == everything:
        raise UsageError("say what to end", why="give names, or --all", hint="nightcrew status")
    where = home()
    db = common.ledger(where)
    wanted = queries.unfinished_ids(db) if everything else common.tasks_named(where, names)
    answer = common.ask(where, "kill", {"tasks": wanted})
    deadline = time.monotonic() + WAIT_S
    while not all(view.final for view in queries.several(db, answer["asked"])):
        if time.monotonic() > deadline:
            raise TimedOut("still stopping", on=f"after {WAIT_S:.0f} s", hint="nightcrew status")
        time.sleep(0.05)
    for task in answer["ended_before"]:
        common.say(f"{task} had ended already: {queries.one(db, task).state}")
    shape = {"ended": answer["asked"], "ended_before": answer["ended_before"]}
    common.print_names(answer["asked"], shape, as_json=as_json)
