"""`nightcrew choose` and `nightcrew compare`."""

from __future__ import annotations

import click

from supervisor.client import common
from supervisor.client.names import any_name, group_name
from supervisor.host.paths import home
from supervisor.kernel.errors import NotFound

# Choose
# ------
# `nightcrew choose`.


@click.command()
@click.argument("name", shell_complete=group_name)
@click.argument("candidate", shell_complete=any_name)
@click.option("-m", "--why", default="", metavar="TEXT", help="Why, for the record (default: where it stands in the ranking).")
@click.option("--now", is_flag=True, help="Also while other candidates have not ended; they go on.")
@click.option("--kill", is_flag=True, help="End the other candidates that have not ended; with it --now is meant.")
@common.json_option
def command_choose(name: str, candidate: str, why: str, now: bool, kill: bool, as_json: bool) -> int:
    """Choose the candidate of a group whose result counts. What comes after the group starts then; nothing is merged.

    It is done once: a choice that was made is not changed. CANDIDATE is its name or its number.

    \b
    nightcrew choose api 2
    nightcrew choose api api-2 -m 'It keeps the old names.'
    """
    where = home()
    group = common.task_named(where, name, archived=False).id
    own = f"{group}-{candidate}" if candidate.isdigit() else candidate
    winner = common.task_named(where, own if "/" in own else f"{group.partition('/')[0]}/{own}", archived=False).id
    args = {"group": group, "candidate": winner, "why": why.strip(), "now": now or kill, "kill": kill}
    answer = common.ask(where, "choose", args)
    if as_json:
        common.print_json(group=group, **answer)
        return 0
    ended = f"; ended: {', '.join(answer['ended'])}" if answer["ended"] else ""
    common.say(f"{winner} {'is' if answer['new'] else 'was already'} the choice of {group}{ended}; next: nightcrew take {group}")
    return 0


# Compare
# -------
# `nightcrew compare`.


@click.command()
@click.argument("name", shell_complete=group_name)
@common.json_option
def command_compare(name: str, as_json: bool) -> int:
    """Rank the candidates of a task with `best_of` or `candidates`, each with what decided.

    After a choice: the ranking by which it was made.

    \b
    nightcrew compare api
    """
    from supervisor.results import candidates, comparison

    where = home()
    view = common.task_named(where, name)
    db = common.ledger(where, view.id)
    group = candidates.group_of(db, view.id)
    if group is None:
        raise NotFound("no candidates of", on=view.id, why="it is a task of its own", hint=f"nightcrew review {view.id}")
    found = comparison.compare(db, group)
    if as_json:
        common.print_json(**comparison.shape(found))
        return 0
    for line in comparison.lines(found):
        common.show(line)
    common.say(comparison.next_step(found))
    return 0
