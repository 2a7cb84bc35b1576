"""A gateway in front of a scripted engine, in the test's loop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from supervisor.host.paths import Home
from tests.engines.gate import say
from tests.engines.scripted import ScriptedEngine, scripted
from tests.gateway import kit

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


def saved_at(tmp_path: Path) -> Path:
    """The directory in which the engine `local` saves slots."""
    return Home(tmp_path / "home").engines / "local.slots"


def at(gate: kit.Gate, url: str, slots: int = 2) -> None:
    """Let the engine serve at `url`."""
    say(gate, url=url, slots=slots, context=100_000)


@asynccontextmanager
async def engine_gate(tmp_path: Path, *, slots: int = 2, kind: str = "llamacpp") -> AsyncIterator[tuple[ScriptedEngine, kit.Gate]]:
    """The engine `local`, and a gateway that sends the model `local` to it."""
    place = saved_at(tmp_path)
    place.mkdir(parents=True, mode=0o700)
    settings = f'[engine.local]\nkind = "{kind}"\nmodel = "/none.gguf"\nslots = {slots}\ncontext = 100000\n'
    async with scripted(slots, 100_000, place) as engine, kit.gateway(tmp_path, settings) as gate:
        at(gate, engine.url, slots)
        yield engine, gate


def ask(system: str, *turns: str, stream: bool = False, **more: Any) -> bytes:
    """A chat request: a system prompt, then turns of user and assistant."""
    messages = [{"role": "system", "content": system}]
    messages += [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(turns)]
    return json.dumps({"model": "local", "max_tokens": 50, "messages": messages, **({"stream": True} if stream else {}), **more}).encode()


def message(system: str, *turns: str, **more: Any) -> bytes:
    """The same for `/v1/messages`."""
    messages = [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(turns)]
    return json.dumps({"model": "local", "max_tokens": 50, "system": system, "messages": messages, **more}).encode()
