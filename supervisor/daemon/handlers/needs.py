"""Which agents wait for a person, what they ask, and how the others are."""

from __future__ import annotations

from typing import Any

from agents.status import NEEDS_PERSON, RESTS, AgentState, Evidence, Source, Status, fuse
from supervisor.core import group_rules
from supervisor.core.candidates import CHOICE, asks_choice
from supervisor.daemon.agent_evidence import LookedAt
from supervisor.daemon.handlers import evidence
from supervisor.daemon.loop import Loop
from supervisor.ledger import choices, mail, queries

AGAIN_S = 5.0


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """Returns `agents`, who waits longest first: `task`, `state`, `detail` and `since` (wall-clock seconds). Only agents that tell by
    hooks are known to wait; a hook that says so is compared with what else is known before it is believed. The screen is looked at of an
    agent that has not spoken yet, and of one that rests: a dialog may keep it from going on. Those that were set aside are among them.
    `states`: by task how each agent is that has said so. `mail`: the requests to a person that nobody has read, oldest first; their
    senders may go on. `choices`: the groups of candidates of which a person is to choose, shaped as `agents`. `told`: what a person who is
    here was told last; with `watches` who asks is a screen that goes on looking, and rings when its number has grown."""
    aside = queries.set_aside(loop.ledger.db)
    states: dict[str, str] = {}
    found: list[dict[str, Any]] = [
        {"task": name, "state": str(AgentState.WAITING_INPUT), "detail": asked, "since": at} for name, asked, at in aside
    ]
    together = evidence.OneLook()
    for name, task in list(loop.crew.living.items()):
        if any(name == other for other, _, _ in aside):
            continue
        key = name, task.epoch
        await loop.streams.fresh(key)
        session, heard, _ = loop.evidence.of(key)
        status = fuse(heard, session)
        is_silent = not heard or status.state in RESTS
        if status.state in NEEDS_PERSON or (is_silent and evidence.owns_terminal(loop, name)):
            status = await _seen(loop, key, heard, together)
            if status.needs_person:
                found.append({"task": name, "state": str(status.state), "detail": status.detail, "since": status.since})
        if heard:
            states[name] = str(status.state)
    loop.looked_at = {key: seen for key, seen in loop.looked_at.items() if key[0] in loop.crew.living}
    told = loop.told_here(watches=args.get("watches") is True)
    agents = sorted(found, key=lambda one: one["since"])
    return {"agents": agents, "states": states, "mail": _mail(loop), "choices": _choices(loop), "told": told}


async def _seen(loop: Loop, key: tuple[str, int], heard: list[Evidence], together: evidence.OneLook) -> Status:
    """Return how it is by everything that is known. Of one that rests a look counts for AGAIN_S: a crew may have hundreds of them."""
    now, known = loop.clock.monotonic(), loop.looked_at.get(key)
    if heard and known is not None and known.heard == heard and now - known.at < AGAIN_S and not known.asked:
        return known.status
    said = await evidence.of(loop, key, together)
    status = fuse([Evidence(**{**piece, "source": Source(piece["source"])}) for piece in said["evidence"]], said["session"])
    loop.looked_at[key] = LookedAt(now, heard, status, asked=any(piece.state in NEEDS_PERSON for piece in heard))
    return status


def _mail(loop: Loop) -> list[dict[str, Any]]:
    now = loop.clock.wall()
    return [one.shape(now) for one in mail.asked_of_person(loop.ledger.db)]


def _choices(loop: Loop) -> list[dict[str, Any]]:
    since = choices.since(loop.ledger.db, group_rules.to_choose(loop.crew))
    return [{"task": task, "state": CHOICE, "detail": asks_choice(task.rpartition("/")[2]), "since": at} for task, at in since.items()]
