"""What is passed on, and to where (battery X17)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.gateway.wire.requests import Endpoint, Recognised, recognise, target, upgrade_refused
from supervisor.kernel.gateway_settings import Api

TOKEN = "nct_dGFzazox_0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("method", "raw", "expected"),
    [
        ("POST", "/v1/messages?beta=true", Recognised(Endpoint.MESSAGES, Api.ANTHROPIC, "/v1/messages", "beta=true")),
        ("POST", "/v1/messages/count_tokens", Recognised(Endpoint.COUNT_TOKENS, Api.ANTHROPIC, "/v1/messages/count_tokens")),
        ("HEAD", "/", Recognised(Endpoint.PROBE, Api.ANTHROPIC, "/")),
        ("GET", "/v1/models?limit=1000", Recognised(Endpoint.MODELS, None, "/v1/models", "limit=1000")),
        ("GET", "/models", Recognised(Endpoint.MODELS, Api.OPENAI, "/v1/models")),
        ("POST", "/v1/chat/completions", Recognised(Endpoint.CHAT, Api.OPENAI, "/v1/chat/completions")),
        ("POST", "/chat/completions", Recognised(Endpoint.CHAT, Api.OPENAI, "/v1/chat/completions")),
        ("POST", "/v1/responses", Recognised(Endpoint.RESPONSES, Api.OPENAI, "/v1/responses")),
        (
            "POST",
            "/responses?api-version=2025-04-01-preview",
            Recognised(Endpoint.RESPONSES, Api.OPENAI, "/v1/responses", "api-version=2025-04-01-preview"),
        ),
        (
            "POST",
            "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
            Recognised(
                Endpoint.STREAM_GENERATE, Api.GEMINI, "/v1beta/models/gemini-2.5-pro:streamGenerateContent", "alt=sse", "", "gemini-2.5-pro"
            ),
        ),
        (
            "POST",
            f"/v1beta/models/gemini-2.5-pro:generateContent?key={TOKEN}",
            Recognised(Endpoint.GENERATE, Api.GEMINI, "/v1beta/models/gemini-2.5-pro:generateContent", "", TOKEN, "gemini-2.5-pro"),
        ),
        (
            "POST",
            "/v1beta/models/gemini-2.5-pro:countTokens",
            Recognised(Endpoint.COUNT_TOKENS, Api.GEMINI, "/v1beta/models/gemini-2.5-pro:countTokens", model="gemini-2.5-pro"),
        ),
        ("POST", "/v1/responses/compact", Recognised(Endpoint.COMPACT, Api.OPENAI, "/v1/responses/compact")),
        ("POST", "/v1/responses/input_tokens", Recognised(Endpoint.COUNT_TOKENS, Api.OPENAI, "/v1/responses/input_tokens")),
        ("POST", "/embeddings", Recognised(Endpoint.EMBEDDINGS, Api.OPENAI, "/v1/embeddings")),
        ("GET", "/v1/models/claude-opus-4-8", Recognised(Endpoint.MODELS, None, "/v1/models/claude-opus-4-8")),
        ("GET", "/models/openai/gpt-5:free", Recognised(Endpoint.MODELS, Api.OPENAI, "/v1/models/openai/gpt-5:free")),
        ("GET", "/v1beta/models/gemini-2.5-pro", Recognised(Endpoint.MODELS, Api.GEMINI, "/v1beta/models/gemini-2.5-pro")),
        ("POST", f"/a/{TOKEN}/v1/messages?beta=true", Recognised(Endpoint.MESSAGES, Api.ANTHROPIC, "/v1/messages", "beta=true", TOKEN)),
        ("HEAD", f"/a/{TOKEN}", Recognised(Endpoint.PROBE, Api.ANTHROPIC, "/", token=TOKEN)),
        ("HEAD", f"/a/{TOKEN}/", Recognised(Endpoint.PROBE, Api.ANTHROPIC, "/", token=TOKEN)),
    ],
)
def test_the_addresses_of_the_three_apis_are_recognised(method: str, raw: str, expected: Recognised) -> None:
    assert recognise(method, raw) == expected


@pytest.mark.parametrize(
    "raw",
    [
        "http://evil.example/v1/messages",
        "//evil.example/v1/messages",
        "//v1/messages",
        "/v1//messages",
        "/v1/messages/",
        "/v1/messages/../files",
        "/v1/../v1/messages",
        "/v1/..%2fv1/messages",
        "/v1%2fmessages",
        "/v1/%6dessages",
        "/v1/messages%00",
        "/v1/messages;a=b",
        "/v1/messages#x",
        "/V1/messages",
        "\\v1\\messages",
        "/v1/messages\r\nx: y",
        "/v1/files",
        "/v1/complete",
        "/v1/organizations/api_keys",
        "/nightcrew/status",
        "/v1beta/models/../../v1/files:generateContent",
        "/v1beta/models/..:generateContent",
        "/v1beta/models/a%2fb:generateContent",
        "/v1beta/models/gemini:delete",
        "/v1beta/models/gemini:generateContent/x",
        "/v1beta/tunedModels/gemini:generateContent",
        "/a//v1/messages",
        "/a/x/a/y/v1/messages",
        "/a/x%2f/v1/messages",
        "/a/x//v1/messages",
        "",
        "*",
        "v1/messages",
    ],
)
def test_nothing_else_is_passed_on(raw: str) -> None:
    assert recognise("POST", raw) is None


@pytest.mark.parametrize(
    ("method", "raw"),
    [
        ("GET", "/v1/messages"),
        ("PUT", "/v1/messages"),
        ("post", "/v1/messages"),
        ("POST", "/v1/models"),
        ("OPTIONS", "/"),
        ("GET", "/"),
        ("CONNECT", "a:443"),
    ],
)
def test_another_method_is_refused(method: str, raw: str) -> None:
    assert recognise(method, raw) is None


@pytest.mark.parametrize(
    "query",
    [
        "key=abc",
        "fields=candidates",
        "$fields=candidates",
        "alt=media",
        "access_token=x",
        "beta=true%26x",
        "beta=true#",
        "x=/../",
        "beta=false",
        "=",
        "beta=true\r\n",
    ],
)
def test_a_query_that_is_not_known_is_left_out(query: str) -> None:
    found = recognise("POST", f"/v1beta/models/gemini-2.5-pro:streamGenerateContent?{query}&alt=sse")
    assert found is not None and found.query == "alt=sse"


@given(st.sampled_from(["GET", "POST", "HEAD"]), st.text(max_size=60), st.text(max_size=60))
def test_what_is_sent_is_never_more_than_the_tables_say(method: str, path: str, query: str) -> None:
    for raw in (f"{path}?{query}", f"/v1/messages{path}?{query}", f"/v1beta/models/{path}:generateContent?{query}"):
        found = recognise(method, raw)
        if found is not None:
            sent = target("https://host", found)
            assert sent.startswith("https://host/") and sent.isascii() and ".." not in found.path.split("/")
            assert not set(sent) & set(" \r\n#\\%")


@pytest.mark.parametrize(
    ("url", "raw", "expected"),
    [
        ("https://api.anthropic.com", "/v1/messages?beta=true", "https://api.anthropic.com/v1/messages?beta=true"),
        ("https://api.anthropic.com/v1", "/v1/messages", "https://api.anthropic.com/v1/messages"),
        ("https://gw.example/v1/me/anthropic", "/v1/messages", "https://gw.example/v1/me/anthropic/v1/messages"),
        ("https://api.openai.com", "/chat/completions", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/v1", "/v1/responses", "https://api.openai.com/v1/responses"),
        ("https://gw.example/v1/me/openai", "/v1/responses", "https://gw.example/v1/me/openai/responses"),
        ("https://g.example/v1beta/openai", "/v1/chat/completions", "https://g.example/v1beta/openai/chat/completions"),
        ("http://127.0.0.1:11434", "/v1/chat/completions", "http://127.0.0.1:11434/v1/chat/completions"),
        ("https://g.example", "/v1beta/models/g-1:generateContent", "https://g.example/v1beta/models/g-1:generateContent"),
        ("https://g.example/v1beta", "/v1beta/models/g-1:generateContent", "https://g.example/v1beta/models/g-1:generateContent"),
    ],
)
def test_the_target_has_one_version(url: str, raw: str, expected: str) -> None:
    found = recognise("POST", raw)
    assert found is not None and target(url, found) == expected


def test_the_models_list_needs_to_be_told_the_api() -> None:
    found = recognise("GET", "/v1/models")
    assert found is not None
    assert target("https://g.example/v1beta/openai", found, api=Api.OPENAI) == "https://g.example/v1beta/openai/models"
    assert target("https://gw.example/v1/me/anthropic", found, api=Api.ANTHROPIC) == "https://gw.example/v1/me/anthropic/v1/models"


def test_a_route_replaces_the_model_in_the_path() -> None:
    found = recognise("POST", "/v1beta/models/g-1:streamGenerateContent?alt=sse")
    assert found is not None
    assert target("https://h", found, model="x/../y?") == "https://h/v1beta/models/x%2F..%2Fy%3F:streamGenerateContent?alt=sse"


def test_a_websocket_upgrade_is_answered_426() -> None:
    for raw in ("/v1/responses", "/responses", f"/a/{TOKEN}/v1/responses?x=y"):
        answer = upgrade_refused("GET", raw, {"upgrade": "WebSocket", "connection": "Upgrade"})
        assert answer is not None
        assert answer[0] == 426 and answer[1]["connection"] == "close" and b"nightcrew gateway" in answer[2]
    assert upgrade_refused("GET", "/v1/responses", {}) is None
    assert upgrade_refused("POST", "/v1/responses", {"upgrade": "websocket"}) is None
    assert upgrade_refused("GET", "/v1/other", {"upgrade": "websocket"}) is None
