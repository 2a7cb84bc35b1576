"""The types of `wire`: what an address names, and what a request asks for."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from supervisor.core.gateway.types import Api


class Endpoint(StrEnum):
    """What is passed on; nothing else is."""

    MESSAGES = "messages"
    COUNT_TOKENS = "count tokens"
    CHAT = "chat"
    RESPONSES = "responses"
    COMPACT = "compact"
    """Makes a long conversation of OpenAI's Responses API short: a model call."""
    EMBEDDINGS = "embeddings"
    """Takes input tokens alone."""
    GENERATE = "generate"
    STREAM_GENERATE = "stream generate"
    BATCHES = "batches"
    """Making one, and the list of them."""
    BATCH = "batch"
    BATCH_RESULTS = "batch results"
    BATCH_CANCEL = "cancel batch"
    MODELS = "models"
    """The list of them, and one of them."""
    PROBE = "probe"
    """`HEAD /` or `HEAD /api/hello`: Claude Code sends one before its first request, without a token, and ignores the answer."""


OF_BATCHES = frozenset({Endpoint.BATCHES, Endpoint.BATCH, Endpoint.BATCH_RESULTS, Endpoint.BATCH_CANCEL})
"""Served by `batches`: what they take is charged when a batch has ended."""
FREE = frozenset({Endpoint.COUNT_TOKENS, Endpoint.MODELS, Endpoint.PROBE})
"""Takes no tokens, so it waits in no queue."""


class BadRequest(Exception):
    """What came is no request of its API. `status` and `why` are for the answer; `why` quotes nothing that was sent."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class Recognised(NamedTuple):
    """An address that is passed on."""

    endpoint: Endpoint
    api: Api | None
    """None while only the headers can tell: the model lists of Anthropic and OpenAI have the same address."""
    path: str
    """As an upstream's root serves it, for example `/v1/messages`; see `target`."""
    query: str = ""
    """What is sent of the query, without the question mark: its known parameters, each as it came."""
    token: str = ""
    """The client's token, when the address carries it: `/a/<token>/...`, or Gemini's `?key=`."""
    model: str = ""
    """The model, when the path names it (Gemini)."""
    batch: str = ""
    """The batch that the path names."""


Span = tuple[int, int]
"""Where a value stands in a body: the first byte, and the one after its last."""


class Asked(NamedTuple):
    """What one request asks for. Text that came from the client is printable and at most 200 characters."""

    api: Api
    endpoint: Endpoint
    model: str = ""
    """As the client named it; empty for `MODELS` and `PROBE`."""
    stream: bool = False
    max_tokens: int | None = None
    """The most output over all choices that were asked for; None when the request sets no limit."""
    session: str = ""
    """The client's own id of its conversation, empty when it sends none."""
    long_context: bool = False
    """It counts against the limit for long contexts."""
    model_at: Span | None = None
    """Where the body names the model, quotes included."""
    usage_edit: tuple[Span, bytes] | None = None
    """What makes an OpenAI chat stream report its usage: put these bytes there. None when there is nothing to add."""
    choices: int = 1
    """Answers that were asked for at once."""
    stored_input: bool = False
    """It refers to input that the provider keeps, so its body does not bound its input."""
    may_cache_hour: bool = False
    """It may have something written to the cache for an hour (Anthropic)."""
    price_words: tuple[tuple[str, str], ...] = ()
    """Its words that change the price, see `tiers`."""

    @property
    def free(self) -> bool:
        """It takes no tokens (`count_tokens`, model lists, the probe), and bypasses the queue."""
        return self.endpoint in FREE
