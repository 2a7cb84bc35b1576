"""The note that says how much of the prompts that begin alike providers read from their caches. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from memory.reads import Prefix

PATH = "semantic/prompt-cache.md"
SHOWN = 20
_HEAD = """---
kind: semantic
title: How much of our prompts came from the provider's cache
tags: [figures]
source: nightcrew
---

All agents of this repository are told the same first, until core.md changes. Of each such beginning: how many attempts were given it, and
how much of what they sent the provider had in its cache, in their first requests and in all of them.

| Beginning | Last given | Bytes | Attempts | Counted | First requests | All requests |
| --- | --- | --: | --: | --: | --: | --: |
"""


def text(prefixes: Sequence[Prefix]) -> str:
    """The note."""
    return _HEAD + "".join(f"| {' | '.join(_cells(one))} |\n" for one in prefixes[:SHOWN])


def _cells(one: Prefix) -> tuple[str, ...]:
    day = datetime.fromtimestamp(one.last, UTC).strftime("%Y-%m-%d")
    return (one.digest, day, str(one.bytes), str(one.attempts), str(one.counted), _percent(one.first_hit_ratio), _percent(one.hit_ratio))


def _percent(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.0%}"
