"""Claude Code with `--input-format stream-json`: messages of a user in, its `stream-json` out, which is passed on as it is.

One of these runs beside each agent, so it imports little: our modules for JSON and times would double what it takes.
"""

from __future__ import annotations

import json
import time
from typing import Any

from agents.inbox import NUMBER, Inbox
from agents.turns.agent import Agent, whole


def run(agent: Agent, prompt: str, inbox: Inbox, handle: int) -> int:
    """Give it the prompt, and each text that waits as a turn ends; its exit status. Signals are its own: it is in our process group."""
    agent.tell(_message(prompt))
    open_ = True
    while (event := agent.next()) is not None:
        if not isinstance(event, bytes):
            continue
        shape = _shape(event)
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
    # First a line that is short whatever the text: a reader may leave out long ones.
    whole(handle, json.dumps({"type": "system", "subtype": "input", NUMBER: text[0]}).encode("ascii") + b"\n")
    line = {**_message(text[1]), NUMBER: text[0], "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    whole(handle, json.dumps(line).encode("ascii") + b"\n")
    agent.tell(_message(text[1]))
    return True


def _shape(line: bytes) -> dict[str, Any]:
    """The object in a line that is a result, or that says to be one of ours; others are not looked into."""
    if b'"result"' not in line and NUMBER.encode() not in line:
        return {}
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _message(text: str) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None}
