"""`nightcrew init`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from supervisor.cli import common
from supervisor.host.paths import home


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path())
@click.option("--force", is_flag=True, help="Write it anew when there is one: what it says is lost.")
def command(path: Path, force: bool) -> None:
    """Write a nightcrew.toml with every key, commented out, at the root of the repository around PATH (default: here).

    It touches nothing else. A file that is there stays as it is.

    \b
    nightcrew init
    nightcrew init ../shop
    """
    from supervisor.config import project
    from supervisor.host import files
    from worktrees.git import Git
    from worktrees.repository import discover, main_root

    state = files.private_dir(home().root)
    file = main_root(discover(Git(state / "git"), path)) / project.NAME
    there = os.path.lexists(file)
    if there and not force:
        common.say("there is one already, and it stays as it is; nightcrew init --force writes it anew")
    else:
        # The mode of a file that anybody would make there; it holds no secret and is committed.
        files.atomic_write(file, project.template().encode(), 0o666 & ~_umask())
        common.say(f"{'written anew' if there else 'written'}; take the # from what you want, commit it; next: nightcrew doctor")
    click.echo(file)


def _umask() -> int:
    """It can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
