"""Which agents wait for a person, what they ask, and how the others are."""

from __future__ import annotations

from typing import Any

from agents.status import NEEDS_PERSON, Evidence, Source, fuse
from supervisor.daemon.handlers import evidence
from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - every handler is called so
    """Returns `agents`, who waits longest first: `task`, `state`, `detail` and `since` (wall-clock seconds). Only agents that tell by
    hooks are known to wait; a hook that says so is compared with what else is known before it is believed. Of one that has not spoken
    yet the screen is looked at: a dialog may keep it from starting. `states`: by task how each agent is that has said so."""
    found, states = [], {}
    for name, task in list(loop.crew.living.items()):
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
    return {"agents": sorted(found, key=lambda one: one["since"]), "states": states}
