"""Qwen Code's `--output-format stream-json`: Claude Code's shape, but for two things (seen in 0.15.10). A turn that the provider refused
ends with the exit status 0 and `is_error` false, and only its text says so; and its `input_tokens` holds what was read from the cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from agents.protocols import claude
from agents.protocols.lines import Object, Outcome, short

entries = claude.entries

_REFUSED = "[API Error:"


def outcome(objects: Iterable[Object]) -> Outcome | None:
    """See the package."""
    said = claude.outcome(objects)
    if said is None or said.usage is None:
        return said
    said = replace(said, usage=replace(said.usage, input=max(0, said.usage.input - said.usage.cache_read)))
    refused = said.ended and not said.is_error and said.message.startswith(_REFUSED)
    return replace(said, is_error=True, reason=short(said.message.strip("[]"))) if refused else said
