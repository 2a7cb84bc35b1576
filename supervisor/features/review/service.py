"""A person's comments and verdicts. What is sent to an agent that still lives goes the way of `send`, and is noted in the same commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from supervisor.client import follow_up
from supervisor.features.review.rules import Comment, Decision, Verdict
from supervisor.host.failpoint import failpoint
from supervisor.kernel.errors import NotFound, NotRunning, UsageError
from supervisor.server.attempts import sending

if TYPE_CHECKING:
    from supervisor.server.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`op`, `task`, and by `op`:

    `comment`: `comments`, of each `tip path first last quoted text`; returns their `numbers`. Refused for a task that takes no prompt.
    `drop`: `number`.
    `decide`: `verdict tip why ref epoch`. `undo`: `epoch`.
    `send`: `numbers text`: gives `text`, which holds these comments, to the agent of `task`, which lives; returns `delivery`. One that has
    ended goes on in a run of its own: `Submission.reviewed`. Raises NotFound, Refused.
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
            follow_up.refuse_without_prompt(loop.ledger.db, task)
            names = ("tip", "path", "first", "last", "quoted", "text")
            comments = [Comment(number=0, task=task, **{name: one[name] for name in names}) for one in args["comments"]]
            numbers = reviews.comment(comments)
            failpoint("review.commented")
            return {"numbers": numbers}
        case "drop":
            if not reviews.drop(task, int(args["number"])):
                raise NotFound("no comment that waits", on=str(args["number"]), hint=f"nightcrew review {task}")
            return {}
        case "decide":
            made = Decision(task, Verdict(args["verdict"]), str(args["tip"]), str(args.get("why") or ""), str(args.get("ref") or ""))
            reviews.decide(made, int(args["epoch"]))
            failpoint("review.decided")
            return {}
        case "undo":
            return {"was": reviews.undo(task, int(args["epoch"]))}
        case "send":
            given = {"tasks": [task], "text": str(args["text"]), "comments": [int(number) for number in args["numbers"]]}
            answer = await sending.handle(loop, {**given, "now": False, "some": False})
            return {"delivery": answer["deliveries"][0]}
    raise UsageError("not a request", on=str(args.get("op")))
