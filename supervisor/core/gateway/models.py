"""Which models share a provider's limit."""

from __future__ import annotations

import re

from supervisor.core.gateway.types import Api

LONG_CONTEXT_BYTES = 720_000
"""A body above this is taken for more than 200,000 tokens, where Anthropic's separate limit for long contexts begins: a token is about
3.6 bytes of a request's JSON (where the estimators begin, too)."""

_LONGEST = 80
_CLAUDE = re.compile(
    r"claude-(?:(?P<family>opus|sonnet|haiku)-(?P<new>\d+)|(?P<old>[23](?:[.-]\d)?)-(?P<old_family>opus|sonnet|haiku))(?!\d)"
)
_SNAPSHOT = re.compile(r"(?:-latest|-\d{4}-\d{2}-\d{2}|-\d{8}|-\d{4}|-\d{3}|-\d{2}-\d{2}|-\d{2}-\d{4})$")
_STRANGE = re.compile(r"[^a-z0-9._:-]+")


def model_class(api: Api, model: str) -> str:
    """The name of what `model` shares its limit with, the key of `Upstream.classes`: lower case, at most 80 characters.

    Anthropic counts the Opus 4 models in one pool and the Sonnet 4 models in another: `opus-4`, `sonnet-4`, `haiku-4`; before that each
    release alone: `sonnet-3.7`. Everything else is its own class, without the date of its snapshot: `gpt-5.1`, `gemini-2.5-flash`.
    """
    name = model.lower().removesuffix("[1m]").rpartition("/")[2]
    if api is Api.ANTHROPIC and (claude := _CLAUDE.search(name)):
        if claude["family"]:
            return f"{claude['family']}-{claude['new']}"
        return f"{claude['old_family']}-{claude['old'].replace('-', '.')}"
    plain = _STRANGE.sub("-", _SNAPSHOT.sub("", name)).strip("-")[:_LONGEST]
    return plain or "unnamed"
