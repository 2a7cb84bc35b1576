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
    revived = common.ask_about(home(), "retry", names)["revived"]
    common.print_names(revived, {"revived": revived}, as_json=as_json)
