"""`nightcrew night list`."""

from __future__ import annotations

import contextlib
from datetime import datetime

import click

from supervisor.cli import common
from supervisor.host.paths import home


@click.command()
@common.json_option
def command(as_json: bool) -> None:
    """List the nights that start by themselves, then those that were, the newest first.

    \b
    nightcrew night list
    """
    from supervisor.faces import installed_nights, nights

    where, found = home(), []
    installed = installed_nights.every(where, datetime.now())
    if where.ledger.exists():
        with contextlib.closing(common.ledger(where)) as db:
            found = nights.every(db)
    if as_json:
        common.print_json(nights=[nights.as_json(night) for night in found], installed=installed)
        return
    for line in installed_nights.lines(installed):
        common.show(line)
    if found:
        click.echo(nights.table(found))
    elif not installed:
        common.say("no nights; next: nightcrew night run PLAN --until 06:30")
