"""What the simulated provider is told. Everything has a default."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Seconds of refill that a bucket holds, at speed 1."""
    speed: float = 1.0
    """The buckets and windows live this many times faster than the machine's clock: `limit` headers say `limit * speed` a minute, waits
    and resets are shortened, capacities stay. A gateway in front of it is told `limit * speed` and `burst_s / speed`."""
    oversize: bool = True
    """A request larger than a whole bucket is served when the bucket is full (and leaves it in debt); False: it never is."""
    reserve_max_tokens: bool = False
    """`max_tokens` counts at admission and is corrected at the end; False: output counts as it is produced."""
    cached_counts: bool = False
    """Cache reads count against the input limit."""
    long_context: int = 200_000
    """A request with more input than this draws from a pool of its own."""
    windows: tuple[WindowLimit, ...] = ()
    """For keys that begin with `sk-ant-oat` (subscriptions): these instead of the buckets' headers."""

    latency_s: float = 0.0
    """Until the first byte. The headers say what is so when they are sent."""
    head_s: float = 0.0
    """The whole head of an answer comes so much later still, and its limit headers say what was so when the request was counted. A refusal
    comes without this delay."""
    tokens_per_s: float | None = None
    """How fast output is produced; None: at once."""
    tokens_per_event: int = 16
    batch_s: float = 0.0
    """Seconds of the provider's own, faster clock that it works at a batch, each request for an equal part."""
    output_mean: float = 200.0
    """Mean number of output tokens of an answer that nobody scripted, clamped to what the request allows."""
    output_spread: float = 0.5
    """Sigma of their log-normal distribution; 0: always the mean."""
    seed: int = 1

    cached_share: float | None = None
    """This part of every input is said to come from the cache; None: a prefix cache by `cache_control` blocks (Anthropic's rule)."""
    cache_ttl_s: float = 300.0
    cache_min_tokens: int = 1024
    """Shorter prefixes are not cached."""

    max_body: int = 32 * 1024 * 1024
    """Bytes; a larger request gets 413 (Anthropic's limit for Messages)."""
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
