"""A person's comments and verdicts. What is sent to an agent that still lives goes the way of `send`, and is noted in the same commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supervisor.client import follow_up
from supervisor.host.failpoint import failpoint
from supervisor.kernel import codec
from supervisor.kernel.errors import NotFound
from supervisor.results.verdicts import Comment, Decision, Reviews, Verdict
from supervisor.server import requests
from supervisor.server.attempts import sending

if TYPE_CHECKING:
    from supervisor.server.loop import Loop


@dataclass(frozen=True, slots=True)
class Words:
    """Words about lines of one file of a result."""

    tip: str
    path: str
    first: int
    last: int
    quoted: str
    text: str


async def comment(loop: Loop, *, task: str, comments: list[Words]) -> dict[str, Any]:
    """Keep comments; returns their `numbers`. Refused for a task that takes no prompt."""
    requests.ready_for(loop, task)
    follow_up.refuse_without_prompt(loop.ledger.db, task)
    numbers = loop.ledger.of(Reviews).comment([Comment(number=0, task=task, **codec.shape(one)) for one in comments])
    failpoint("review.commented")
    return {"numbers": numbers}


async def drop(loop: Loop, *, task: str, number: int) -> dict[str, Any]:
    """Remove a comment that waits."""
    requests.ready_for(loop, task)
    if not loop.ledger.of(Reviews).drop(task, number):
        raise NotFound("no comment that waits", on=str(number), hint=f"nightcrew review {task}")
    return {}


async def decide(loop: Loop, *, task: str, epoch: int, verdict: Verdict, tip: str, why: str = "", ref: str = "") -> dict[str, Any]:
    """Keep a verdict."""
    requests.ready_for(loop, task)
    loop.ledger.of(Reviews).decide(Decision(task, verdict, tip, why, ref), epoch)
    failpoint("review.decided")
    return {}


async def undo(loop: Loop, *, task: str, epoch: int) -> dict[str, Any]:
    """Take a verdict back."""
    requests.ready_for(loop, task)
    return {"was": loop.ledger.of(Reviews).undo(task, epoch)}


async def send(loop: Loop, *, task: str, numbers: list[int], text: str) -> dict[str, Any]:
    """Give `text`, which holds these comments, to the agent of `task`, which lives; returns `delivery`. One that has ended goes on in a run
    of its own: `Submission.reviewed`."""
    requests.ready_for(loop, task)
    return {"delivery": (await sending.send(loop, [task], text, comments=numbers))["deliveries"][0]}


OPS: Mapping[str, codec.Handler] = {"comment": comment, "drop": drop, "decide": decide, "undo": undo, "send": send}
"""The verb `review`."""
