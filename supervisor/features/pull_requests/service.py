"""What `nightcrew pr` has to remember before and after each of its steps. It acts in its own process; this commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from supervisor.kernel.errors import NotFound, NotRunning, UsageError
from supervisor.server.attempts import sending

if TYPE_CHECKING:
    from supervisor.server.loop import Loop

_FACTS = ("project", "remote", "branch", "base", "commit")


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`op`, and by `op`:

    `consent`: `project remote`. `intend`: `task epoch project remote branch base commit`; returns `pull`, an id.
    `pushed`: `pull task epoch commit`. `noted`: `pull task epoch tool number link state draft base`.
    `send`: `pull task keys text`: gives `text`, which holds these remarks, to the agent of `task`, which lives; returns `delivery`.
    One that has ended goes on in a run of its own: `Submission.pull`. Raises NotFound, Refused.
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
        case "send":
            remarks = {"pull": int(args["pull"]), "keys": [str(key) for key in args["keys"]]}
            asked = {"tasks": [task], "text": str(args["text"]), "now": False, "some": False, "remarks": remarks}
            return {"delivery": (await sending.handle(loop, asked))["deliveries"][0]}
    raise UsageError("not a request", on=str(args.get("op")))
