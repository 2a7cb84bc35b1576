"""`nightcrew suspend`."""

from __future__ import annotations

import click

from supervisor.cli import common
from supervisor.cli.names import agent_name
from supervisor.host.paths import home


@click.command()
@click.argument("names", nargs=-1, required=True, shell_complete=agent_name)
@common.json_option
def command(names: tuple[str, ...], as_json: bool) -> None:
    """Have the agents of tasks or runs stand still, with everything that they started, until nightcrew resume.

    They keep their memory and their slot, and use no processor time. Their timeout stands still too. What they wait for outside, such as a
    model's answer, does not wait for them. Tasks of a run that do not run yet start as they would.

    \b
    nightcrew suspend lint
    nightcrew suspend 1121-k3f9
    """
    answer = common.ask_about(home(), "suspend", names)
    for task in answer["suspended_before"]:
        common.say(f"{task} was suspended already")
    for task, why in answer["not_running"].items():
        common.say(f"{task} was not suspended: {why}")
    if answer["moving"]:
        common.say(f"{len(answer['moving'])} processes could not be stopped, and go on: {' '.join(map(str, answer['moving']))}")
    common.print_names(answer["suspended"], answer, as_json=as_json)
