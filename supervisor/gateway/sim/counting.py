"""How the simulated provider counts: tokens by size, models by class, and the prefix cache."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from supervisor.core.gateway.types import Usage

BYTES_PER_TOKEN = 3.6
"""Of JSON bodies as agents send them; a little under the 4 characters that are quoted for plain English."""
LOOK_BACK = 20
"""Blocks before a breakpoint that are searched for an older one (Anthropic's documentation of prompt caching)."""

_CLAUDE = re.compile(r"claude-(?:(?P<family>[a-z]+)-(?P<major>\d+)|(?P<old>\d+)(?:-\d+)?-(?P<old_family>[a-z]+))")


def tokens_of(size: int) -> int:
    """Tokens of `size` bytes, at least 1."""
    return max(1, math.ceil(size / BYTES_PER_TOKEN))


def model_class(model: str) -> str:
    """Models that share a limit: all Opus 4.x are `opus-4`; another provider's model is a class of its own."""
    found = _CLAUDE.match(model)
    if found is None:
        return model
    return f"{found['family'] or found['old_family']}-{found['major'] or found['old']}"


class PrefixCache:
    """What was cached for one key and model: prefixes that end at a `cache_control` block, each for a while after its last use."""

    def __init__(self, ttl_s: float, min_tokens: int) -> None:
        self._ttl_s = ttl_s
        self._min_tokens = min_tokens
        self._until: dict[bytes, float] = {}
        self._before: dict[bytes, float] = {}

    def undo(self) -> None:
        """The request that was counted last was refused: it wrote nothing."""
        self._until = self._before

    def count(self, body: Mapping[str, Any], total: int, now: float) -> Usage:
        """Split `total` input tokens of a Messages body into what was read from the cache, written to it, and neither."""
        prefixes = _scaled(list(_prefixes(body)), total)
        breakpoints = [place for place, (_, _, marked) in enumerate(prefixes) if marked]
        self._before = self._until
        self._until = {digest: until for digest, until in self._until.items() if until > now}
        read = self._longest_known(prefixes, breakpoints, now)
        written = 0
        for place in breakpoints:
            digest, tokens, _ = prefixes[place]
            if tokens >= self._min_tokens:
                self._until[digest] = now + self._ttl_s
                written = max(written, tokens - read)
        return Usage(input=total - read - written, cache_read=read, cache_write=written)

    def _longest_known(self, prefixes: list[tuple[bytes, int, bool]], breakpoints: list[int], now: float) -> int:
        """Tokens of the longest prefix that is known, and use it."""
        for place in reversed(breakpoints):
            for digest, tokens, _ in reversed(prefixes[max(0, place - LOOK_BACK) : place + 1]):
                if digest in self._until:
                    self._until[digest] = now + self._ttl_s
                    return tokens
        return 0


def _prefixes(body: Mapping[str, Any]) -> Iterator[tuple[bytes, int, bool]]:
    """(digest of everything up to here, its bytes, whether a breakpoint is here) for every block, in the provider's order."""
    running, size = hashlib.sha256(), 0
    for owner, block in _blocks(body):
        marked = isinstance(block, dict) and "cache_control" in block
        bare = {name: value for name, value in block.items() if name != "cache_control"} if isinstance(block, dict) else block
        data = json.dumps([owner, bare], ensure_ascii=False).encode(errors="surrogatepass")
        running.update(data)
        size += len(data)
        yield running.digest(), size, marked


def _blocks(body: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield from (("tools", tool) for tool in _listed(body.get("tools")))
    yield from (("system", block) for block in _listed(body.get("system")))
    for message in _listed(body.get("messages")):
        if isinstance(message, dict):
            yield from ((str(message.get("role")), block) for block in _listed(message.get("content")))


def _listed(value: object) -> list[object]:
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def _scaled(prefixes: list[tuple[bytes, int, bool]], total: int) -> list[tuple[bytes, int, bool]]:
    """The same with tokens for bytes, so that the whole body has `total`."""
    size = prefixes[-1][1] if prefixes else 1
    return [(digest, round(total * upto / size), marked) for digest, upto, marked in prefixes]
