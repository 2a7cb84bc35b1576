"""What every dialect is given and gives back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from nightcrew.plugins.sim.faults import Reason
from supervisor.gateway.admission.types import Usage


@dataclass(frozen=True, slots=True)
class Ask:
    """One request for a completion."""

    model: str
    stream: bool
    max_tokens: int | None
    body: Mapping[str, Any]
    array: bool = False
    """Gemini: the stream is a JSON array instead of events."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The answer wants a tool run. `input` is a text for a custom tool of the Responses API."""

    name: str
    input: Mapping[str, Any] | str

    @property
    def arguments(self) -> str:
        """The input as the API's JSON text."""
        return self.input if isinstance(self.input, str) else json.dumps(self.input, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """What will be said. `chunks` are the pieces of its text, one an event; `chunk_tokens` what each takes to produce."""

    id: str
    created: int
    """Seconds since 1970."""
    chunks: tuple[str, ...]
    chunk_tokens: tuple[int, ...]
    tool: ToolCall | None
    more_tools: tuple[ToolCall, ...]
    """Further calls beside `tool`."""
    stop: str
    """The stop reason that was asked for; empty: the API's own."""
    cut_short: bool
    """It ends because `max_tokens` was reached."""
    usage: Usage | None
    """As it is reported; None: not at all."""

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.chunks)


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of a stream as it is written. `tokens` were produced with it; `usage`: it carries the final one."""

    data: bytes
    tokens: int = 0
    usage: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that is refused."""

    status: int
    message: str
    reason: Reason = ""
    dimension: str = "tokens"
    limit: float = 0.0
    """Of that dimension, per minute."""
    wait_s: float | None = None
    """Until it would be served; None: not known."""
    opens_at: float = 0.0
    """Of a window that is spent: when it opens again, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """One bucket as the headers show it."""

    limit: float
    remaining: float
    full_in_s: float


class Dialect(Protocol):
    """One API's shapes. All of it is pure."""

    api: str

    def read(self, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Ask:
        """Raises KeyError, TypeError or ValueError for a body that the API would call invalid."""
        ...

    def whole(self, ask: Ask, answer: Answer) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        ...

    def frames(self, ask: Ask, answer: Answer) -> Iterator[Frame]:
        """The events of one that is."""
        ...

    def error(self, failure: Failure, request_id: str) -> dict[str, Any]:
        """The body of a refusal."""
        ...

    def error_frame(self, failure: Failure, request_id: str) -> bytes:
        """The same inside a stream that began with 200."""
        ...

    def ping(self) -> bytes:
        """An event that says nothing."""
        ...

    def limit_headers(self, gauges: Mapping[str, Gauge], wall: float) -> dict[str, str]:
        """What the answer's headers say of the limits; `wall` is the time in seconds since 1970."""
        ...

    def id_headers(self, request_id: str) -> dict[str, str]:
        """The other headers that every answer has."""
        ...


WORDS: Mapping[int, str] = {
    400: "invalid request",
    401: "invalid API key",
    403: "this key may not do that",
    404: "not found",
    413: "request too large",
    429: "rate limit",
    500: "internal error",
    503: "unavailable",
    529: "Overloaded",
}
"""The words of an error that says nothing special."""


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def compact(value: object) -> str:
    """JSON as the providers write it: no spaces, characters as they are."""
    return _ENCODER.encode(value)


def optional_int(value: object) -> int | None:
    """`value` when it is a number.

    Raises:
        TypeError: when it is something else.
    """
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise TypeError(f"not a number: {value!r}")
