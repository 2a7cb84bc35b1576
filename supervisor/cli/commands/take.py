"""`nightcrew take`."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor.cli import common
from supervisor.cli.names import done_name
from supervisor.core.errors import NeedsHuman
from supervisor.host.paths import home


@click.command()
@click.argument("name", shell_complete=done_name)
@click.option("-C", "--repo", type=click.Path(path_type=Path), default=Path(), help="The checkout to merge into (default: here).")
@click.option("--print", "only_print", is_flag=True, help="Print the git commands instead of running them.")
@click.option("--force", is_flag=True, help="Also a result that you rejected.")
@common.json_option
def command(name: str, repo: Path, only_print: bool, force: bool, as_json: bool) -> int:
    """Merge a task's result into the branch that is checked out here.

    Refuses, with nothing changed, when the checkout is dirty, the merge would conflict, or you rejected the result in a review. Where your
    repository uses filters or hooks (LFS, for example) it prints the commands instead, because nightcrew runs git without them; exit
    code 8 then.

    \b
    nightcrew take lint
    nightcrew take --print lint
    """
    from supervisor.daemon import results

    where = home()
    view = common.task_named(where, name)
    taken = results.take(common.ledger(where, view.id), view, repo, only_print=only_print, force=force)
    if as_json:
        common.print_json(task=taken.task, merged=taken.merged, commit=taken.commit, commands=list(taken.commands))
    else:
        for line in taken.commands:
            click.echo(line)
        common.say(taken.sentence)
    return 0 if taken.merged or only_print else NeedsHuman.exit_code
