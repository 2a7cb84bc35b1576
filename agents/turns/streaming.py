"""Claude Code with `--input-format stream-json`: messages of a user in, its `stream-json` out, which is passed on as it is."""

from __future__ import annotations

import json
import time
from typing import Any

from agents.inbox import NUMBER, Inbox
from agents.turns.agent import Agent, whole
from supervisor.core.result import json_value, rfc3339


def run(agent: Agent, prompt: str, inbox: Inbox, handle: int) -> int:
    """Give it the prompt, and each text that waits as a turn ends; its exit status. Signals are its own: it is in our process group."""
    agent.tell(_message(prompt))
    open_ = True
    while (event := agent.next()) is not None:
        if not isinstance(event, bytes):
            continue
        found = json_value(event) if b'"type"' in event else None
        shape = found if isinstance(found, dict) else {}
        if NUMBER in shape:
            continue  # only we say that
        whole(handle, event)
        if shape.get("type") == "result" and open_:
            open_ = _next_turn(agent, inbox, handle)
    return agent.ended()


def _next_turn(agent: Agent, inbox: Inbox, handle: int) -> bool:
    """Whether there is one; else it is told that nothing more comes. What it has in the background may still bring further results."""
    text = inbox.next()
    if text is None:
        agent.no_more()
        return False
    line = {**_message(text[1]), NUMBER: text[0], "timestamp": rfc3339(time.time())}
    whole(handle, json.dumps(line).encode("ascii") + b"\n")
    agent.tell(_message(text[1]))
    return True


def _message(text: str) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None}
