"""What `nightcrew pr` has to remember before and after each of its steps. It acts in its own process; this commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from supervisor.features.pull_requests.rows import PullRequests
from supervisor.kernel import codec
from supervisor.kernel.conversations import Remarks
from supervisor.server import requests
from supervisor.server.attempts import sending

if TYPE_CHECKING:
    from supervisor.server.loop import Loop


async def consent(loop: Loop, *, project: str, remote: str) -> dict[str, Any]:
    """Note that a person agrees to push there."""
    loop.refuse_early()
    loop.ledger.of(PullRequests).consent(project, remote)
    return {}


async def intend(loop: Loop, *, task: str, epoch: int, project: str, remote: str, branch: str, base: str, commit: str) -> dict[str, Any]:
    """Note that a commit is about to be pushed; returns `pull`, an id."""
    requests.ready_for(loop, task)
    facts = {"project": project, "remote": remote, "branch": branch, "base": base, "commit": commit}
    return {"pull": loop.ledger.of(PullRequests).intend(task, epoch, facts)}


async def pushed(loop: Loop, *, pull: int, task: str, epoch: int, commit: str) -> dict[str, Any]:
    """Note that it was pushed."""
    requests.ready_for(loop, task)
    loop.ledger.of(PullRequests).pushed(pull, task, epoch, commit)
    return {}


async def noted(loop: Loop, *, pull: int, task: str, epoch: int, **facts: Any) -> dict[str, Any]:
    """Note what the host says: `tool number link state draft base`."""
    requests.ready_for(loop, task)
    loop.ledger.of(PullRequests).noted(pull, task, epoch, facts)
    return {}


async def send(loop: Loop, *, pull: int, task: str, keys: tuple[str, ...], text: str) -> dict[str, Any]:
    """Give `text`, which holds these remarks, to the agent of `task`, which lives; returns `delivery`. One that has ended goes on in a
    run of its own: `Submission.pull`."""
    requests.ready_for(loop, task)
    return {"delivery": (await sending.send(loop, [task], text, remarks=Remarks(pull, keys)))["deliveries"][0]}


OPS: Mapping[str, codec.Handler] = {"consent": consent, "intend": intend, "pushed": pushed, "noted": noted, "send": send}
"""The verb `pr`."""
