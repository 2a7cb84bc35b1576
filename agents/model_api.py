"""One request to the model: its stream, and every way in which it can fail. A failure is a value, since the loop decides what comes of it.

The gateway holds requests and tries again before the first byte. What still comes through is waited out here when time can mend it: 429,
529 and other server errors, connections that break, streams that are cut off. The wait is what `Retry-After` says, else 0.5 s, 1 s, 2 s and
so on up to a minute, and PATIENCE_S altogether in a row.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anthropic
import httpx2

from agents.conversation import Settings
from supervisor.gateway.admission.types import Usage
from supervisor.host.clock import Clock

PATIENCE_S = 30 * 60.0
FIRST_WAIT_S, WAIT_MAX_S = 0.5, 60.0
_SILENCE_S = 30 * 60.0
"""Longest time without a byte: the gateway holds a request for up to 25 minutes."""
PASSING = frozenset({"rate_limit_error", "overloaded_error", "api_error", "timeout_error"})
"""Types of errors that time mends. Inside a stream the status says nothing."""
_SPENT = "enforced_spend_limit_reached"
_TOO_LONG = ("prompt is too long", "context length", "context size", "context window", "maximum context", "too many tokens")
"""As Anthropic, vLLM, llama.cpp and others say it."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. `content` is the API's blocks; `cut` are those of them that `max_tokens` or a broken input cut off."""

    id: str
    model: str
    content: list[dict[str, Any]]
    stop_reason: str
    usage: Usage

    def message(self, usage: Mapping[str, int]) -> dict[str, Any]:
        """As the API would give it whole."""
        shape = {"id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": self.content}
        return {**shape, "stop_reason": self.stop_reason, "stop_sequence": None, "usage": dict(usage)}


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer. `usage` is what the provider had counted by then."""

    message: str
    status: int | None = None
    passing: bool = False
    """Time can mend it."""
    too_long: bool = False
    """The request had more tokens or bytes than the model takes."""
    wait_s: float | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(slots=True)
class Draft:
    """An answer as far as it came."""

    id: str = ""
    model: str = ""
    content: list[dict[str, Any]] = field(default_factory=list)
    inputs: dict[int, list[str]] = field(default_factory=dict)
    stop_reason: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    ended: bool = False

    @property
    def usage(self) -> Usage:
        """What the provider said last."""
        kinds = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        return Usage(*(max(0, self.counts.get(kind, 0)) for kind in kinds))

    def take(self, event: Mapping[str, Any], say: Callable[[str], None]) -> None:
        """One event of the stream. Events and deltas of kinds that nobody knows yet are left out."""
        match event["type"]:
            case "message_start":
                self.id, self.model = str(event["message"]["id"]), str(event["message"]["model"])
                self._count(event["message"].get("usage"))
            case "content_block_start":
                self.content.append(dict(event["content_block"]))
            case "content_block_delta":
                self._delta(int(event["index"]), event["delta"], say)
            case "message_delta":
                self.stop_reason = str(event["delta"].get("stop_reason") or "")
                self._count(event.get("usage"))
            case "message_stop":
                self.ended = True

    def _delta(self, place: int, delta: Mapping[str, Any], say: Callable[[str], None]) -> None:
        block = self.content[place]
        match delta["type"]:
            case "text_delta":
                block["text"] += delta["text"]
                say(delta["text"])
            case "input_json_delta":
                self.inputs.setdefault(place, []).append(delta["partial_json"])
            case "thinking_delta":
                block["thinking"] += delta["thinking"]
            case "signature_delta":
                block["signature"] = delta["signature"]

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        self.counts |= {kind: count for kind, count in (usage or {}).items() if isinstance(count, int)}

    def reply(self) -> Reply:
        """The whole answer. The input of a tool call that is not whole JSON becomes `{}` and its stop reason `max_tokens`."""
        for place, pieces in self.inputs.items():
            try:
                self.content[place]["input"] = json.loads("".join(pieces) or "{}")
            except ValueError:
                self.content[place]["input"], self.stop_reason = {}, "max_tokens"
        content = [block for block in self.content if block["type"] != "text" or block["text"]]
        return Reply(self.id, self.model, content, self.stop_reason, self.usage)


def client(settings: Settings, transport: httpx2.AsyncBaseTransport | None = None) -> anthropic.AsyncAnthropic:
    """The SDK's client, which tries nothing again by itself. To be closed."""
    timeout = httpx2.Timeout(_SILENCE_S, connect=10.0)
    # Reading the certificates that no plain connection needs takes 200 ms. Proxies are for hosts outside, which the gateway is not.
    plain = settings.base_url.startswith("http://")
    options: dict[str, Any] = {"verify": False, "trust_env": False} if plain else {}
    return anthropic.AsyncAnthropic(
        base_url=settings.base_url,
        auth_token=settings.token or None,
        api_key=settings.key or None,
        max_retries=0,
        timeout=timeout,
        http_client=anthropic.DefaultAsyncHttpxClient(timeout=timeout, transport=transport, **options),
        open_telemetry=False,
    )


