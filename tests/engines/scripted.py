"""A scripted inference engine that speaks llama.cpp's HTTP API over real sockets. It computes nothing: a test says what it answers, and
when.

In a test's loop: `async with scripted(slots=2) as engine:`, then `engine.url`. As a process: `python -m tests.engines.scripted --port N`,
with llama-server's own options; unknown options are ignored.

It does as llama.cpp's server was measured to do (server of 2026-10):

- Each slot keeps its last prompt; a request reuses the common beginning of the slot that serves it, never of another slot, and computes at
  least one token. `cached_tokens` and `cache_read_input_tokens` say so.
- `/v1/chat/completions` heeds `id_slot`; `/v1/messages` ignores it. Without it the free slot with the longest common beginning is taken
  (at least a tenth of the prompt), else the one that was used least recently. A request for a busy slot waits for it.
- `POST /slots/N?action=save` of a busy slot waits until the slot is free, also when the client has gone. So does `restore`.
- After an SSE answer the server closes the connection, although it says `Keep-Alive` and never `Connection: close`.
- A hang-up frees the slot of a streamed request that decodes; during its prompt only at the prompt's end. A request that is not streamed
  goes on to the end of its answer.
- A prompt that is longer than a slot's context is a 400 `exceed_context_size_error`. An answer stops at the context's end.
- `/v1/messages` streams say their usage in `message_start` (input) and `message_delta` (output).

Tokens are words: `tokens_of`. Time is a test's: close `engine.prompts` or `engine.tokens`, then `let(n)` or `open()`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

Message = dict[str, Any]
MODEL = "scripted"
_SIMILARITY = 0.1


class Gate:
    """Passed by whoever waits while it is open, or once for each `let`."""

    def __init__(self) -> None:
        self._is_open = True
        self._permits = 0
        self._changed = asyncio.Condition()
        self.waiting = 0
        """Requests that wait before it now."""

    def close(self) -> None:
        """From now on nobody passes without `let`."""
        self._is_open, self._permits = False, 0

    async def open(self) -> None:
        """Let everybody pass, until it is closed."""
        self._is_open = True
        async with self._changed:
            self._changed.notify_all()

    async def let(self, passages: int = 1) -> None:
        """Let so many pass, now or when they come."""
        self._permits += passages
        async with self._changed:
            self._changed.notify_all()

    async def passed(self) -> None:
        """Wait for it."""
        if self._is_open:
            return
        self.waiting += 1
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._is_open or self._permits > 0)
                self._permits -= not self._is_open
        finally:
            self.waiting -= 1


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request is answered with; each text is one token."""

    text: tuple[str, ...] = ("Hello", " there", ".")
    thinking: tuple[str, ...] = ()
    calls: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Tool calls: the name, and the pieces of its JSON arguments."""
    finish: str = ""
    """OpenAI's finish reason; empty: `stop`, `tool_calls` or `length`, as it ended."""
    error: str = ""
    """Breaks off with an error event of this message after what is said."""
    cut: bool = False
    """Breaks off by closing the connection after what is said."""

    @property
    def pieces(self) -> Iterator[tuple[str, int, str]]:
        """Kind (`thinking`, `text`, `call`, `arguments`), index of the call, and text."""
        yield from (("thinking", 0, piece) for piece in self.thinking)
        yield from (("text", 0, piece) for piece in self.text)
        for index, (name, arguments) in enumerate(self.calls):
            yield "call", index, name
            yield from (("arguments", index, piece) for piece in arguments)


@dataclass(slots=True)
class Served:
    """One request, as the engine saw it."""

    path: str
    body: Message
    headers: Mapping[str, str]
    connection: int
    """Tells connections apart: 0, 1, ... in the order of their first request."""
    prompt: list[str]
    slot: int | None = None
    """None while it waits for one."""
    cached: int = 0
    decoded: int = 0
    """Tokens given so far."""
    end: str = ""
    """`done`, `hung up`, `error`, `cut`; empty while it is served."""


