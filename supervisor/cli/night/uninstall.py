"""`nightcrew night uninstall NAME`."""

from __future__ import annotations

import click

from supervisor.cli import common
from supervisor.host.paths import home


@click.command()
@click.argument("name")
def command(name: str) -> None:
    """Remove an installed night: its timer or its line of the crontab, and your consent. A night that runs goes on.

    \b
    nightcrew night uninstall chores
    """
    from supervisor.daemon import installed_nights

    started = installed_nights.uninstall(home(), name)
    common.say(f"{name} starts no more" if started else f"{name} is forgotten; nothing started it any more")
