"""Which agents wait for a person, what they ask, and how the others are."""

from __future__ import annotations

from typing import Any

from agents.status import NEEDS_PERSON, AgentState, Evidence, Source, fuse
from supervisor.core import group_rules
from supervisor.core.candidates import CHOICE, asks_choice
from supervisor.daemon.handlers import evidence
from supervisor.daemon.loop import Loop
from supervisor.ledger import choices, mail, queries


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """Returns `agents`, who waits longest first: `task`, `state`, `detail` and `since` (wall-clock seconds). Only agents that tell by
    hooks are known to wait; a hook that says so is compared with what else is known before it is believed. Of one that has not spoken
    yet the screen is looked at: a dialog may keep it from starting. Those that were set aside are among them. `states`: by task how each
    agent is that has said so. `mail`: the requests to a person that nobody has read, oldest first; their senders may go on. `choices`: the
    groups of candidates of which a person is to choose, shaped as `agents`. `told`: what a
    person who is here was told last; with `watches` who asks is a screen that goes on looking, and rings when its number has grown."""
    aside = queries.set_aside(loop.ledger.db)
    states: dict[str, str] = {}
    found: list[dict[str, Any]] = [
        {"task": name, "state": str(AgentState.WAITING_INPUT), "detail": asked, "since": at} for name, asked, at in aside
    ]
    for name, task in list(loop.crew.living.items()):
        if any(name == other for other, _, _ in aside):
            continue
        key = name, task.epoch
        await loop.streams.fresh(key)
        session, heard, _ = loop.evidence.of(key)
        if heard:
            states[name] = str(fuse(heard, session).state)
        if not heard or any(piece.state in NEEDS_PERSON for piece in heard):
            said = await evidence.of(loop, key)
            status = fuse([Evidence(**{**piece, "source": Source(piece["source"])}) for piece in said["evidence"]], said["session"])
            if status.needs_person:
                found.append({"task": name, "state": str(status.state), "detail": status.detail, "since": status.since})
    told = loop.told_here(watches=args.get("watches") is True)
    agents = sorted(found, key=lambda one: one["since"])
    return {"agents": agents, "states": states, "mail": _mail(loop), "choices": _choices(loop), "told": told}


def _mail(loop: Loop) -> list[dict[str, Any]]:
    now = loop.clock.wall()
    return [one.shape(now) for one in mail.asked_of_person(loop.ledger.db)]


def _choices(loop: Loop) -> list[dict[str, Any]]:
    since = choices.since(loop.ledger.db, group_rules.to_choose(loop.crew))
    return [{"task": task, "state": CHOICE, "detail": asks_choice(task.rpartition("/")[2]), "since": at} for task, at in since.items()]
