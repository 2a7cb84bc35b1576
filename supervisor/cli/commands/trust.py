"""`nightcrew trust`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from supervisor.cli import common
from supervisor.cli.names import kind_name
from supervisor.core.errors import NotFound, UsageError, one_line
from supervisor.core.names import nearest
from supervisor.host.paths import home

if TYPE_CHECKING:
    from supervisor.core.kind import Trust


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path())
@click.option("--kind", "name", shell_complete=kind_name, help="Only this kind (default: each whose program is here and asks).")
@click.option("--yes", is_flag=True, help="Write without asking.")
def command(path: Path, name: str | None, yes: bool) -> int:
    """Tell agents' programs that you trust the repository around PATH (default: here), so that they do not ask in each pane.

    A program that trusts a repository obeys its settings, its hooks among them. What is to be written, and where, is shown and asked
    first. Everything else in the program's file stays.

    \b
    nightcrew trust
    nightcrew trust --kind codex ../shop
    """
    from agents import trust
    from supervisor.host import files
    from worktrees.git import Git
    from worktrees.repository import discover, main_root

    root = main_root(discover(Git(files.private_dir(home().root) / "git"), path))
    wanted = {kind: (record, trust.look(record, root, os.environ)) for kind, record in _kinds(name).items()}
    for kind, (record, change) in wanted.items():
        if change.is_there:
            common.say(one_line(f"{kind} trusts {root} already: {change.path}"))
            continue
        click.echo(one_line(f"{kind}: {change.shown}"))
        click.echo(one_line(f"  in {change.path}"))
        if not yes and not _agreed():
            common.say(f"{kind}: nothing was written")
            return 1
        trust.write(record, change)
        common.say(one_line(f"{kind} trusts {root} from now on"))
    return 0


def _kinds(name: str | None) -> dict[str, Trust]:
    """Raises NotFound for a kind that is not, or keeps no such record."""
    from agents.kinds import kinds

    if name is None:
        found = {one: kind for one in kinds() if (kind := kinds()[one]).trust is not None and shutil.which(kind.binary)}
    elif name in kinds():
        found = {name: kinds()[name]}
    else:
        raise NotFound("no kind is called", on=name, why=nearest(name, kinds()), hint="nightcrew kinds ls")
    records = {one: kind.trust for one, kind in found.items() if kind.trust is not None}
    if not records:
        why = "it keeps no record of trust that we know" if name else "no program on the PATH keeps a record of trust"
        raise NotFound("nothing to write", on=name or "trust", why=why, hint="nightcrew kinds ls")
    return records


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("nobody can be asked", why="there is no terminal", hint="nightcrew trust --yes")
    return click.confirm("Write it?", default=False, err=True)
