"""A person's comments and verdicts. What is sent to an agent that still lives goes the way of `send`, and is noted in the same turn."""

from __future__ import annotations

import hashlib
from typing import Any

from supervisor.core.errors import NotFound, NotRunning, UsageError
from supervisor.core.reviews import Comment, Decision, Verdict
from supervisor.daemon.handlers import send
from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`op`, `task`, and by `op`:

    `comment`: `tip path first last quoted text`; returns `number`. `drop`: `number`.
    `decide`: `verdict tip why ref epoch`. `undo`: `epoch`.
    `sent`: `numbers to`: the agent of `to` has them. `send`: `numbers text`: gives `text` to the agent of `task`, which lives; returns
    `delivery`. Raises NotFound, Refused.
    """
    if not loop.ready:
        raise NotRunning("the supervisor is still recovering", kept="everything", hint="try again")
    task, reviews = str(args["task"]), loop.ledger.reviews
    try:
        loop.ledger.launch_row(task)
    except KeyError:
        raise NotFound("no task", on=task, hint="nightcrew status") from None
    match args.get("op"):
        case "comment":
            names = ("tip", "path", "first", "last", "quoted", "text")
            return {"number": reviews.comment(Comment(number=0, task=task, **{name: args[name] for name in names}))}
        case "drop":
            if not reviews.drop(task, int(args["number"])):
                raise NotFound("no comment that waits", on=str(args["number"]), hint=f"nightcrew review {task} --comments")
            return {}
        case "decide":
            made = Decision(task, Verdict(args["verdict"]), str(args["tip"]), str(args.get("why") or ""), str(args.get("ref") or ""))
            reviews.decide(made, int(args["epoch"]))
            return {}
        case "undo":
            return {"was": reviews.undo(task, int(args["epoch"]))}
        case "sent":
            reviews.sent(task, [int(number) for number in args["numbers"]], str(args["to"]))
            return {}
        case "send":
            return await _send(loop, task, [int(number) for number in args["numbers"]], str(args["text"]))
    raise UsageError("not a request", on=str(args.get("op")))


async def _send(loop: Loop, task: str, numbers: list[int], text: str) -> dict[str, Any]:
    """The same text, once: a supervisor that was killed in between has committed that it is to be typed, with its digest."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    known = loop.ledger.deliveries.of_digest(task, digest)
    delivery = known.shape() if known is not None else None
    if delivery is None:
        answer = await send.handle(loop, {"tasks": [task], "text": text, "now": False, "some": False})
        delivery = answer["deliveries"][0]
    loop.ledger.reviews.sent(task, numbers, task)
    return {"delivery": delivery}
