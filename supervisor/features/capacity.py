"""`nightcrew capacity`."""

from __future__ import annotations

import click

from supervisor.client import common, protocol
from supervisor.features.capacity import view as capacity_view
from supervisor.host.paths import home

ASK_S = 5.0


@click.command()
@common.json_option
def command(as_json: bool) -> None:
    """Show how many agents the machine and the models carry, what binds, and what each kind of agent takes.

    \b
    nightcrew capacity
    nightcrew capacity --json
    """
    shape = protocol.call(home().daemon_socket, "capacity", {}, timeout_s=ASK_S)
    if as_json:
        common.print_json(**capacity_view.printed(shape))
        return
    for line in capacity_view.lines(shape):
        click.echo(line)
