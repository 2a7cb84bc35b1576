"""`nightcrew resume`."""

from __future__ import annotations

import click

from supervisor.cli import common
from supervisor.cli.names import suspended_name
from supervisor.host.paths import home


@click.command()
@click.argument("names", nargs=-1, required=True, shell_complete=suspended_name)
@common.json_option
def command(names: tuple[str, ...], as_json: bool) -> None:
    """Let suspended agents go on where they stood still.

    \b
    nightcrew resume lint
    nightcrew resume 1121-k3f9
    """
    answer = common.ask_about(home(), "resume", names)
    for task in answer["not_suspended"]:
        common.say(f"{task} was not suspended")
    common.print_names(answer["resumed"], answer, as_json=as_json)
