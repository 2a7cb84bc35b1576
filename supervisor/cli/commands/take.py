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
@click.option("--with-changes", is_flag=True, help="Also what an idle agent has not committed.")
@click.option("--force", is_flag=True, help="Also a result that you rejected, and what an agent at work has committed by now.")
@common.json_option
def command(name: str, repo: Path, only_print: bool, with_changes: bool, force: bool, as_json: bool) -> int:
    """Merge a task's result into the branch that is checked out here.

    From an agent in its own terminal, which does not end by itself, take what it has committed, while it is idle. From a task that you
    stopped, take what it left.

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
    how = results.How(only_print, force=force, with_changes=with_changes)
    taken = results.take(common.ledger(where, view.id), view, repo, how)
    if as_json:
        common.print_json(task=taken.task, merged=taken.merged, commit=taken.commit, commands=list(taken.commands), notes=list(taken.notes))
    else:
        for line in taken.notes:
            common.say(line)
        for line in taken.commands:
            click.echo(line)
        common.say(taken.sentence)
    return 0 if taken.merged or only_print else NeedsHuman.exit_code
