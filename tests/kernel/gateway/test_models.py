"""Which models share a limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.gateway.admission.types import LONG_CONTEXT_BYTES, model_class
from supervisor.kernel.gateway_settings import Api

A, OA, G = Api.ANTHROPIC, Api.OPENAI, Api.GEMINI


@pytest.mark.parametrize(
    ("api", "model", "expected"),
    [
        (A, "claude-opus-4-8", "opus-4"),
        (A, "claude-opus-4-1-20250805", "opus-4"),
        (A, "claude-opus-4-8[1m]", "opus-4"),
        (A, "claude-sonnet-4-5", "sonnet-4"),
        (A, "claude-sonnet-4-20250514", "sonnet-4"),
        (A, "claude-opus-5", "opus-5"),
        (A, "claude-haiku-4-5-20251001", "haiku-4"),
        (A, "claude-3-7-sonnet-latest", "sonnet-3.7"),
        (A, "claude-3-5-haiku-20241022", "haiku-3.5"),
        (A, "claude-3-haiku-20240307", "haiku-3"),
        (A, "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "sonnet-4"),
        (A, "anthropic/claude-opus-4.5", "opus-4"),
        (A, "CLAUDE-OPUS-4-8", "opus-4"),
        (A, "qwen3-coder:30b", "qwen3-coder:30b"),
        (OA, "gpt-5.1", "gpt-5.1"),
        (OA, "gpt-4o-2024-11-20", "gpt-4o"),
        (OA, "gpt-4-0613", "gpt-4"),
        (OA, "gpt-4o-mini", "gpt-4o-mini"),
        (OA, "openai/gpt-oss-120b", "gpt-oss-120b"),
        (OA, "claude-opus-4-8", "claude-opus-4-8"),
        (G, "gemini-2.5-flash", "gemini-2.5-flash"),
        (G, "gemini-2.0-flash-001", "gemini-2.0-flash"),
        (G, "gemini-2.5-pro-preview-05-06", "gemini-2.5-pro-preview"),
        (G, "gemini-2.5-flash-preview-09-2025", "gemini-2.5-flash-preview"),
        (OA, "a b\nc", "a-b-c"),
        (A, "qwen3-coder[1m]", "qwen3-coder"),
        (OA, "x" * 200, "x" * 80),
        (OA, "/", "unnamed"),
    ],
)
def test_models_of_one_limit_have_one_class(api: Api, model: str, expected: str) -> None:
    assert model_class(api, model) == expected


@given(st.sampled_from(Api), st.text(max_size=300))
def test_a_class_is_a_short_plain_name_and_its_own_class(api: Api, model: str) -> None:
    name = model_class(api, model)
    assert 0 < len(name) <= 80
    assert name.isprintable() and name == name.lower() and "/" not in name


def test_a_long_context_begins_at_two_hundred_thousand_tokens() -> None:
    assert LONG_CONTEXT_BYTES / 3.6 == 200_000
