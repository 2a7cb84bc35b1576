"""`nightcrew retry`."""

from __future__ import annotations

import click

from supervisor.cli import common
from supervisor.cli.names import ended_name
from supervisor.host.paths import home


@click.command()
@click.argument("names", nargs=-1, required=True, shell_complete=ended_name)
@common.json_option
def command(names: tuple[str, ...], as_json: bool) -> None:
    """Run finished tasks again from their base commit, in a new worktree; tasks that were skipped because of them wait again.

    What the earlier attempt left stays under its rescue ref and in its own worktree until `nightcrew clean`.

    \b
    nightcrew retry lint
    """
    from supervisor.daemon import protocol, start

    where = home()
    wanted = common.tasks_named(where, names)
    start.ensure_running(where, common.settings_file(), common.say)
    revived = protocol.call(where.daemon_socket, "retry", {"tasks": wanted})["revived"]
    if as_json:
        common.print_json(revived=revived)
    else:
        click.echo("\n".join(revived))
