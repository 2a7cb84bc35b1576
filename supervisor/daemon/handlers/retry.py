"""Run finished tasks again, from the base commit, with a higher epoch; what was skipped because of them waits again."""

from __future__ import annotations

from typing import Any

from supervisor.core.errors import NotFound, Refused
from supervisor.core.events import Event, RetryAsked, Submitted
from supervisor.core.states import FINAL, TaskState
from supervisor.daemon import choosing
from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`tasks`: full ids. Returns every task that waits again. Refused when one has not ended, comes after one that cannot be done, or
    has a named environment that is open or that another of them has;
    BudgetSpent when one has used up a cap past the gateway."""
    await loop.jobs.refuse_used_up(map(str, args["tasks"]), "cannot retry")
    asked = choosing.to_retry(loop.ledger, list(dict.fromkeys(str(name) for name in args["tasks"])))
    loop.ledger.refuse_leaving(asked)
    now = loop.clock.monotonic()
    revived: list[str] = []
    events: list[Event] = []
    for name in asked:
        _check(loop, name, set(asked))
        for again in loop.ledger.revivable(name):
            task = loop.ledger.task(again, now)
            events.append(Submitted((task, *(loop.ledger.task(need, now) for need in sorted(task.after)))))
            if again not in revived:
                revived.append(again)
    _refuse_shared(loop, revived)
    # All are known before the first is judged: each looks at what it comes after.
    loop.ask(*events, *(RetryAsked(name) for name in revived))
    return {"revived": revived}


def _check(loop: Loop, name: str, asked: set[str]) -> None:
    try:
        task = loop.ledger.task(name, 0.0)
    except KeyError:
        raise NotFound("no task", on=name, hint="nightcrew status --all") from None
    if task.state not in FINAL:
        raise Refused("cannot retry", on=name, why=f"it is {task.state}", hint=f"nightcrew kill {name}, or wait for it")
    for need in sorted(task.after - asked) if not task.any_end else ():
        state = loop.ledger.task(need, 0.0).state
        if state in FINAL and state is not TaskState.DONE:
            raise Refused("cannot retry", on=name, why=f"it comes after {need}, which is {state}", hint=f"nightcrew retry {need}")


def _refuse_shared(loop: Loop, revived: list[str]) -> None:
    """A named environment is open once at a time: neither an unfinished task may have it, nor two that are to run again."""
    holders: dict[tuple[str, str], str] = {}
    for name in revived:
        row = loop.ledger.launch_row(name)
        wanted = row.project, row.spec.environment
        if not row.spec.environment:
            continue
        loop.ledger.refuse_open(*wanted)
        other = holders.setdefault(wanted, name)
        if other != name:
            raise Refused(
                "cannot retry", on=name, why=f"{other} has the environment {wanted[1]}, too", kept="both", hint=f"nightcrew retry {other}"
            )
