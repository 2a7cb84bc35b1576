"""Answer a request by the kept answer to the same one, and send requests that are the same at one moment once.

    serve -> may it be? -> the same is under way: wait for its answer -> is one kept? -> forward, and keep what the client gets

Whoever asks is charged, and waits its turn. The others, and all who come later, are not: the account has rows of their own kind for them.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from supervisor.gateway.account import queries
from supervisor.gateway.account.charges import KEPT, OpenRow, SettledRow
from supervisor.gateway.admission.types import Usage
from supervisor.gateway.proxy.forward import ProxiedRequest, RequestContext, Sending, forward
from supervisor.gateway.wire.headers import CLIENT_AUTH_HEADERS
from supervisor.gateway.wire.requests import Asked, BadRequest, Endpoint, names_input, parsed
from supervisor.host import files, untrusted_fs
from supervisor.kernel import codec
from supervisor.kernel.gateway_settings import AnswerCache, Api, Upstream

# Repeatable
# ----------
# Which requests may be answered by the answer to an earlier one: all that their answer depends on is in them.
#
# The patterns name what is known to be so. A request with a member or a tool that they do not know is never answered by a kept answer.


_MEMBERS = re.compile(
    "chat_template_kwargs|contents|frequency_penalty|function_call|functions|generationConfig|grammar|include|input|instructions|"
    "json_schema|logit_bias|logprobs|max_completion_tokens|max_output_tokens|max_tokens|messages|metadata|min_p|model|n|output_config|"
    "output_format|parallel_tool_calls|presence_penalty|prompt_cache_key|reasoning|reasoning_effort|repeat_penalty|response_format|"
    "safetySettings|safety_identifier|seed|service_tier|stop|stop_sequences|store|stream|stream_options|system|systemInstruction|"
    "temperature|text|thinking|toolConfig|tool_choice|tools|top_k|top_logprobs|top_p|truncation|user|verbosity"
)
"""Members of a request. None of them names what the provider keeps, or lets it look elsewhere."""
_TOOL_MEMBERS = re.compile("cache_control|custom|description|format|function|functionDeclarations|input_schema|name|parameters|strict|type")
_TOOLS = (None, "custom", "function")
"""Types of tools that the client runs: what they gave is in the next request."""
_ADDRESS = re.compile(rb'"\w*ur[il]":"(?!data:)', re.IGNORECASE)
"""A part that the provider fetches, in JSON without blanks."""
_SEARCHES = re.compile("search|online|sonar|compound")
"""In the names of models that look into the web by themselves."""
_ENDS = {Endpoint.MESSAGES: b"message_stop", Endpoint.CHAT: b"[DONE]"}
"""What the end of a whole stream holds, where the usage comes before the last event."""
_END_BYTES = 200
_SAYS_NOTHING = re.compile(
    "host|connection|keep-alive|user-agent|expect|accept|accept-encoding|content-length|content-type|transfer-encoding|traceparent|"
    "tracestate|idempotency-key|x-stainless-.*|x-request-id|x-client-request-id|x-claude-code-session-id|session[-_]id|"
    + "|".join(CLIENT_AUTH_HEADERS),
    re.IGNORECASE,
)
"""Headers that change no answer. All others are a part of the request."""


def canonical(asked: Asked, body: bytes, *, marked: bool) -> bytes | None:
    """Return the body without needless blanks and escapes; None if the request may not be answered by a kept answer.

    The order of members stays: a model reads that of a tool's parameters. `marked`: its task says that it is `repeatable`.
    """
    try:
        values = {name: one.value for name, one in parsed(body, once=True)[1].items()}
        config = values.get("generationConfig", {}) if asked.api is Api.GEMINI else values
        is_cold = config.get("temperature") == 0
        tools = values.get("tools") or ()
        is_known = all(map(_MEMBERS.fullmatch, values)) and all(map(_TOOL_MEMBERS.fullmatch, chain(*tools)))
        is_known = is_known and all(tool.get("type") in _TOOLS for tool in tools)
    except (BadRequest, TypeError, AttributeError):  # a member comes twice, and the provider might take the other one; or it is no request
        return None
    store = values.get("store", asked.endpoint is Endpoint.RESPONSES)
    text = json.dumps(values, separators=(",", ":")).encode()
    return text if (is_cold or marked) and is_known and store is False and not (_ADDRESS.search(text) or names_input(text)) else None


# Shelf
# -----
# The files: one for each answer, named by the key of its request. A file that is not as it was written is no answer.


class Kept(NamedTuple):
    """An answer."""

    content_type: str
    at: float
    """When it ended; wall clock."""
    usage: Usage
    cost_usd: float | None
    """None: its price is not known."""
    body: bytes
    """What its client got."""


_PROOF_BYTES = 32


@dataclass(slots=True)
class Shelf:
    """The files below one private directory. Use it from one thread."""

    place: Path
    secret: bytes
    settings: AnswerCache
    size: int = 0
    """Bytes of all files, and of those that were replaced or removed since `trim` looked."""

    def read(self, key: str, now: float) -> Kept | None:
        """Return the answer; None if there is none, its file was changed, or it is too old. `now` is of the wall clock."""
        try:
            with untrusted_fs.open_plain(self.place / key) as file:
                sealed = file.read()
                os.utime(file.fileno())
        except OSError:
            return None
        data = sealed[_PROOF_BYTES:]
        if not hmac.compare_digest(sealed, self._sealed(key, data)):
            return None
        head, _, body = data.partition(b"\n")
        content_type, at, usage, cost_usd = json.loads(head)
        return Kept(content_type, at, Usage(**usage), cost_usd, body) if at > now - self.settings.ttl_s else None

    def write(self, key: str, kept: Kept) -> None:
        """Keep it. Raises DiskFull, ToolFailed, Refused, OSError."""
        sealed = self._sealed(key, codec.dumps(kept[:-1]).encode() + b"\n" + kept.body)
        files.private_dir(self.place)
        files.atomic_write(self.place / key, sealed, durable=False)
        self.size += len(sealed)
        if self.size > self.settings.max:
            self.trim()

    def trim(self) -> None:
        """Remove what was not used for longest, down to nine tenths of `max`. Raises OSError."""
        states = sorted((path.lstat().st_mtime, path.lstat().st_size, path) for path in self.place.glob("*"))
        self.size = sum(size for _, size, _ in states)
        for _, size, path in states:
            if self.size > 0.9 * self.settings.max:
                path.unlink()
                self.size -= size

    def _sealed(self, key: str, data: bytes) -> bytes:
        """Return the data behind a proof that it was written for this key."""
        return hmac.digest(self.secret, b"answer " + key.encode() + data, "sha256") + data


# Flights
# -------


@dataclass(slots=True)
class Flight:
    """A request that is under way, for all who ask the same meanwhile."""

    sources: list[tuple[Upstream, str]]
    """The upstreams, each with its key, of which the request's key was made."""
    most: int
    """Bytes of an answer that is kept."""
    landed: asyncio.Future[Kept | None] = field(default_factory=asyncio.Future)
    """Its whole answer; None: there is none, and the next one asks by itself."""
    body: bytearray = field(default_factory=bytearray)

    def take(self, data: bytes) -> None:
        """Note what the client gets."""
        if len(self.body) <= self.most:
            self.body += data

    def land(self, sending: Sending, usage: Usage, cost_usd: float | None) -> None:
        """Give the answer, which was served, to all who wait; unless it is not whole, or comes from elsewhere than the key says."""
        answer = sending.answer
        client = sending.client
        asked = sending.call.asked
        body = bytes(self.body)
        if answer is None or client is None or len(body) > self.most or sending.send.fallback or sending.source not in self.sources:
            return
        if answer.final and (not asked.stream or _ENDS.get(asked.endpoint, b"") in body[-_END_BYTES:]):
            self.landed.set_result(Kept(client.headers.get("Content-Type", ""), sending.context.clock.wall(), usage, cost_usd, body))


