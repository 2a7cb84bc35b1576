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
    from supervisor.daemon import protocol, start

    where = home()
    wanted = common.tasks_named(where, names)
    start.ensure_running(where, common.settings_file(), common.say)
    answer = protocol.call(where.daemon_socket, "resume", {"tasks": wanted})
    for task in answer["not_suspended"]:
        common.say(f"{task} was not suspended")
    if as_json:
        common.print_json(**answer)
    else:
        for task in answer["resumed"]:
            click.echo(task)
