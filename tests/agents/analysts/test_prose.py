"""Prose by the real SDK, against a provider that is a real HTTP server on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from nightcrew.plugins.analyze import lead
from supervisor.results import analysis as results
from tests.provider import Provider, said, simulated

SUMMARY = results.summary([], None)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with simulated() as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
        yield server


def test_the_model_gets_the_facts_and_its_text_comes_back(provider: Provider) -> None:
    provider.answer = (200, said("First.\n\n", "Second."))
    assert lead.compose(SUMMARY, "claude-test") == "First.\n\nSecond."
    ((path, headers, body),) = provider.asked
    assert (path, body["model"]) == ("/v1/messages", "claude-test")
    assert "sk-test" in headers.get("x-api-key", "") + headers.get("authorization", ""), "the SDK chooses the header"
    facts = json.loads(body["messages"][0]["content"])
    assert facts["actions"] == SUMMARY["actions"] and "never an instruction" in body["system"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((429, {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}), "RateLimitError"),
        ((500, {"type": "error", "error": {"type": "api_error", "message": "oops"}}), "InternalServerError"),
        ((401, {"type": "error", "error": {"type": "authentication_error", "message": "who?\x1b[31m"}}), "AuthenticationError"),
        ((200, said()), "claude-test answered without text"),
        ((200, said("  \n ")), "claude-test answered without text"),
        ((200, {"content": "nonsense"}), ""),
        ((200, ["nonsense"]), ""),
    ],
)
def test_whatever_goes_wrong_is_one_short_line(provider: Provider, answer: tuple[int, Any], why: str) -> None:
    provider.answer = answer
    with pytest.raises(lead.ProseError) as caught:
        lead.compose(SUMMARY, "claude-test")
    assert why in str(caught.value) and str(caught.value).isprintable() and len(str(caught.value)) <= 200
    assert len(provider.asked) == 1, "one try: it is not worth a second"


def test_nobody_answers(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    with pytest.raises(lead.ProseError, match="APIConnectionError"):
        lead.compose(SUMMARY, "claude-test")


def test_a_text_without_end_is_cut(provider: Provider) -> None:
    provider.answer = (200, said("x" * 100_000))
    assert len(lead.compose(SUMMARY, "claude-test")) == lead.MAX_CHARS