class Answers:
    """All kept answers. Belongs to one event loop."""

    def __init__(self, context: RequestContext, shelf: Shelf) -> None:
        """Learns what the account says that kept answers saved: blocks."""
        self.shelf = shelf
        self._context = context
        self._saved = context.account.ask(queries.saved)
        self._flights: dict[tuple[str, str], Flight] = {}
        """By key and class: nobody waits for the turn of a class that is less urgent."""
        self._thread = ThreadPoolExecutor(1, "answers")
        """It does one thing after the other: who looks finds what was handed over before."""
        self._thread.submit(shelf.trim).add_done_callback(self._done)

    def shape(self) -> dict[str, Any]:
        """Return what the status page says."""
        if not self.shelf.place.exists():  # a person removed all of them
            self.shelf.size = 0
        return {"bytes": self.shelf.size, **self._saved}

    async def serve(self, call: ProxiedRequest, take: Callable[[int], None]) -> web.StreamResponse:
        """Serve a request that takes tokens. `take` finds room for a kept answer. Raises as `forward` does, and Turned."""
        sources = [found for name in call.way.upstreams if (found := self._context.upstream(name))]
        key = self._key(call, sources)
        if not key:
            return await forward(self._context, call)
        place = key, call.agent.task_class
        while flight := self._flights.get(place):
            if kept := await asyncio.shield(flight.landed):
                return await self._play(call, kept, take)
        flight = self._flights[place] = Flight(sources, self.shelf.settings.answer_max)
        try:
            loop = asyncio.get_running_loop()
            now = self._context.clock.wall()
            if (kept := await loop.run_in_executor(self._thread, self.shelf.read, key, now)) is None:
                return await forward(self._context, call._replace(flight=flight))
            flight.landed.set_result(kept)
            return await self._play(call, kept, take)
        finally:  # from here on whoever asks looks for what was kept
            del self._flights[place]
            if not flight.landed.done():
                flight.landed.set_result(None)
            elif flight.body and (fresh := flight.landed.result()):
                self._thread.submit(self.shelf.write, key, fresh).add_done_callback(self._done)

    def _done(self, work: Future[None]) -> None:
        """What is not kept is asked again, so a failure is said, and no more."""
        if error := work.exception():
            self._context.log.say_seldom(f"answers are not kept: {error}")

    def _key(self, call: ProxiedRequest, sources: list[tuple[Upstream, str]]) -> str:
        """Return a digest of all that the answer depends on; "" if the request may not be answered by a kept answer."""
        body = canonical(call.asked, call.body, marked=call.agent.repeatable)
        if body is None or _SEARCHES.search(call.model) or any(upstream.key.kind == "client" for upstream, _ in sources):
            return ""
        telling = sorted(one for one in call.request.headers.items() if not _SAYS_NOTHING.fullmatch(one[0]))
        served = [(upstream.account, upstream.url, upstream.engine, key) for upstream, key in sources]
        about = (call.agent.project, served, call.asked.api, call.model, call.recognised.path, call.recognised.query, telling)
        return hmac.digest(self.shelf.secret, repr(about).encode() + body, "sha256").hex()

    async def _play(self, call: ProxiedRequest, kept: Kept, take: Callable[[int], None]) -> web.StreamResponse:
        """Give a kept answer, and write down that it was given."""
        body = kept.body
        agent = call.agent
        clock = self._context.clock
        take(len(body))
        for name, more in (("hits", 1), ("tokens", kept.usage.total), ("usd", kept.cost_usd or 0.0)):
            self._saved[name] += more
        row = OpenRow(
            agent=agent.name,
            epoch=agent.epoch,
            model=call.model,
            asked=call.asked.model,
            lane=call.lane,
            upstream=KEPT,
            account=KEPT,
            task_class=agent.task_class,
            at=clock.wall(),
            queued_ms=0.0,
            attempt_no=1,
            bound=kept.usage,
            expected=Usage(),
            bound_usd=kept.cost_usd,
        )
        took_ms = 1000 * (clock.monotonic() - call.arrived_at)
        output = hashlib.sha256(body).hexdigest()
        self._context.account.kept_answer(row, SettledRow(KEPT, Usage(), 200, 0.0, total_ms=took_ms, body=call.body, output_sha256=output))
        client = web.Response(body=body, headers={"Content-Type": kept.content_type, "x-gw-cache": "hit"})
        await client.prepare(call.request)
        await client.write_eof()
        return client
