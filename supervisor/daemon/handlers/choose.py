"""A person chooses a candidate of a group."""

from __future__ import annotations

from typing import Any

from supervisor.core.candidates import Decider
from supervisor.core.errors import NotFound, Refused
from supervisor.core.events import Chosen, Submitted
from supervisor.core.states import TaskState
from supervisor.daemon import choosing
from supervisor.daemon.loop import Loop
from supervisor.ledger.comparing import Comparison


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`group` and `candidate` (full ids), `why` in words; `now`: also while others have not ended, and `kill`: those are ended then.
    Returns the `winner`, whether it is `new`, and `ended`, those that were asked to end. The same choice twice is one. Raises NotFound,
    and Refused for another choice than the one that was made, for a candidate that is not done, and without `now` while others go on."""
    group, winner = str(args["group"]), str(args["candidate"])
    found = choosing.compared(loop.ledger, group)
    if winner not in found.group.candidates:
        known = ", ".join(found.group.candidates)
        raise NotFound("no candidate of", on=group, why=f"{winner} is not one of {known}", hint=f"nightcrew compare {group}")
    if found.choice is not None and found.choice.winner == winner:
        return {"winner": winner, "new": False, "ended": []}
    _refuse(found, winner, now=bool(args.get("now")))
    choice = choosing.made(found, winner, Decider.PERSON, str(args.get("why") or "") or _said(found, winner))
    open_ones = [name for name in (*found.group.candidates, *found.group.judges) if not _ended(loop, name)]
    loop.ask(Submitted(_known(loop, found)), Chosen(choice, end_others=bool(args.get("kill"))))
    after = choosing.compared(loop.ledger, group)
    if after.choice is None or after.choice.winner != winner:
        raise Refused("not chosen", on=winner, why=f"{group} changed meanwhile", hint=f"nightcrew compare {group}")
    return {"winner": winner, "new": True, "ended": open_ones if args.get("kill") else []}


def _known(loop: Loop, found: Comparison) -> tuple[Any, ...]:
    """The candidates and the group as the ledger has them, for a loop that has forgotten what ended."""
    now = loop.clock.monotonic()
    return tuple(loop.ledger.task(name, now) for name in (*found.group.candidates, found.group.id))


def _ended(loop: Loop, name: str) -> bool:
    known = loop.crew.tasks.get(name)
    state = known.state if known is not None else loop.ledger.task(name, 0.0).state
    return state not in (TaskState.WAITING, TaskState.READY, TaskState.RUNNING, TaskState.PAUSED, TaskState.PARKED)


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
