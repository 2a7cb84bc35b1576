"""`nightcrew compare`."""

from __future__ import annotations

import click

from supervisor.cli import common
from supervisor.cli.names import group_name
from supervisor.core.errors import NotFound
from supervisor.host.paths import home


@click.command()
@click.argument("name", shell_complete=group_name)
@common.json_option
def command(name: str, as_json: bool) -> int:
    """Rank the candidates of a task with `best_of` or `candidates`, each with what decided.

    After a choice: the ranking by which it was made.

    \b
    nightcrew compare api
    """
    from supervisor.faces import candidates
    from supervisor.ledger import choices, comparing

    where = home()
    view = common.task_named(where, name)
    db = common.ledger(where, view.id)
    group = choices.group_of(db, view.id)
    if group is None:
        raise NotFound("no candidates of", on=view.id, why="it is a task of its own", hint=f"nightcrew review {view.id}")
    found = comparing.compare(db, group)
    if as_json:
        common.print_json(**candidates.shape(found))
        return 0
    for line in candidates.lines(found):
        common.show(line)
    common.say(candidates.next_step(found))
    return 0
