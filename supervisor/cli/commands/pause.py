"""`nightcrew pause`."""

from __future__ import annotations

import click

from supervisor.cli import common
from supervisor.cli.names import unpaused_name
from supervisor.host.paths import home
from supervisor.ledger import queries


@click.command()
@click.argument("names", nargs=-1, shell_complete=unpaused_name)
@click.option("--all", "everything", is_flag=True, help="All tasks that have not ended.")
@common.json_option
def command(names: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Hold tasks or runs back until nightcrew resume: agents stand still with everything that they started, and what waits does not start.

    Agents keep their memory, use no processor time, and give their slots to others. Their timeout stands still too. What is added later
    starts as it would.

    \b
    nightcrew pause lint
    nightcrew pause 1121-k3f9
    nightcrew pause --all
    """
    tasks = common.names_or_all(home(), names, queries.unfinished_ids, everything=everything)
    answer = common.ask(home(), "pause", {"tasks": tasks})
    for task in answer["paused_before"] if not everything else ():
        common.say(f"{task} was paused already")
    for task, why in answer["not_paused"].items():
        common.say(f"{task} was not paused: {why}")
    if answer["moving"]:
        common.say(f"{len(answer['moving'])} processes could not be stopped, and go on: {' '.join(map(str, answer['moving']))}")
    common.print_names(answer["paused"], answer, as_json=as_json)
