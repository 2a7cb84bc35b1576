"""What agents say of themselves, and what their screens show, for who asks how an agent is."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from agents import delivery, hints
from agents.kinds import of_task
from supervisor.core.errors import UsageError
from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`attempts`: pairs of a task's id and an epoch. Returns for each that there is, by task, `session`, `evidence`, a list, and
    `refused`, how many of its hooks were left out, by why."""
    wanted = args.get("attempts")
    if not isinstance(wanted, list):
        raise UsageError("no attempts given")
    found = {}
    for task, epoch in wanted:
        key = str(task), int(epoch)
        if loop.ledger.attempt(*key) is not None:
            found[key[0]] = await of(loop, key)
    return {"agents": found}


async def of(loop: Loop, key: tuple[str, int]) -> dict[str, Any]:
    """Of one attempt."""
    await loop.streams.fresh(key)
    session, evidence, refused = loop.evidence.of(key)
    spec, slept_since = loop.ledger.launch_row(key[0]).spec, loop.incidents.timekeeping.slept_since
    if of_task(spec.kind).owns_terminal(interactive=spec.interactive) and (known := await loop.sending.known(key)) is not None:
        evidence = delivery.evidence(replace(known, printed=known.printed + slept_since(known.printed)), loop.clock.wall())
    elif (piece := hints.silence((at := loop.streams.printed(key)) + slept_since(at), loop.clock.wall())) is not None:
        evidence = [*evidence, piece]
    return {"session": session, "evidence": [asdict(piece) for piece in evidence], "refused": refused}
