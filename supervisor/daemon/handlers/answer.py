"""Answer what an agent asks on its screen: the key that says yes or no in the dialog that its command line shows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from agents import delivery
from agents.status import Evidence, Source, fuse
from supervisor.core.errors import NotFound, NotRunning, Refused
from supervisor.core.states import AttemptState
from supervisor.daemon.handlers import evidence
from supervisor.daemon.loop import Loop
from supervisor.daemon.sending import Key, typable

SHOWN_S, GONE_S, LOOK_S = 10.0, 30.0, 0.1
"""How long the dialog may take to come after a hook told of it, and to go; how often it is looked at. At a load of 20 Claude Code took more
than 2 s to paint a dialog, and at 30 more than 5 s to close it."""


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`task`: its full id; `allow`: whether it may; `asked`: what the person saw that it asks, empty when nobody did. Returns `gone`:
    whether the dialog is. Raises Refused, with nothing pressed, when it shows none that has such keys, or asks something else by now."""
    if not loop.ready:
        raise NotRunning("the supervisor is still recovering", kept="everything", hint="try again")
    name, allow, asked = str(args["task"]), args["allow"] is True, str(args.get("asked") or "")
    if (key := await _running(loop, name)) is None:
        raise NotFound("no agent to answer", on=name, why="it does not run, or is paused", hint="nightcrew status")
    with _alone(loop, name):
        return await _answer(loop, key, allow=allow, asked=asked)


@contextlib.contextmanager
def _alone(loop: Loop, name: str) -> Iterator[None]:
    """Refuse a second answer while one is under way: its key would go to whatever the agent asks next."""
    if name in loop.sending.answering:
        why = "another answer to it is under way"
        raise Refused("not answered", on=name, why=why, kept="nothing was pressed", hint=f"nightcrew status {name}")
    loop.sending.answering.add(name)
    try:
        yield
    finally:
        loop.sending.answering.discard(name)


async def _answer(loop: Loop, key: Key, *, allow: bool, asked: str) -> dict[str, Any]:
    name, said = key[0], await _asks(loop, key)
    shown = await _shown(loop, key, SHOWN_S if said else 0.0)
    keys = _keys(name, shown, allow=allow)
    if asked and said and said != asked:
        raise Refused("not answered", on=name, why=f"it asks something else by now: {said}", kept="nothing was pressed", hint="look again")
    loop.ledger.journal(*key, "permission answered", {"what": said, "allowed": allow})
    await loop.sending.press(key, keys)
    if gone := await _gone(loop, key, shown):
        loop.evidence.answered(key, said, allowed=allow)
    return {"task": name, "allowed": allow, "what": said, "gone": gone}


async def _running(loop: Loop, name: str) -> Key | None:
    """Its attempt. An agent that has just started may ask before the loop has seen that it runs."""
    until = loop.clock.monotonic() + SHOWN_S
    while (key := typable(loop.crew, name)) is None and _starts(loop, name) and loop.clock.monotonic() < until:
        await asyncio.sleep(LOOK_S)
    return key


def _starts(loop: Loop, name: str) -> bool:
    task = loop.crew.tasks.get(name)
    return task is not None and task.attempt is not None and task.attempt.state is AttemptState.LAUNCHING


def _keys(name: str, shown: delivery.Dialog | None, *, allow: bool) -> tuple[str, ...]:
    keys = () if shown is None else shown.allow if allow else shown.deny
    if not keys:
        why = "it shows no dialog that nightcrew knows" if shown is None else f"the dialog {shown.label} of {shown.cli} has no such answer"
        raise Refused("cannot answer", on=name, why=why, kept="nothing was pressed", hint=f"nightcrew attach {name}")
    return keys


async def _asks(loop: Loop, key: tuple[str, int]) -> str:
    """As `needs` says it."""
    said = await evidence.of(loop, key, evidence.OneLook())
    status = fuse([Evidence(**{**piece, "source": Source(piece["source"])}) for piece in said["evidence"]], said["session"])
    return status.detail if status.needs_person else ""


async def _shown(loop: Loop, key: tuple[str, int], wait_s: float) -> delivery.Dialog | None:
    """The dialog on its screen; a hook tells of it a moment before it is painted."""
    until = loop.clock.monotonic() + wait_s
    while True:
        known = await loop.sending.known(key)
        found = delivery.dialog(known.screen) if known is not None else None
        if found is not None or loop.clock.monotonic() >= until:
            return found
        await asyncio.sleep(LOOK_S)


async def _gone(loop: Loop, key: tuple[str, int], shown: delivery.Dialog | None) -> bool:
    """Wait until the dialog is gone, at most GONE_S; return whether it is. The screen may then show another dialog."""
    until = loop.clock.monotonic() + GONE_S
    while loop.clock.monotonic() < until:
        await asyncio.sleep(LOOK_S)
        known = await loop.sending.known(key)
        if known is None or delivery.dialog(known.screen) != shown:
            return True
    return False
