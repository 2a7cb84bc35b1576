"""What the simulated provider is told: its settings, of which everything has a default, and faults on request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from supervisor.kernel.gateway_settings import Limits

T = TypeVar("T")
LIMITS = Limits(rpm=1000, itpm=80_000, otpm=16_000)
"""As the headers of a live answer of August 2025 said."""


@dataclass(frozen=True, slots=True)
class WindowLimit:
    """A subscription's window: `tokens` of all kinds in every `seconds`, counted from the first request after a reset."""

    name: str
    tokens: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SimSettings:
    """How the provider limits, answers and counts. Tokens are whole, times in seconds, rates per minute unless they say otherwise."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}

    port: int = 0
    """On 127.0.0.1; 0 takes a free one."""
    keys: tuple[str, ...] = ()
    """The only keys it accepts; empty: any that is not empty."""
    needs_key: bool = True
    """Refuse requests without a key; False: they are one more account."""

    limits: Limits = LIMITS
    """Of every key and model class that `classes` does not name."""
    classes: Mapping[str, Limits] = field(default_factory=dict)
    """By model class, as `counting.model_class` names it (`opus-4`, `opus-4/long`, or a model's own name)."""
    burst_s: float = 60.0
    """Seconds of refill that a bucket holds."""
    windows: tuple[WindowLimit, ...] = ()
    """For keys that begin with `sk-ant-oat` (subscriptions): these instead of the buckets' headers."""

    latency_s: float = 0.0
    """Until the first byte. The headers say what is so when they are sent."""
    head_s: float = 0.0
    """The whole head of an answer comes so much later still, and its limit headers say what was so when the request was counted. A refusal
    comes without this delay."""
    tokens_per_s: float | None = None
    """How fast output is produced; None: at once."""
    batch_s: float = 0.0
    """Seconds that it works at a batch, each request for an equal part."""
    output_mean: float = 200.0
    """Mean number of output tokens of an answer that nobody scripted, clamped to what the request allows."""
    output_spread: float = 0.5
    """Sigma of their log-normal distribution; 0: always the mean."""
    seed: int = 1

    cache_min_tokens: int = 1024
    """Shorter prefixes are not cached, by Anthropic's rule for `cache_control` blocks."""
    keep_last: int = 1000
    """Requests that `/sim/stats` tells about."""

    @staticmethod
    def from_json(given: Any) -> SimSettings:
        """Read what `dataclasses.asdict` wrote, or any part of it. Raises ValueError for a key that does not exist."""
        return read(TypeAdapter(SimSettings), given)


def read(reader: TypeAdapter[T], given: Any) -> T:
    """Read a value. Raises ValueError, which names the field that is wrong."""
    try:
        return reader.validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


# Offered tools
# -------------
# The tool for commands among those that a request offers, in any of the APIs' shapes.


SHELLS = ("bash", "run_shell_command", "exec_command", "shell", "exec", "shell_command", "run_command", "execute_command", "terminal")
"""Lower case, the likelier first."""
_FILLED = {"string": "Run it", "boolean": False, "integer": 60_000, "number": 60_000, "array": []}


def shell_call(body: Mapping[str, Any], command: str) -> tuple[str, Mapping[str, Any] | str] | None:
    """The name and the input of the call that runs `command`; None when the request offers no tool for that. Raises nothing."""
    offered = {name.lower(): (name, schema) for name, schema in _tools(body)}
    for shell in SHELLS:
        if shell in offered:
            name, schema = offered[shell]
            return name, _script(command) if schema is None else _input(schema, command)
    return None


def _tools(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    """(name, JSON schema of its input; None: it takes a text) of each tool."""
    items = body.get("input")
    added = [item for item in items if isinstance(item, dict) and "tools" in item] if isinstance(items, list) else []
    for tool in [*_flat(body), *(one for item in added for one in _flat(item))]:
        if isinstance(name := tool.get("name"), str):
            schema = tool.get("input_schema") or tool.get("parameters") or tool.get("parametersJsonSchema") or {}
            yield name, None if tool.get("type") == "custom" else schema


def _flat(holder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The tools that it lists, without what they are wrapped in: Gemini's declarations, Chat's functions, namespaces of Responses."""
    listed = holder.get("tools")
    for tool in listed if isinstance(listed, list) else []:
        if "tools" in tool:
            yield from _flat(tool)
        else:
            yield from tool.get("functionDeclarations") or tool.get("function_declarations") or [tool.get("function") or tool]


def _input(schema: Mapping[str, Any], command: str) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    key = next((name for name in ("command", "cmd") if name in properties), "command")
    words = str((properties.get(key) or {}).get("type", "string")).lower() == "array"
    filled = {name: _FILLED.get(str((properties.get(name) or {}).get("type")).lower(), "Run it") for name in schema.get("required") or ()}
    return {**filled, key: ["bash", "-c", command] if words else command}


def _script(command: str) -> str:
    """Codex's newest models run all tools from one script in JavaScript."""
    return f"text(await tools.exec_command({{cmd: {json.dumps(command)}}}))"
