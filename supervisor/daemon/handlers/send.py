"""Give a text to agents: typed into those that own their panes, by their protocol to those that take it so; or keep it until they can."""

from __future__ import annotations

from typing import Any

from agents.kinds import of_task
from supervisor.core.deliveries import DeliveryState
from supervisor.core.errors import NotFound, NotRunning, Refused
from supervisor.core.pull_requests import Given
from supervisor.core.states import FINAL
from supervisor.daemon import inboxes
from supervisor.daemon.loop import Loop
from supervisor.daemon.sending import typable


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`tasks`: full ids; `text`: as it will be typed; `now`: keep nothing for later; `some`: leave out those that cannot be typed into;
    `comments`: numbers of the comments to the one task's result that the text holds; `remarks`: `pull` and `keys` of what came back from a
    pull request.
    Returns what became of each. Raises Refused, and keeps nothing, when one of them has no terminal or has ended, and
    BudgetSpent when one has used up a cap past the gateway.
    """
    if not loop.ready:
        raise NotRunning("the supervisor is still recovering", kept="everything", hint="try again")
    names = list(dict.fromkeys(str(name) for name in args["tasks"]))
    await loop.sessions.fresh([key for name in names if (key := typable(loop.crew, name)) is not None])
    await loop.jobs.refuse_used_up(names, "cannot send to")
    never = {name: why for name in names if (why := _why_never(loop, name, args))}
    wanted = [name for name in names if name not in never]
    if never and (not args["some"] or not wanted):
        name, why = next(iter(never.items()))
        raise Refused("cannot send to", on=name, why=why, kept="nothing was typed", hint="nightcrew status")
    comments = args.get("comments")
    remarks = Given(int(args["remarks"]["pull"]), tuple(args["remarks"]["keys"])) if args.get("remarks") else None
    done = await loop.sending.send(loop.crew, wanted, str(args["text"]), now=bool(args["now"]), comments=comments, remarks=remarks)
    refused = [one for one in done if one.state is DeliveryState.DROPPED]
    if refused and len(refused) == len(done):
        raise Refused("not sent to", on=refused[0].task, why=refused[0].reason, kept="nothing was typed", hint="without --now it is kept")
    return {"deliveries": [one.shape() for one in done], "left_out": never}


def _why_never(loop: Loop, name: str, args: dict[str, Any]) -> str:
    try:
        spec = loop.ledger.launch_row(name).spec
    except KeyError:
        raise NotFound("no task", on=name, hint="nightcrew status") from None
    if inboxes.reads(spec):
        if args["now"]:
            return "it works by itself: it gets a text when its turn ends, and not now"
        if not args["text"]:
            return "an empty text presses Enter, and it works by itself"
    elif not of_task(spec.kind).owns_terminal(interactive=spec.interactive):
        return f"it is headless: a task of kind {spec.kind} reads no terminal, and takes no text while it works"
    state = loop.crew.tasks[name].state if name in loop.crew.tasks else loop.ledger.task(name, 0.0).state
    return f"it has ended: {state}" if state in FINAL else ""
