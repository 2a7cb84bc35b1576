"""A person's mail."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from agents.kinds import kinds
from supervisor.core.mail import PERSON
from supervisor.daemon.handlers import mem, submit
from supervisor.daemon.memory import handoff, mail_verbs
from supervisor.daemon.memory.desk import MemoryDesk
from supervisor.daemon.memory.mail import Letter
from supervisor.daemon.memory.mail_verbs import Asker


async def handle(desk: MemoryDesk, args: dict[str, Any]) -> dict[str, Any]:
    """`project`, also one in which nothing was run yet, `op` and its words: see `mail_verbs`. A handoff has `branch` and `commit`, and its
    `start` is a submission of one task."""
    return await mail_verbs.ask(desk.mail, Asker(PERSON, mem.project_of(args), None, functools.partial(_hand_over, desk)), args)


async def _hand_over(desk: MemoryDesk, letter: Letter, args: Mapping[str, Any]) -> Letter:
    letter = handoff.described(letter, args, str(args.get("branch") or ""), str(args["commit"]))
    submission = args.get("start")
    if submission is None:
        return letter
    task = submission["spec"]["tasks"][0]
    in_prompt = kinds()[task.get("kind", "shell")].is_agent
    if in_prompt:
        task = {**task, "prompt": handoff.prompt(letter, str(task.get("prompt") or ""))}
    spec = {**submission["spec"], "tasks": [task]}
    made = await submit.handle(desk.loop, {**submission, "spec": spec})
    return handoff.to(letter, made["tasks"][0], in_prompt=in_prompt)
