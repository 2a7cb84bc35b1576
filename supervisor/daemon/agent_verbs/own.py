"""What any agent may ask for itself."""

from __future__ import annotations

import contextlib
from typing import Any

from supervisor.core.errors import DiskFull, UsageError
from supervisor.core.states import AttemptState
from supervisor.core.wait_graph import WaitKind
from supervisor.daemon.agent_verbs.asked import Asked
from supervisor.daemon.memory import lease_hooks
from supervisor.daemon.memory.waits import LONGEST_S

LATE_S = 5.0
"""Beyond the time-out of a quota, which gives up its turn by itself."""


async def quota(asked: Asked) -> dict[str, Any]:
    """A ticket of a named quota, as the verb of the same name gives people; the tasks that wait take turns."""
    wait_s, quotas = asked.args.get("wait_s"), asked.loop.quotas
    if wait_s == 0 or not isinstance(wait_s, int | float | None):
        return await quotas.ask(asked.task, asked.args)
    found = await quotas.ask(asked.task, {**asked.args, "wait_s": 0})
    what = f"quota {found['quota']}"
    if found["taken"]:
        asked.memory.waits.answered(asked.task, asked.epoch, WaitKind.RATE, what)
        return found
    longest_s = LONGEST_S if wait_s is None else wait_s + LATE_S
    async with asked.waits(WaitKind.RATE, what, (), longest_s):
        return await quotas.ask(asked.task, asked.args)


async def whoami(asked: Asked) -> dict[str, Any]:
    """The task, the epoch, the run, what its plan says of its part of the limits, and which tasks it may add."""
    spec = asked.loop.ledger.launch_row(asked.task).spec
    return {
        "task": asked.task,
        "epoch": asked.epoch,
        "run": asked.task.partition("/")[0],
        "class": str(spec.task_class),
        "weight": spec.weight,
        "tpm_max": spec.tpm_max or None,
        "cost_max": spec.cost_max or None,
        "tokens_max": spec.tokens_max or None,
        "children_max": spec.children_max,
        "depth_max": spec.depth_max,
        "parent": spec.parent or None,
        "memory_tools": asked.loop.settings.memory.tools,
    }


async def hook(asked: Asked) -> dict[str, Any]:
    """An event of the agent's command line: `name`, and `event`, the hook's input; null when it was too long to send. Returns what the hook
    prints, as `print`, where it should print something."""
    name, event = asked.args.get("name"), asked.args.get("event")
    if not isinstance(name, str) or not (event is None or isinstance(event, dict)):
        raise UsageError("not an event", why="name is text, event is an object or null")
    if _is_anothers(asked, str((event or {}).get("session_id") or "")):
        raise asked.loop.evidence.forged((asked.task, asked.epoch))
    for told, what in asked.loop.evidence.hook((asked.task, asked.epoch), name, event):
        with contextlib.suppress(DiskFull):  # how the agent is was heard all the same
            asked.loop.ledger.journal(asked.task, asked.epoch, told, {"why": what})
    held = asked.loop.crew.tasks.get(asked.task)
    if held is not None and held.attempt is not None and held.attempt.state is AttemptState.LAUNCHING:
        asked.loop.hint()  # it is there: who sends it something at once is not told that it does not run
    await asked.loop.emergency.held()
    said = lease_hooks.answer(asked.loop, asked.home, asked.memory.leases, (asked.task, asked.epoch), name, event)
    if said or name != lease_hooks.EVENT or not (notices := await asked.memory.notices(asked.task, asked.epoch)):
        return said
    return lease_hooks.beside(notices)


def _is_anothers(asked: Asked, session: str) -> bool:
    """Whether a session is that of another agent that lives: by the ledger, which has those that we choose; else by who spoke in it first,
    but for an agent that has said nothing yet. Else whoever guesses an id could silence the one whose it is."""
    loop = asked.loop
    if owners := loop.ledger.conversations.living(session):
        return asked.task not in owners
    other = loop.evidence.speaker(session)
    return other not in ("", asked.task) and other in loop.crew.living and loop.evidence.has_spoken((asked.task, asked.epoch))
