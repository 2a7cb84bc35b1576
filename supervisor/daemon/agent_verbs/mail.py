"""An agent's mail: the sender is its task, by its token, whatever the request says."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agents.kinds import kinds
from supervisor.core.errors import UsageError
from supervisor.daemon.agent_verbs import add
from supervisor.daemon.agent_verbs.asked import Asked
from supervisor.daemon.memory import handoff, mail_verbs
from supervisor.daemon.memory.mail import Letter
from supervisor.daemon.memory.mail_verbs import Asker


async def mail(asked: Asked) -> dict[str, Any]:
    """`op` and its words: see `mail_verbs`. A handoff's `start` has `prompt` and what `add` takes as `options`; it needs children_max."""
    project = asked.loop.ledger.launch_row(asked.task).project
    asker = Asker(asked.task, project, asked.epoch, functools.partial(_hand_over, asked))
    return await mail_verbs.ask(asked.memory.mail, asker, asked.args)


async def _hand_over(asked: Asked, letter: Letter, args: Mapping[str, Any]) -> Letter:
    """The commit is the newest one of its own branch: nothing that an agent says of it is asked for."""
    branch, commit = await asked.loop.publishing.tip((asked.task, asked.epoch))
    letter = handoff.described(letter, args, branch, commit)
    start = args.get("start")
    if start is None:
        return letter
    options = start.get("options") if isinstance(start, dict) else None
    text = start.get("prompt") if isinstance(start, dict) else None
    if not isinstance(options, dict) or not isinstance(text, str):
        raise UsageError("not a request", on="start", why="an object with prompt and options")
    kind = kinds().get(str(options.get("kind", "shell")))
    in_prompt = kind is not None and kind.is_agent
    text = handoff.prompt(letter, text) if in_prompt else text
    key = f"handoff {letter.mail.key or letter.mail.id}"
    made = await add.add_from(replace(asked, args={"text": text, "options": {"id": "handoff", **options}, "key": key}), commit)
    return handoff.to(letter, made["task"], in_prompt=in_prompt)
