"""Words of a request that change what its tokens cost, and the same words in its answer.

Sources: Anthropic's pages on fast mode (2 to 6 times the price, by model) and data residency (1.1 times); OpenAI's and Google's on service
tiers (flex: half the price; priority, which OpenAI also calls fast: more, by model).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervisor.gateway.admission.types import Api

_FACTORS: Mapping[Api, Mapping[str, Mapping[str, float]]] = {
    Api.ANTHROPIC: {
        "service_tier": {"auto": 1.0, "standard_only": 1.0},
        "speed": {"standard": 1.0},
        "inference_geo": {"global": 1.0, "not_available": 1.0, "us": 1.1},
    },
    Api.OPENAI: {"service_tier": {"auto": 1.0, "default": 1.0, "standard": 1.0, "flex": 0.5}},
    Api.GEMINI: {"service_tier": {"unspecified": 1.0, "standard": 1.0, "flex": 0.5}},
}
"""Word -> value -> times the price of the table. Any other value has a price that is not known."""
_AT_HOME = frozenset({"https://api.openai.com", "https://generativelanguage.googleapis.com"})
"""Where a tier that costs less is known to: elsewhere the same word may cost the whole price."""

Words = Mapping[str, str]


def asked(api: Api, values: Mapping[str, Any]) -> Words:
    """Return the words of a request's members."""
    places = [values]
    if api is Api.GEMINI:
        places += [config for name in ("generationConfig", "generation_config") if isinstance(config := values.get(name), dict)]
    return {word: said for place in places for word, said in told(api, place).items()}


def told(api: Api, values: Mapping[str, Any]) -> Words:
    """Return the words of one object, in a request or in its answer. A value that is no text counts as one that nobody knows."""
    found = {}
    for word in _FACTORS[api]:
        value = values.get(word, values.get("serviceTier") if word == "service_tier" and api is Api.GEMINI else None)
        if value is not None:
            found[word] = value.lower().removeprefix("service_tier_")[:40] if isinstance(value, str) else "?"
    return found


def factor(api: Api, words: Words, url: str = "") -> float | None:
    """Return how many times the price of the table holds; None if nobody knows. `url` is the upstream's: discounts count at `_AT_HOME`."""
    found = 1.0
    for word, value in words.items():
        times = _FACTORS[api][word].get(value)
        if times is None:
            return None
        found *= times if times >= 1.0 or url in _AT_HOME else 1.0
    return found


def dear(api: Api, words: Words) -> str:
    """Return the word and value whose price is not known, for people; empty if there is none."""
    return next((f"{word} {value!r}" for word, value in words.items() if value not in _FACTORS[api][word]), "")
