"""Choose one candidate of a group, by a person, a gate or a judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from supervisor.client import common
from supervisor.client.resolving import any_name, group_name
from supervisor.host.failpoint import failpoint
from supervisor.host.paths import home
from supervisor.kernel import decision
from supervisor.kernel.decision import Compare
from supervisor.kernel.errors import NotFound, Refused
from supervisor.kernel.events import Chosen, Submitted
from supervisor.kernel.states import CHOICE, FINAL, Choice, Decider, TaskState, asks_choice
from supervisor.results import candidates, comparison, ranking
from supervisor.results.comparison import Comparison
from supervisor.store.ledger import Ledger

if TYPE_CHECKING:
    from supervisor.results.comparison import Comparison
    from supervisor.server.loop import Loop


# Choosing
# --------
# Choosing one candidate of a group: what a person asks for, and what the ranking decides by itself.


def compared(ledger: Ledger, group: str) -> Comparison:
    """The candidates of a group by what the ledger has now. Raises NotFound for a task that is none."""
    found = candidates.groups(ledger.db, [group]).get(group)
    if found is None:
        raise NotFound("no candidates of", on=group, why="it is a task of its own", hint=f"nightcrew status {group}")
    return comparison.compare(ledger.db, found)


def by_itself(ledger: Ledger, group: str) -> list[Chosen]:
    """The choice of the first by the ranking; nothing when no candidate may be chosen. The same once more, whoever died in between: the
    ledger has one choice of a group, and what is chosen of one that has ended changes nothing."""
    failpoint("choice.compare")
    found = compared(ledger, group)
    best = ranking.best(found.places)
    return [] if best is None or found.choice is not None else [Chosen(made(found, best.task, Decider.GATE, found.places[0].why))]


def compare(loop: Loop, command: Compare) -> None:
    """Offer the choice that the ranking of a group makes by itself."""
    loop.events(by_itself(loop.ledger, command.group))


def choices(loop: Loop, watches: bool) -> dict[str, Any]:  # noqa: ARG001 - the shape of every such part
    """Return `choices`: the groups of candidates of which a person is to choose, shaped as the agents that wait."""
    since = candidates.since(loop.ledger.db, decision.to_choose(loop.crew))
    found = [{"task": task, "state": CHOICE, "detail": asks_choice(task.rpartition("/")[2]), "since": at} for task, at in since.items()]
    return {"choices": found}


def made(found: Comparison, winner: str, by: Decider, why: str) -> Choice:
    """The choice of `winner`, a candidate of the comparison, with the ranking as it is now."""
    facts = next(place.facts for place in found.places if place.facts.task == winner)
    ranked = ranking.shape(found.places, found.notes)
    return Choice(found.group.id, winner, facts.epoch, facts.tip, by, why, ranked)


# Choose
# ------
# A person chooses a candidate of a group.


async def handle(loop: Loop, *, group: str, candidate: str, why: str = "", now: bool = False, kill: bool = False) -> dict[str, Any]:
    """`group` and `candidate` (full ids), `why` in words; `now`: also while others have not ended, and `kill`: those are ended then.
    Returns the `winner`, whether it is `new`, and `ended`, those that were asked to end. The same choice twice is one. Raises NotFound,
    and Refused for another choice than the one that was made, for a candidate that is not done, and without `now` while others go on."""
    winner, found = candidate, compared(loop.ledger, group)
    if winner not in found.group.candidates:
        known = ", ".join(found.group.candidates)
        raise NotFound("no candidate of", on=group, why=f"{winner} is not one of {known}", hint=f"nightcrew compare {group}")
    if found.choice is not None and found.choice.winner == winner:
        return {"winner": winner, "new": False, "ended": []}
    _refuse(found, winner, now=now)
    choice = made(found, winner, Decider.PERSON, why or _said(found, winner))
    open_ones = [name for name in (*found.group.candidates, *found.group.judges) if not _ended(loop, name)]
    loop.ask(Submitted(_known(loop, found)), Chosen(choice, end_others=kill))
    after = compared(loop.ledger, group)
    if after.choice is None or after.choice.winner != winner:
        raise Refused("not chosen", on=winner, why=f"{group} changed meanwhile", hint=f"nightcrew compare {group}")
    return {"winner": winner, "new": True, "ended": open_ones if kill else []}


def _known(loop: Loop, found: Comparison) -> tuple[Any, ...]:
    """The candidates and the group as the ledger has them, for a loop that has forgotten what ended."""
    now = loop.clock.monotonic()
    return tuple(loop.ledger.task(name, now) for name in (*found.group.candidates, found.group.id))


def _ended(loop: Loop, name: str) -> bool:
    known = loop.crew.tasks.get(name)
    state = known.state if known is not None else loop.ledger.task(name, 0.0).state
    return state in FINAL


def _refuse(found: Comparison, winner: str, *, now: bool) -> None:
    group = found.group
    if found.choice is not None:
        by = f"{found.choice.winner} was chosen by {found.choice.by}, and what comes after it may have begun"
        raise Refused("cannot choose", on=winner, why=by, kept="that choice", hint=f"nightcrew take {winner}")
    if group.state is not TaskState.WAITING:
        raise Refused("cannot choose", on=winner, why=f"{group.id} is {group.state}", hint=f"nightcrew retry {group.id}")
    facts = next(place.facts for place in found.places if place.facts.task == winner)
    if not facts.done:
        raise Refused("cannot choose", on=winner, why=f"it is {facts.state}", hint=f"nightcrew compare {group.id}")
    if found.open and not now:
        why = f"{', '.join(found.open)} may still do better"
        hint = f"nightcrew wait {' '.join(found.open)}, or nightcrew choose {group.id} {winner} --now"
        raise Refused("not chosen yet", on=winner, why=why, kept="the choice is open", hint=hint)


def _said(found: Comparison, winner: str) -> str:
    """Why, of a person who gave no reason: where it stands."""
    number, place = next((number, place) for number, place in enumerate(found.places, start=1) if place.facts.task == winner)
    return f"place {number} of {len(found.places)}, {place.why}"


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