@dataclass(slots=True)
class Slot:
    """One slot and the prompt that it keeps."""

    tokens: list[str] = field(default_factory=list)
    busy: Served | None = None
    used: int = 0
    """The higher, the later."""


def tokens_of(text: str) -> list[str]:
    """Words with the space before them, and other single characters."""
    return re.findall(r" ?\w+|\W", text)


def prompt_of(body: Message) -> str:
    """What a chat template makes of a request of either API."""
    parts = [f"<tool>{json.dumps(tool)}\n" for tool in body.get("tools", ())]
    if body.get("system"):
        parts.append(f"<system>{_text(body['system'])}\n")
    parts += [f"<{message['role']}>{_text(message)}\n" for message in body.get("messages", ())]
    return "".join(parts) + "<assistant>"


def _text(said: Any) -> str:
    if isinstance(said, str):
        return said
    if isinstance(said, list):
        return "".join(_text(part) for part in said)
    if isinstance(said.get("text"), str):
        return str(said["text"])
    rest = {name: value for name, value in said.items() if name not in ("role", "content", "cache_control", "type")}
    return _text(said.get("content") or "") + (json.dumps(rest) if rest else "")


def common(one: list[str], other: list[str]) -> int:
    """Tokens that both begin with."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))


class ScriptedEngine:
    """One engine. Use it from one event loop; make it by `scripted`."""

    def __init__(self, slots: int = 2, context: int = 4096, save_path: Path | None = None, *, tools: bool = True) -> None:
        self.slots = [Slot() for _ in range(slots)]
        self.context = context
        """Of one slot."""
        self.save_path = save_path
        self.tools = tools
        self.healthy = True
        """Else `/health` says 503, as while a model is loaded."""
        self.closes_late = False
        """After an SSE answer the connection stays open, and is closed without an answer when its next request comes: what a client
        sees whose next request crosses the close on its way."""
        self.hang_up_next = 0
        """So many of the next completions are read and never answered: their connection is closed."""
        self.prompts = Gate()
        """Stands before a prompt's end."""
        self.tokens = Gate()
        """Stands before each token of an answer."""
        self.answer: Callable[[Served], Answer] = lambda _: Answer()
        self.requests: list[Served] = []
        """Completions of both APIs, in the order of their arrival."""
        self.calls: list[str] = []
        """Everything else: method and path with query."""
        self.saved: dict[str, list[str]] = {}
        """File name -> tokens."""
        self.port = 0
        self.url = ""
        self._turn = asyncio.Condition()
        self._used = 0
        self._connections: list[object] = []
        self._spent: set[object] = set()
        """Connections that have had an SSE answer."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0) -> web.AppRunner:
        """Listen; the runner is to be cleaned up."""
        app = web.Application(client_max_size=2**28)
        app.router.add_get("/health", self._health)
        app.router.add_get("/props", self._props)
        app.router.add_get("/slots", self._slots)
        app.router.add_post("/slots/{slot}", self._slot)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/messages/count_tokens", self._count)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/messages", self._complete)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, keepalive_timeout=5.0, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        self.port = runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"
        return runner

    def close(self) -> None:
        """End what decodes without a listener."""
        for task in self._tasks:
            task.cancel()

    async def arrived(self, number: int) -> Served:
        """The completion of that number (from 1), once it has a slot. Raises TimeoutError after a minute."""
        async with asyncio.timeout(60), self._turn:
            await self._turn.wait_for(lambda: len(self.requests) >= number and self.requests[number - 1].slot is not None)
        return self.requests[number - 1]

    async def ended(self, number: int) -> Served:
        """The completion of that number (from 1), once it has ended. Raises TimeoutError after a minute."""
        async with asyncio.timeout(60), self._turn:
            await self._turn.wait_for(lambda: len(self.requests) >= number and self.requests[number - 1].end != "")
        return self.requests[number - 1]

    # The engine's own pages -----------------------------------------------------------------------------------------------------------

    async def _health(self, _: web.Request) -> web.Response:
        self.calls.append("GET /health")
        if self.healthy:
            return _json({"status": "ok"})
        return _json({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, 503)

    async def _props(self, _: web.Request) -> web.Response:
        self.calls.append("GET /props")
        caps = {"supports_tools": self.tools, "supports_tool_calls": self.tools, "supports_system_role": True}
        return _json(
            {
                "default_generation_settings": {"n_ctx": self.context},
                "total_slots": len(self.slots),
                "model_alias": MODEL,
                "model_path": MODEL,
                "chat_template": "{{ tools }}" if self.tools else "",
                "chat_template_caps": caps,
            }
        )

    async def _slots(self, _: web.Request) -> web.Response:
        self.calls.append("GET /slots")
        return _json([self._slot_said(number, slot) for number, slot in enumerate(self.slots)])

    def _slot_said(self, number: int, slot: Slot) -> Message:
        said: Message = {"id": number, "n_ctx": self.context, "speculative": False, "is_processing": slot.busy is not None}
        if slot.tokens:
            decoded = 0 if slot.busy is None else slot.busy.decoded
            said |= {"n_prompt_tokens": len(slot.tokens) - decoded, "next_token": [{"n_decoded": decoded}]}
        return said

    async def _models(self, _: web.Request) -> web.Response:
        self.calls.append("GET /v1/models")
        one = {"id": MODEL, "object": "model", "created": 0, "owned_by": "llamacpp", "meta": {"n_ctx": self.context}}
        return _json({"object": "list", "data": [one]})

    async def _metrics(self, _: web.Request) -> web.Response:
        self.calls.append("GET /metrics")
        busy = sum(slot.busy is not None for slot in self.slots)
        waiting = sum(served.slot is None and not served.end for served in self.requests)
        return web.Response(text=f"llamacpp:requests_processing {busy}\nllamacpp:requests_deferred {waiting}\n")

    async def _count(self, request: web.Request) -> web.Response:
        return _json({"input_tokens": len(tokens_of(prompt_of(await request.json())))})

    async def _slot(self, request: web.Request) -> web.Response:
        number, action = int(request.match_info["slot"]), request.query.get("action", "")
        self.calls.append(f"POST /slots/{number}?action={action}")
        name = str((await request.json()).get("filename", "")) if request.can_read_body else ""
        if self.save_path is None:
            return _error(501, "This server does not support slots action. Start it with `--slot-save-path`", "not_supported_error")
        if action != "erase" and ("/" in name or not name):
            return _error(400, "Invalid filename", "invalid_request_error")
        async with self._turn:
            await self._turn.wait_for(lambda: self.slots[number].busy is None)
        slot = self.slots[number]
        if action == "save":
            self.saved[name] = list(slot.tokens)
            (self.save_path / name).write_text(json.dumps(slot.tokens))
            return _json(
                {"id_slot": number, "filename": name, "n_saved": len(slot.tokens), "n_written": (self.save_path / name).stat().st_size}
            )
        if action == "restore":
            try:
                slot.tokens = json.loads((self.save_path / name).read_text())
            except OSError:
                why = "Unable to restore slot: No available space in KV cache or invalid slot save file"
                return _error(400, why, "invalid_request_error")
            return _json({"id_slot": number, "filename": name, "n_restored": len(slot.tokens)})
        slot.tokens = []
        return _json({"id_slot": number, "n_erased": 0})

    # Completions ----------------------------------------------------------------------------------------------------------------------

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        protocol = request.protocol
        if protocol not in self._connections:
            self._connections.append(protocol)
        body = await request.json()
        transport = request.transport
        assert transport is not None
        if self.hang_up_next or protocol in self._spent:
            self.hang_up_next = max(0, self.hang_up_next - 1)
            transport.close()
            raise asyncio.CancelledError
        served = Served(request.path, body, dict(request.headers), self._connections.index(protocol), tokens_of(prompt_of(body)))
        self.requests.append(served)
        if len(served.prompt) >= self.context:
            served.end = "error"
            why = f"request ({len(served.prompt)} tokens) exceeds the available context size ({self.context} tokens), try increasing it"
            shape = {"code": 400, "message": why, "type": "exceed_context_size_error"}
            refused = _json({"error": shape | {"n_prompt_tokens": len(served.prompt), "n_ctx": self.context}}, 400)
            refused.force_close()
            return refused
        if not body.get("stream"):
            return await self._whole(served)
        return await self._streamed(request, served)

    async def _whole(self, served: Served) -> web.StreamResponse:
        """Goes on to its end, whether anybody listens or not."""
        said: list[tuple[str, int, str]] = []

        async def run() -> None:
            async for piece in self._decoded(served):
                said.append(piece)

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)
        answer = self.answer(served)
        if served.end == "error":
            return _error(500, answer.error, "server_error")
        return _json(_whole_message(served, said, _finish(answer, served)))

    async def _streamed(self, request: web.Request, served: Served) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Server": "llama.cpp", "Content-Type": "text/event-stream", "Keep-Alive": "timeout=5, max=100"}
        )
        response.enable_chunked_encoding()
        transport = request.transport
        assert transport is not None
        shape = _AnthropicEvents(served) if served.path == "/v1/messages" else _ChatEvents(served)
        async with contextlib.aclosing(self._decoded(served)) as pieces:
            began = False
            async for piece in pieces:
                if not began:
                    await response.prepare(request)
                    await response.write(shape.begin())
                    began = True
                await response.write(shape.piece(piece))
        if not began:
            await response.prepare(request)
            await response.write(shape.begin())
        answer = self.answer(served)
        if served.end == "cut":
            transport.abort()
            raise asyncio.CancelledError
        await response.write(shape.error(answer.error) if served.end == "error" else shape.end(_finish(answer, served)))
        await response.write_eof()
        if self.closes_late:
            self._spent.add(request.protocol)
        else:
            transport.close()
        return response

    async def _decoded(self, served: Served) -> AsyncGenerator[tuple[str, int, str], None]:
        """The pieces of the answer; holds a slot meanwhile."""
        slot = await self._taken(served)
        served.cached = min(common(slot.tokens, served.prompt), len(served.prompt) - 1)
        slot.tokens = list(served.prompt)
        try:
            await self._heedless(self.prompts.passed())
            answer, most = self.answer(served), served.body.get("max_tokens", 10**9)
            for piece in answer.pieces:
                if served.decoded >= most or len(slot.tokens) >= self.context:
                    served.end = "length"
                    break
                await self.tokens.passed()
                served.decoded += 1
                slot.tokens.append(piece[2])
                yield piece
            served.end = "error" if answer.error else "cut" if answer.cut else served.end or "done"
        finally:
            served.end = served.end or "hung up"
            slot.busy = None
            async with self._turn:
                self._turn.notify_all()

    async def _heedless(self, waiting: Any) -> None:
        """Wait, and notice a hang-up only afterwards."""
        task = asyncio.ensure_future(waiting)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await task
            raise

    async def _taken(self, served: Served) -> Slot:
        wanted = served.body.get("id_slot", -1) if served.path != "/v1/messages" else -1
        async with self._turn:
            try:
                await self._turn.wait_for(lambda: self._free(wanted))
            except asyncio.CancelledError:
                served.end = "hung up"
                raise
            number = self._chosen(served, wanted)
            slot = self.slots[number]
            self._used += 1
            slot.busy, slot.used, served.slot = served, self._used, number
            self._turn.notify_all()
        return slot

    def _free(self, wanted: int) -> bool:
        return any(slot.busy is None for number, slot in enumerate(self.slots) if wanted in (-1, number))

    def _chosen(self, served: Served, wanted: int) -> int:
        if wanted != -1:
            return wanted
        free = [number for number, slot in enumerate(self.slots) if slot.busy is None]
        best = max(free, key=lambda number: common(self.slots[number].tokens, served.prompt))
        if common(self.slots[best].tokens, served.prompt) > _SIMILARITY * len(served.prompt):
            return best
        return min(free, key=lambda number: self.slots[number].used)


def _finish(answer: Answer, served: Served) -> str:
    return answer.finish or ("length" if served.end == "length" else "tool_calls" if answer.calls else "stop")


_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class _ChatEvents:
    """Server-sent events of a chat completion."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._with_usage = bool((served.body.get("stream_options") or {}).get("include_usage"))

    def _event(self, choices: list[Message], **more: Any) -> bytes:
        frame = {
            "choices": choices,
            "created": 1,
            "id": self._id,
            "model": MODEL,
            "system_fingerprint": "b0",
            "object": "chat.completion.chunk",
        }
        return f"data: {json.dumps(frame | more)}\n\n".encode()

    def _delta(self, delta: Message, finish: str | None = None) -> bytes:
        return self._event([{"finish_reason": finish, "index": 0, "delta": delta}])

    def begin(self) -> bytes:
        return self._delta({"role": "assistant", "content": None})

    def piece(self, piece: tuple[str, int, str]) -> bytes:
        match piece:
            case "thinking", _, text:
                return self._delta({"reasoning_content": text})
            case "text", _, text:
                return self._delta({"content": text})
            case "call", index, name:
                call = {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": ""}}
                return self._delta({"tool_calls": [call]})
        return self._delta({"tool_calls": [{"index": piece[1], "function": {"arguments": piece[2]}}]})

    def end(self, finish: str) -> bytes:
        last = self._delta({}, finish)
        usage = self._event([], usage=_usage(self._served), timings={"cache_n": self._served.cached}) if self._with_usage else b""
        return last + usage + b"data: [DONE]\n\n"

    def error(self, why: str) -> bytes:
        return f"data: {json.dumps({'error': {'code': 500, 'message': why, 'type': 'server_error'}})}\n\n".encode()


class _AnthropicEvents:
    """Server-sent events of a message."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._index = -1
        self._kind = ("", 0)

    def _event(self, name: str, **more: Any) -> bytes:
        return f"event: {name}\ndata: {json.dumps({'type': name} | more)}\n\n".encode()

    def begin(self) -> bytes:
        return self._event("message_start", message=_anthropic_shape(self._served, [], None, 0))

    def piece(self, piece: tuple[str, int, str]) -> bytes:
        kind, index, text = piece
        out = b""
        if (kind if kind != "arguments" else "call", index) != self._kind:
            out = self._stop()
            self._index += 1
            self._kind = (kind, index)
            block = {
                "thinking": {"type": "thinking", "thinking": "", "signature": ""},
                "text": {"type": "text", "text": ""},
                "call": {"type": "tool_use", "id": f"call_{index}", "name": text, "input": {}},
            }[kind]
            out += self._event("content_block_start", index=self._index, content_block=block)
        match kind:
            case "thinking":
                delta = {"type": "thinking_delta", "thinking": text}
            case "text":
                delta = {"type": "text_delta", "text": text}
            case "call":
                return out
            case _:
                delta = {"type": "input_json_delta", "partial_json": text}
        return out + self._event("content_block_delta", index=self._index, delta=delta)

    def _stop(self) -> bytes:
        return self._event("content_block_stop", index=self._index) if self._index >= 0 else b""

    def end(self, finish: str) -> bytes:
        delta = {"stop_reason": _STOP_REASONS.get(finish, finish), "stop_sequence": None}
        usage = {"output_tokens": self._served.decoded}
        return self._stop() + self._event("message_delta", delta=delta, usage=usage) + self._event("message_stop")

    def error(self, why: str) -> bytes:
        return self._event("error", error={"type": "api_error", "message": why})


def _usage(served: Served) -> Message:
    prompt = len(served.prompt)
    details = {"cached_tokens": served.cached}
    return {
        "completion_tokens": served.decoded,
        "prompt_tokens": prompt,
        "total_tokens": prompt + served.decoded,
        "prompt_tokens_details": details,
    }


def _anthropic_shape(served: Served, content: list[Message], stop: str | None, output: int) -> Message:
    usage = {"cache_read_input_tokens": served.cached, "input_tokens": len(served.prompt) - served.cached, "output_tokens": output}
    head = {"id": "chatcmpl-1", "type": "message", "role": "assistant", "content": content, "model": MODEL}
    return head | {"stop_reason": stop, "stop_sequence": None, "usage": usage}


def _whole_message(served: Served, said: list[tuple[str, int, str]], finish: str) -> Message:
    text = "".join(piece[2] for piece in said if piece[0] == "text")
    thinking = "".join(piece[2] for piece in said if piece[0] == "thinking")
    calls = [
        (piece[2], "".join(other[2] for other in said if other[:2] == ("arguments", piece[1]))) for piece in said if piece[0] == "call"
    ]
    if served.path == "/v1/messages":
        content: list[Message] = [{"type": "thinking", "thinking": thinking, "signature": ""}] if thinking else []
        content += [{"type": "text", "text": text}] if text else []
        content += [
            {"type": "tool_use", "id": f"call_{n}", "name": name, "input": json.loads(args or "{}")} for n, (name, args) in enumerate(calls)
        ]
        return _anthropic_shape(served, content, _STOP_REASONS.get(finish, finish), served.decoded)
    message: Message = {"role": "assistant", "content": text or None}
    if thinking:
        message["reasoning_content"] = thinking
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": args}} for n, (name, args) in enumerate(calls)
        ]
    choice = {"finish_reason": finish, "index": 0, "message": message}
    head = {"id": "chatcmpl-1", "created": 1, "model": MODEL, "system_fingerprint": "b0", "object": "chat.completion"}
    return head | {"choices": [choice], "usage": _usage(served), "timings": {"cache_n": served.cached}}


def _json(shape: object, status: int = 200) -> web.Response:
    headers = {"Server": "llama.cpp", "Keep-Alive": "timeout=5, max=100"}
    return web.Response(body=json.dumps(shape).encode(), status=status, content_type="application/json", charset="utf-8", headers=headers)


def _error(status: int, why: str, kind: str) -> web.Response:
    return _json({"error": {"code": status, "message": why, "type": kind}}, status)


@asynccontextmanager
async def scripted(
    slots: int = 2, context: int = 4096, save_path: Path | None = None, *, tools: bool = True, port: int = 0
) -> AsyncIterator[ScriptedEngine]:
    """A running engine in this loop."""
    engine = ScriptedEngine(slots, context, save_path, tools=tools)
    runner = await engine.start(port)
    try:
        yield engine
    finally:
        engine.close()
        await runner.cleanup()


async def _serve(port: int, slots: int, context: int, save_path: Path | None) -> None:
    async with scripted(slots, context, save_path, port=port) as engine:
        print(f"listening on {engine.url}", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve as a process, with llama-server's options; `-c` is the context of all slots together, as there."""
    options = argparse.ArgumentParser(allow_abbrev=False)
    options.add_argument("--port", type=int, default=8080)
    options.add_argument("-np", "--parallel", type=int, default=4)
    options.add_argument("-c", "--ctx-size", type=int, default=16384)
    options.add_argument("--slot-save-path", type=Path, default=None)
    said, _ = options.parse_known_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(said.port, said.parallel, said.ctx_size // said.parallel, said.slot_save_path))


if __name__ == "__main__":
    main()
