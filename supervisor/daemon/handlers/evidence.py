"""What agents say of themselves, and what their screens show, for who asks how an agent is."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import Any

from agents import delivery, hints
from agents.kinds import of_task
from supervisor.core.errors import UsageError
from supervisor.daemon.loop import Loop
from supervisor.host import terminals
from supervisor.host.terminals import Groups


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`attempts`: pairs of a task's id and an epoch. Returns for each that there is, by task, `session`, `evidence`, a list, and
    `refused`, how many of its hooks were left out, by why."""
    wanted = args.get("attempts")
    if not isinstance(wanted, list):
        raise UsageError("no attempts given")
    found, together = {}, OneLook()
    for task, epoch in wanted:
        key = str(task), int(epoch)
        if loop.ledger.attempt(*key) is not None:
            found[key[0]] = await of(loop, key, together)
    return {"agents": found}


class OneLook:
    """Reads /proc once for all attempts of a request, when the first of them needs it."""

    def __init__(self) -> None:
        self._found: Groups | None = None

    async def groups(self) -> Groups:
        """Return the process groups as of the first call."""
        if self._found is None:
            self._found = await asyncio.to_thread(terminals.groups)
        return self._found


def owns_terminal(loop: Loop, task: str) -> bool:
    """Return whether the agent of a task shows its state on a screen."""
    spec = loop.ledger.launch_row(task).spec
    return of_task(spec.kind).owns_terminal(interactive=spec.interactive)


async def of(loop: Loop, key: tuple[str, int], together: OneLook) -> dict[str, Any]:
    """Of one attempt."""
    await loop.streams.fresh(key)
    session, evidence, refused = loop.evidence.of(key)
    slept_since = loop.incidents.timekeeping.slept_since
    if owns_terminal(loop, key[0]) and (known := await loop.sending.known(key, await together.groups())) is not None:
        evidence = delivery.evidence(replace(known, printed=known.printed + slept_since(known.printed)), loop.clock.wall())
    elif (piece := hints.silence((at := loop.streams.printed(key)) + slept_since(at), loop.clock.wall())) is not None:
        evidence = [*evidence, piece]
    return {"session": session, "evidence": [asdict(piece) for piece in evidence], "refused": refused}
