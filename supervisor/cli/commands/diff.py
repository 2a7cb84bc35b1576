"""`nightcrew diff`."""

from __future__ import annotations

import os
import sys

import click

from supervisor.cli import common
from supervisor.cli.names import any_name
from supervisor.host.paths import home


@click.command()
@click.argument("name", shell_complete=any_name)
@click.option("--stat", is_flag=True, help="Only which files, and how much.")
@common.json_option
def command(name: str, stat: bool, as_json: bool) -> None:
    """Show what a task changed, from its base to the tip of its branch. While it runs: what it has committed so far.

    \b
    nightcrew diff lint
    nightcrew diff --stat 1121-k3f9/lint
    """
    from supervisor.daemon import results

    where = home()
    view = common.task_named(where, name)
    text = results.diff(common.ledger(where, view.id), view, stat=stat)
    if as_json:
        common.print_json(task=view.id, base=view.base_oid, branch=view.branch, diff=os.fsencode(text).decode("utf-8", "replace"))
        return
    sys.stdout.buffer.write(os.fsencode(text))  # git's very bytes, whatever the terminal's encoding
