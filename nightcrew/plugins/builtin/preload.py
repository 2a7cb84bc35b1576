"""Importing this does everything once that a run needs done, so that a fork of the process which did need not: modules that libraries
import when they first use them, and the validators that pydantic builds then. One answer that nobody gave goes through the whole of it.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401 - for the name of any host
from datetime import UTC, datetime

import anyio._backends._asyncio  # noqa: F401
import h11  # noqa: F401
import httpcore2  # noqa: F401
import httpx2

from agents import conversation
from agents.conversation import Budget, Settings
from agents.model_api import Api
from nightcrew.plugins.builtin import agent
from supervisor.gateway.admission.types import Usage
from supervisor.host.clock import SystemClock

__all__ = ["agent"]

_EVENTS = (
    ("message_start", '"message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1}}'),
    ("content_block_start", '"index":0,"content_block":{"type":"text","text":""}'),
    ("content_block_delta", '"index":0,"delta":{"type":"text_delta","text":"t"}'),
    ("content_block_stop", '"index":0'),
    ("content_block_start", '"index":1,"content_block":{"type":"tool_use","id":"t","name":"bash","input":{}}'),
    ("content_block_delta", '"index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}'),
    ("content_block_stop", '"index":1'),
    ("message_delta", '"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":1}'),
    ("message_stop", '"x":0'),
)
_STREAM = "".join(f'event: {name}\ndata: {{"type":"{name}",{rest}}}\n\n' for name, rest in _EVENTS).encode()


async def _ask() -> None:
    """One request that goes nowhere."""
    answer = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=_STREAM)
    settings = Settings("", conversation.DEFAULT_MODEL, "http://127.0.0.1", "", "none", Budget())
    api = Api(settings, SystemClock(), httpx2.MockTransport(lambda _: answer))
    body = {"model": settings.model, "max_tokens": 1, "messages": [{"role": "user", "content": "."}]}
    await api.ask(body, lambda _: None, lambda _, __: None)
    await api.close()


asyncio.run(_ask())
conversation.find(conversation.DEFAULT_MODEL, datetime.now(UTC)).cost(Usage(1, 1, 1, 1))
