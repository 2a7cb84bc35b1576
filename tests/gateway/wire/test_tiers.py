"""Words that change the price of a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor.gateway.wire import headers
from supervisor.gateway.wire.metering import Answer
from supervisor.gateway.wire.requests import read, recognise
from supervisor.kernel.gateway_settings import Api

OPENAI, GOOGLE = "https://api.openai.com", "https://generativelanguage.googleapis.com"
GENERATE = "/v1beta/models/gemini-2.5-pro:generateContent"


@pytest.mark.parametrize(
    ("path", "members", "url", "expected"),
    [
        ("/v1/messages", {}, "", 1.0),
        ("/v1/messages", {"service_tier": "auto", "speed": "standard", "inference_geo": "global"}, "", 1.0),
        ("/v1/messages", {"service_tier": None}, "", 1.0),
        ("/v1/messages", {"inference_geo": "us"}, "", 1.1),
        ("/v1/messages", {"speed": "fast"}, "", None),
        ("/v1/messages", {"speed": 1}, "", None),
        ("/v1/messages", {"service_tier": "gold"}, "", None),
        ("/v1/responses", {"service_tier": "flex"}, OPENAI, 0.5),
        ("/v1/responses", {"service_tier": "flex"}, "https://elsewhere.example", 1.0),
        ("/v1/chat/completions", {"service_tier": "priority"}, OPENAI, None),
        ("/v1/chat/completions", {"service_tier": "fast"}, OPENAI, None),
        ("/v1/chat/completions", {"service_tier": "default"}, OPENAI, 1.0),
        (GENERATE, {"serviceTier": "flex"}, GOOGLE, 0.5),
        (GENERATE, {"service_tier": "SERVICE_TIER_FLEX"}, GOOGLE, 0.5),
        (GENERATE, {"generationConfig": {"serviceTier": "priority"}}, GOOGLE, None),
    ],
)
def test_what_a_request_costs_in_prices_of_the_table(path: str, members: dict[str, Any], url: str, expected: float | None) -> None:
    recognised = recognise("POST", path)
    assert recognised is not None
    asked = read(recognised, {}, json.dumps({"model": "m", **members}).encode())
    assert headers.price_factor(asked.api, dict(asked.price_words), url) == expected


@pytest.mark.parametrize(
    ("path", "said", "expected"),
    [
        ("/v1/messages", {"type": "message", "usage": {"input_tokens": 1, "speed": "fast"}}, None),
        ("/v1/messages", {"type": "message", "usage": {"input_tokens": 1, "service_tier": "priority", "inference_geo": "us"}}, 1.1),
        ("/v1/messages", {"type": "message", "usage": {"input_tokens": 1, "service_tier": "standard"}}, 1.0),
        ("/v1/chat/completions", {"object": "chat.completion", "service_tier": "priority", "usage": {"prompt_tokens": 1}}, None),
        ("/v1/responses", {"object": "response", "service_tier": "flex", "usage": {"input_tokens": 1}}, 0.5),
        (GENERATE, {"usageMetadata": {"promptTokenCount": 1, "serviceTier": "flex"}}, 0.5),
    ],
)
def test_the_answer_has_the_last_word(path: str, said: dict[str, Any], expected: float | None) -> None:
    recognised = recognise("POST", path)
    assert recognised is not None
    asked = read(recognised, {}, b'{"model": "m"}')
    answer = Answer(asked)
    answer.feed(json.dumps(said).encode())
    answer.finish()
    assert headers.price_factor(asked.api, answer.price_words, OPENAI if asked.api is Api.OPENAI else GOOGLE) == expected
