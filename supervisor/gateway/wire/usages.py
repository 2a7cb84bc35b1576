"""What the providers say that a request took, brought to one form.

Anthropic's `input_tokens` is what was neither read from nor written to its cache; OpenAI's and Gemini's prompt counts hold the cached
tokens as well, so they are taken out. Thinking belongs to the output everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from supervisor.core.gateway.types import Api, Usage
from supervisor.gateway.wire import tiers
from supervisor.gateway.wire.asked import Asked, Endpoint

ABSURD = 20_000_000
"""Tokens. Twice the longest context that any model has been announced with; more is no count."""

_Message = Mapping[str, Any]
_RESPONSE_ENDS = ("response.completed", "response.incomplete", "response.failed")
_ANTHROPIC_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_FIVE_MINUTES, _HOUR = "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"


class Meter:
    """Reads the messages of one response, as they come. A count that makes no sense is not taken, and flagged; what was known stays."""

    def __init__(self, asked: Asked) -> None:
        self.usage: Usage | None = None
        self.began = False
        self.final = False
        self.failed = ""
        self.flags: list[str] = []
        self.price_words = dict(asked.price_words)
        """Words of the request that change its price, or those of the answer where it has them."""
        self._may_cache_hour = asked.may_cache_hour
        self._said: dict[str, int] = {}
        """Anthropic's counts so far: a later message names only those that changed."""
        # Plain functions: its own bound methods would keep it alive until the collector comes.
        self._read: Callable[[Meter, _Message], None] = {
            Api.ANTHROPIC: Meter._anthropic,
            Api.OPENAI: Meter._responses if asked.endpoint in (Endpoint.RESPONSES, Endpoint.COMPACT) else Meter._chat,
            Api.GEMINI: Meter._gemini,
        }[asked.api]

    def read(self, message: object) -> None:
        """One event's data, one element, or the whole of an answer that is no stream."""
        if isinstance(message, dict):
            self._read(self, message)

    def flag(self, name: str) -> None:
        """Keep a doubt for the account, once."""
        if name not in self.flags:
            self.flags.append(name)

    def _anthropic(self, message: _Message) -> None:
        match message.get("type"):
            case "message_start":
                if self.began:
                    self.flag("usage_repeated")
                self._anthropic_usage(_dict(message.get("message")).get("usage"))
            case "message_delta":
                self.final |= self._anthropic_usage(message.get("usage"))
            case "message":
                self.final |= self._anthropic_usage(message.get("usage"))
            case "error":
                self._fail(message.get("error"), "type")

    def _anthropic_usage(self, said: object) -> bool:
        if not isinstance(said, dict) or not (counts := self._anthropic_counts(said)):
            return False
        self._said |= counts
        self.price_words |= {word: value for word, value in tiers.told(Api.ANTHROPIC, said).items() if word != "service_tier"}
        usage = self._anthropic_sum(self._said)
        for extra in _dicts(said.get("iterations")):
            if extra.get("type") == "compaction":  # "not included in the top-level usage", says Anthropic's SDK
                usage += self._anthropic_sum(self._anthropic_counts(extra) or {})
        self._take(usage)
        return True

    def _anthropic_counts(self, said: _Message) -> dict[str, int] | None:
        counts = self._counts(said, _ANTHROPIC_COUNTS)
        split = self._counts(_dict(said.get("cache_creation")), (_FIVE_MINUTES, _HOUR))
        return None if counts is None or split is None else counts | split

    def _anthropic_sum(self, counts: Mapping[str, int]) -> Usage:
        """What is written to the cache, and not said to be for five minutes, is for an hour where the request may have asked for that."""
        given, output, read, written = (counts.get(name, 0) for name in _ANTHROPIC_COUNTS)
        short, hour = counts.get(_FIVE_MINUTES, 0), counts.get(_HOUR, 0)
        written = max(written, short + hour)
        return Usage(given, output, read, written, written - short if self._may_cache_hour else hour)

    def _chat(self, message: _Message) -> None:
        if message.get("error"):
            self._fail(message["error"], "code", "type")
        self.price_words |= tiers.told(Api.OPENAI, message)
        choices = _dicts(message.get("choices"))
        if self._openai_usage(message.get("usage"), "prompt_tokens", "completion_tokens"):
            # Servers that report at every chunk are done when a choice is; the others report once.
            whole = message.get("object") == "chat.completion"
            self._end(whole or not choices or any(choice.get("finish_reason") for choice in choices))

    def _responses(self, message: _Message) -> None:
        kind = message.get("type")
        if kind == "error":
            self._fail(message, "code", "type")
        elif kind in _RESPONSE_ENDS or message.get("object") in ("response", "response.compaction"):
            response = _dict(message.get("response")) if kind in _RESPONSE_ENDS else message
            self.price_words |= tiers.told(Api.OPENAI, response)
            if self._openai_usage(response.get("usage"), "input_tokens", "output_tokens"):
                self._end(True)
            if response.get("status") == "failed" or kind == "response.failed":
                self._fail(response.get("error"), "code", "type")

    def _openai_usage(self, said: object, prompt: str, completion: str) -> bool:
        if not isinstance(said, dict):
            return False
        counts = self._counts(said, (prompt, completion, "total_tokens"))
        details = self._counts(_dict(said.get(f"{prompt}_details")), ("cached_tokens", "cache_write_tokens"))
        thought = self._counts(_dict(said.get(f"{completion}_details")), ("reasoning_tokens",))
        if not counts or details is None or thought is None or prompt not in counts:
            return False
        output = counts.get(completion, 0)
        apart = thought.get("reasoning_tokens", 0)
        if apart and counts.get("total_tokens") == counts[prompt] + output + apart:
            output += apart  # some servers count the thinking beside the completion, and the sum tells
        self._take(self._without_cached(counts[prompt], output, details.get("cached_tokens", 0), details.get("cache_write_tokens", 0)))
        return True

    def _gemini(self, message: _Message) -> None:
        if message.get("error"):
            self._fail(message["error"], "status", "code")
        names = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount", "cachedContentTokenCount")
        said = message.get("usageMetadata")
        if not isinstance(said, dict) or not (counts := self._counts(said, names)):
            return
        self.price_words |= tiers.told(Api.GEMINI, said)
        prompt, candidates, thoughts, tools, cached = (counts.get(name, 0) for name in names)
        self._take(self._without_cached(prompt + tools, candidates + thoughts, cached, 0))
        blocked = _dict(message.get("promptFeedback")).get("blockReason")
        self.final |= bool(blocked) or any(choice.get("finishReason") for choice in _dicts(message.get("candidates")))

    def _without_cached(self, prompt: int, output: int, read: int, written: int) -> Usage:
        if read + written > prompt:
            self.flag("cached_above_input")
            read, written = min(read, prompt), max(0, min(written, prompt - read))
        return Usage(prompt - read - written, output, read, written)

    def _counts(self, said: Mapping[str, Any], names: Iterable[str]) -> dict[str, int] | None:
        """The counts that are there. None when one of them makes no sense: then none of them is believed."""
        counts: dict[str, int] = {}
        for name in names:
            value = said.get(name)
            if value is None:
                continue
            if flaw := _flaw(value):
                self.flag(flaw)
                return None
            counts[name] = int(value)
        return counts

    def _take(self, new: Usage) -> None:
        """Counts are cumulative: a later one replaces the one before. One that fell is not believed."""
        old = self.usage or Usage()
        if new.total - new.output < old.total - old.output:
            self.flag("usage_fell")
            new = replace(old, output=new.output)
        if new.output < old.output:
            self.flag("usage_fell")
            new = replace(new, output=old.output)
        self.usage = new
        self.began = True

    def _end(self, is_final: bool) -> None:
        if self.final and is_final:
            self.flag("usage_repeated")
        self.final |= is_final

    def _fail(self, fault: object, *names: str) -> None:
        said = [str(_dict(fault).get(name)) for name in names if _dict(fault).get(name)]
        self.failed = self.failed or (said[0][:100] if said else "error")


def _flaw(value: object) -> str:
    """What is wrong with a count; empty for nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "usage_not_a_number"
    if not -ABSURD <= value <= ABSURD or value != int(value):
        return "usage_absurd"
    return "usage_negative" if value < 0 else ""


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
