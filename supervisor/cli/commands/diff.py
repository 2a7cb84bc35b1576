"""`nightcrew diff`."""

from __future__ import annotations

import os
import sys

import click

from supervisor.cli import common
from supervisor.host.paths import home


@click.command()
@click.argument("name", shell_complete=common.complete_task)
@click.option("--stat", is_flag=True, help="Only which files, and how much.")
def command(name: str, stat: bool) -> None:
    """Show what a task changed, from its base to the tip of its branch. While it runs: what it has committed so far."""
    from supervisor.daemon import results

    where = home()
    text = results.diff(common.ledger(where), common.task_named(where, name), stat=stat)
    sys.stdout.buffer.write(os.fsencode(text))  # git's very bytes, whatever the terminal's encoding
