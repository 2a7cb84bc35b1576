"""`nightcrew shell`."""

from __future__ import annotations

import os

import click

from supervisor.cli import common
from supervisor.cli.names import any_name
from supervisor.host.paths import home


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("name", shell_complete=any_name)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(name: str, words: tuple[str, ...]) -> int:
    """Open a shell where a task's agent works, or run a command there: its worktree, its own git repository, its environment and sandbox.

    \b
    nightcrew shell lint
    nightcrew shell lint -- git log --oneline --all
    """
    from supervisor.daemon import shell

    where = home()
    return shell.run(where, common.task_named(where, name, archived=False), words, os.environ)
