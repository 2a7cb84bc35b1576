"""What `nightcrew pr` has to remember before and after each of its steps. It acts in its own process; this commits."""

from __future__ import annotations

from typing import Any

from supervisor.core.errors import NotFound, NotRunning, UsageError
from supervisor.daemon.loop import Loop

_FACTS = ("project", "remote", "branch", "base", "commit")


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`op`, and by `op`:

    `consent`: `project remote`. `intend`: `task epoch project remote branch base commit`; returns `pull`, an id.
    `pushed`: `pull task epoch commit`. `noted`: `pull task epoch tool number link state draft base`.
    Raises NotFound, Refused.
    """
    if not loop.ready:
        raise NotRunning("the supervisor is still recovering", kept="everything", hint="try again")
    pulls = loop.ledger.pulls
    if args.get("op") == "consent":
        pulls.consent(str(args["project"]), str(args["remote"]))
        return {}
    task = str(args.get("task"))
    try:
        loop.ledger.launch_row(task)
    except KeyError:
        raise NotFound("no task", on=task, hint="nightcrew status") from None
    match args.get("op"):
        case "intend":
            return {"pull": pulls.intend(task, int(args["epoch"]), {name: str(args[name]) for name in _FACTS})}
        case "pushed":
            pulls.pushed(int(args["pull"]), task, int(args["epoch"]), str(args["commit"]))
            return {}
        case "noted":
            pulls.noted(int(args["pull"]), task, int(args["epoch"]), args)
            return {}
    raise UsageError("not a request", on=str(args.get("op")))
