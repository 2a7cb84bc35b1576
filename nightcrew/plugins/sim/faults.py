"""Faults of the simulated provider: which request meets which, and when."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter

from nightcrew.plugins.sim.settings import read, shell_call

# Faults
# ------
# Faults on request: which requests, how often, and what goes wrong (or is scripted) with them.
#
# As JSON, a fault is an object with any of `Fault`'s fields; `POST /sim/faults` takes a list of them. For a request the first fault
# in the list that matches and has times left decides alone, so a list of faults with `times: 1` is a script for successive
# requests.


Wire = Literal["", "no_answer", "mid_headers", "length_short", "length_long", "no_chunk_end", "gzip_bomb"]
Then = Literal["", "cut", "error", "silence", "pings"]
Manner = Literal["", "bytes", "split", "crlf", "comments", "big_line"]
UsageFault = Literal["", "missing", "negative", "duplicated", "larger"]
Reason = Literal["", "spend_cap", "window"]
BatchFault = Literal["", "expired", "canceled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. The first group of fields says for whom and how often; all others are what happens, and may be combined."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}

    api: str = ""
    """`anthropic`, `count_tokens`, `chat`, `responses`, `gemini`, `batches` (their routes) or `batch` (one request of one); empty: any."""
    model: str = ""
    """Part of the model's name."""
    key: str = ""
    """The API key."""
    contains: str = ""
    """Text that the body must contain."""
    times: int | None = None
    """How often at most; None: always."""
    probability: float = 1.0

    status: int = 0
    """Answer with this status in the API's own error shape; 0: serve the request."""
    reason: Reason = ""
    """What a 429 is about: the rate (empty), the spend cap, or the window of a subscription, which opens again after
    `retry_after` seconds. OpenAI says the last in its body; for Anthropic give the headers."""
    message: str = ""
    """Instead of the error's own words."""
    retry_after: str | None = None
    """The header's text as it is; `date:30` becomes the HTTP date 30 s from now; None: no header."""
    headers: Mapping[str, str | None] = field(default_factory=dict)
    """Set in the answer, after all others; None takes one away."""

    delay_s: float = 0.0
    """Silence before the headers."""
    hold: str = ""
    """The answer waits, before its headers, until this name is released."""

    wire: Wire = ""
    """Cut before the first byte or amid the headers; a Content-Length too small or too large; no last chunk; a gzip bomb."""
    then: Then = ""
    """What happens after `after` events: cut, an error event, silence or endless pings."""
    after: int = 0
    error_status: int = 529
    """What the error event is about."""
    for_s: float | None = None
    """How long the silence or the pings last before the stream goes on; None: until the client leaves."""
    manner: Manner = ""
    """How a stream is written: one byte a write; writes that split UTF-8 characters; CRLF; comments between events; one line of 5 MB."""
    usage: UsageFault = ""
    """Usage that is left out, below zero, said twice, or ten times as much output as was produced."""

    batch: BatchFault = ""
    """What becomes of a request of a batch."""
    text: str | None = None
    """The answer's exact text."""
    tool: str = ""
    """The answer calls this tool (`tool_use`, `tool_calls`, `function_call`, `functionCall`) ..."""
    tool_input: Mapping[str, Any] | str = field(default_factory=dict)
    """... with this input. For the Responses API a text makes it a call of a custom tool."""
    more_tools: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """Names and inputs of further calls in the same answer; Anthropic only."""
    command: str = ""
    """Only requests that offer a tool for commands; the answer calls it, whatever it is called, with this one."""
    stop: str = ""
    """The stop reason, whatever the answer holds; Anthropic only."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    """The whole input and the output, instead of what was counted."""

    @staticmethod
    def from_json(given: Any) -> Fault:
        """Read one. Raises ValueError, which names the field that does not exist or the value that it cannot have."""
        return read(_READER, given)


_READER = TypeAdapter(Fault)
NO_FAULT = Fault()


@dataclass(slots=True)
class _Rule:
    fault: Fault
    done: int = 0

    def takes(self, rng: random.Random) -> bool:
        """Tell whether it is this fault's turn, of a request that matches."""
        is_due = self.fault.times is None or self.done < self.fault.times
        return is_due and (self.fault.probability >= 1 or rng.random() < self.fault.probability)


class FaultBook:
    """The faults that are in force, in order."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._rules: list[_Rule] = []

    def add(self, faults: Iterable[Fault]) -> None:
        """Put them behind those that are there."""
        self._rules += [_Rule(fault) for fault in faults]

    def clear(self) -> None:
        """Drop all of them."""
        self._rules.clear()

    def done(self) -> list[int]:
        """Return how often each one struck, in order."""
        return [rule.done for rule in self._rules]

    def choose(self, api: str, model: str, key: str, body: bytes) -> Fault:
        """Return the fault of this request; the first rule that matches and whose turn it is decides."""

        def matches(fault: Fault) -> bool:
            return (
                fault.api in ("", api)
                and fault.model in model
                and fault.key in ("", key)
                and fault.contains.encode() in body
                and (not fault.command or shell_call(json.loads(body), fault.command) is not None)
            )

        for rule in self._rules:
            if matches(rule.fault) and rule.takes(self._rng):
                rule.done += 1
                return rule.fault
        return NO_FAULT
