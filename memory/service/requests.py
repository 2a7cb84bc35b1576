"""The verbs `mem`, `mail` and `lease` of the person's socket."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agents.kinds import kinds
from memory.mail import PERSON
from memory.service import lease_requests, mail, mail_requests, notes
from memory.service.arguments import Args
from memory.service.mail_requests import Asker
from memory.service.notes import REQUEST_PERSON as NOTES_PERSON
from memory.service.notes import Request
from supervisor.kernel import codec
from supervisor.kernel.errors import UsageError
from supervisor.kernel.spec import Submission
from supervisor.server import requests

if TYPE_CHECKING:
    from memory.service.desk import MemoryDesk
    from memory.service.mail import Letter


# Mem
# ---
# The memory of a project, for people.


_PROJECT = re.compile(r"[0-9a-f]{12}")


async def handle_mem(desk: MemoryDesk, **args: Any) -> dict[str, Any]:
    """`project`, also one in which nothing was run yet, and what `verbs.mem` takes. Raises UsageError for what no project is called."""
    return await notes.mem(Request(desk, project_of(args), NOTES_PERSON, None, Args(args)))


def project_of(args: dict[str, Any]) -> str:
    """The project that a request names. Raises UsageError for what none is called."""
    project = str(args.get("project"))
    if not _PROJECT.fullmatch(project):
        raise UsageError("not a request", on="project", why="it is 12 hex digits")
    return project


# Mail
# ----
# A person's mail.


async def handle_mail(desk: MemoryDesk, **args: Any) -> dict[str, Any]:
    """`project`, also one in which nothing was run yet, `op` and its words: see `mail_verbs`. A handoff has `branch` and `commit`, and its
    `start` is a submission of one task."""
    return await mail_requests.ask(desk.mail, Asker(PERSON, project_of(args), None, functools.partial(_hand_over, desk)), args)


async def _hand_over(desk: MemoryDesk, letter: Letter, args: Args) -> Letter:
    letter = mail.described(letter, args, str(args.get("branch") or ""), str(args["commit"]))
    if args.get("start") is None:
        return letter
    submission = codec.load(Submission, args["start"])
    task = submission.spec.tasks[0]
    in_prompt = kinds()[task.kind].is_agent
    if in_prompt:
        task = replace(task, prompt=mail.prompt(letter, task.prompt or ""))
    made = await requests.submit(desk.loop, replace(submission, spec=replace(submission.spec, tasks=(task,))))
    return mail.to(letter, made["tasks"][0], in_prompt=in_prompt)


# Memory
# ------
# What people ask of the memory of a project: notes, mail, leases and waits. Each verb takes the desk and its words.


async def watch(desk: MemoryDesk) -> dict[str, Any]:
    """How changes on the disk are seen: `overflows`, how often the kernel dropped events since the supervisor started."""
    return {"overflows": desk.watch.overflows}


VERBS: Mapping[str, Callable[..., Coroutine[Any, Any, dict[str, Any]]]] = {
    "mem": handle_mem,
    "lease": lease_requests.of_person,
    "mail": handle_mail,
    "watch": watch,
}
"""They stop when whoever asked is gone."""
