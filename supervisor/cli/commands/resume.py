"""`nightcrew resume`."""

from __future__ import annotations

import click

from supervisor.cli import common
from supervisor.cli.names import paused_name
from supervisor.host.paths import home
from supervisor.ledger import queries


@click.command()
@click.argument("names", nargs=-1, shell_complete=paused_name)
@click.option("--all", "everything", is_flag=True, help="All tasks that a person has paused.")
@common.json_option
def command(names: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Let paused tasks go on: agents where they stood still, as soon as a slot is free; what waited waits for its start again.

    \b
    nightcrew resume lint
    nightcrew resume 1121-k3f9
    nightcrew resume --all
    """
    tasks = common.names_or_all(home(), names, queries.paused_ids, everything=everything)
    answer = common.ask(home(), "resume", {"tasks": tasks})
    for task in answer["not_paused"]:
        common.say(f"{task} was not paused")
    for task in answer["waiting_for_slot"]:
        common.say(f"{task} goes on when a slot is free")
    common.print_names(answer["resumed"], answer, as_json=as_json)
