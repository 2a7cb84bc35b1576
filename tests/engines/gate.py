"""A gateway before a scripted engine whose record a test writes, in the test's loop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from supervisor.gateway.admission.types import EngineChanged
from supervisor.host import files
from supervisor.kernel import codec
from supervisor.kernel.engines import EngineRecord, EngineState
from tests.engines.scripted import Answer, ScriptedEngine, scripted
from tests.gateway import kit

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
WORDS = tuple(f" w{n}" for n in range(8))


def say(gate: kit.Gate, state: EngineState = EngineState.READY, **facts: Any) -> None:
    """The record of the engine, as the supervisor writes it."""
    record = EngineRecord("local", state, **facts)
    files.private_dir(gate.home.engines)
    files.atomic_write(gate.home.engines / "local.json", codec.dumps(record).encode())
    context = gate.gateway.context
    upstreams = tuple(replace(one, url=record.url) if one.engine is not None else one for one in context.settings.upstreams)
    context.settings = replace(context.settings, upstreams=upstreams)
    context.admission.tell(EngineChanged("local", record))
    if (engines := getattr(context, "engines", None)) is not None:
        engines.look()  # it would see the file a moment later


@asynccontextmanager
async def gate_of(
    root: Path, slots: int = 2, *, context: int = 4096, kind: str = "llamacpp"
) -> AsyncIterator[tuple[ScriptedEngine, kit.Gate]]:
    settings = f'[engine.local]\nkind = "{kind}"\nmodel = "/none.gguf"\nslots = {slots}\ncontext = {context}\n'
    async with scripted(slots, context) as engine, kit.gateway(root, settings) as gate:
        engine.answer = lambda _: Answer(WORDS)
        say(gate, url=engine.url, slots=slots, context=context)
        yield engine, gate


def body(text: str = "hi", *, stream: bool = True, max_tokens: int = 100, **more: Any) -> bytes:
    shape = {"model": "local", "max_tokens": max_tokens, "messages": [{"role": "user", "content": text}], **more}
    return json.dumps({**shape, "stream": True} if stream else shape).encode()