class Api:
    """The model's provider, usually through the gateway."""

    def __init__(self, settings: Settings, clock: Clock, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._clock = clock
        self._client = client(settings, transport)
        self.draft = Draft()
        """The newest answer as far as it came, whoever cut it off."""

    async def close(self) -> None:
        """Give the connections back."""
        await self._client.close()

    async def ask(self, body: Mapping[str, Any], say: Callable[[str], None], retry: Callable[[Failure, float], None]) -> Reply | Failure:
        """The answer to `body`, or why there is none, after whatever patience could do. `say` gets the text as it comes, `retry` what went
        wrong and how many seconds are waited before the next try. May be cancelled at any moment."""
        began, wait_s = self._clock.monotonic(), FIRST_WAIT_S
        while True:
            answer = await self._once(body, say)
            if isinstance(answer, Reply) or not answer.passing:
                return answer
            this_s = wait_s if answer.wait_s is None else answer.wait_s
            if self._clock.monotonic() - began + this_s > PATIENCE_S:
                return answer
            retry(answer, this_s)
            await asyncio.sleep(this_s)
            wait_s = min(wait_s * 2, WAIT_MAX_S)

    async def _once(self, body: Mapping[str, Any], say: Callable[[str], None]) -> Reply | Failure:
        draft = self.draft = Draft()
        try:
            async with self._events(body) as events:
                async for event in events:
                    draft.take(event.to_dict(), say)
        except anthropic.APIStatusError as error:
            return status_failure(error, draft.usage)
        except (anthropic.APIConnectionError, httpx2.TransportError) as error:
            return Failure(f"the connection broke: {error.__cause__ or error}", passing=True, usage=draft.usage)
        except (anthropic.APIError, ValueError, KeyError, IndexError, TypeError) as error:
            return Failure(f"the answer cannot be read: {type(error).__name__}: {error}", passing=True, usage=draft.usage)
        if not draft.ended or not draft.id:
            return Failure("the stream ended before the answer did", passing=True, usage=draft.usage)
        return draft.reply()

    @contextlib.asynccontextmanager
    async def _events(self, body: Mapping[str, Any]) -> AsyncIterator[Any]:
        stream = await self._client.messages.create(**body, stream=True)
        try:
            yield stream
        finally:
            await stream.close()


def status_failure(error: anthropic.APIStatusError, usage: Usage) -> Failure:
    """What a refusal says, with a status or inside a stream that began well."""
    said = error.body.get("error", {}) if isinstance(error.body, dict) else {}
    said = said if isinstance(said, dict) else {"message": said}
    kind, words = str(said.get("type", "")), str(said.get("message") or error.message)
    details = said.get("details")
    status = error.status_code if error.status_code >= 400 else None
    headers = error.response.headers if status else {}
    spent = isinstance(details, dict) and details.get("error_code") == _SPENT
    passing = kind in PASSING if status is None else status in (408, 409, 429) or status >= 500
    return Failure(
        message=f"{status or 'in the stream'}: {kind + ': ' if kind else ''}{words}",
        status=status,
        passing=passing and not spent and headers.get("x-should-retry") != "false",
        too_long=status == 413 or (status == 400 and any(sign in words.lower() for sign in _TOO_LONG)),
        wait_s=_seconds(headers.get("retry-after")),
        usage=usage,
    )


def _seconds(text: str | None) -> float | None:
    """A `Retry-After` in seconds. Its other form, a date, is rare and left to our own waits."""
    try:
        return min(max(0.0, float(text or "")), PATIENCE_S)
    except ValueError:
        return None
