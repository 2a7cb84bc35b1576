"""Why an upstream did not serve (battery N01, N02, N13)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.gateway.admission.types import Level, Refusal, Window
from supervisor.gateway.wire.errors import failure, refusal
from supervisor.kernel.gateway_settings import Api

A, OA, G = Api.ANTHROPIC, Api.OPENAI, Api.GEMINI
DATE = {"date": "Sat, 21 Nov 2026 10:00:00 GMT"}


def why(api: Api, status: int, body: object = None, **headers: str) -> Refusal | None:
    named = DATE | {name.replace("_", "-"): text for name, text in headers.items()}
    found = refusal(api, status, named, json.dumps(body).encode())
    return found[0] if found else None


def fault(kind: str, message: str = "", **more: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message, **more}}


ACCELERATION = "This request would exceed your organization's maximum usage increase rate for input tokens per minute."
SPENT = {"details": {"error_code": "enforced_spend_limit_reached"}}
BAD_KEY = {"error": {"code": 400, "status": "INVALID_ARGUMENT", "details": [{"@type": "x", "reason": "API_KEY_INVALID"}]}}


@pytest.mark.parametrize(
    ("api", "status", "body", "expected"),
    [
        (A, 429, fault("rate_limit_error", "too many"), Refusal.RATE_LIMITED),
        (A, 429, None, Refusal.RATE_LIMITED),
        (A, 429, fault("rate_limit_error", ACCELERATION), Refusal.ACCELERATION),
        (A, 429, fault("rate_limit_error", "spend", **SPENT), Refusal.SPEND_CAP),
        (A, 400, fault("invalid_request_error", "Your credit balance is too low to access the API."), Refusal.SPEND_CAP),
        (A, 402, fault("billing_error"), Refusal.SPEND_CAP),
        (A, 529, fault("overloaded_error", "Overloaded"), Refusal.OVERLOADED),
        (A, 529, None, Refusal.OVERLOADED),
        (A, 500, fault("overloaded_error"), Refusal.OVERLOADED),
        (A, 500, fault("api_error"), Refusal.SERVER_ERROR),
        (A, 502, "<html>", Refusal.SERVER_ERROR),
        (A, 401, fault("authentication_error"), Refusal.KEY_REFUSED),
        (A, 403, fault("permission_error", "no access to the model claude-x"), None),
        (A, 403, fault("authentication_error"), Refusal.KEY_REFUSED),
        (A, 403, fault("permission_error", "OAuth token has been revoked. Please obtain a new token."), Refusal.KEY_REFUSED),
        (A, 400, fault("invalid_request_error", "This organization has been disabled."), Refusal.KEY_REFUSED),
        (A, 400, fault("invalid_request_error", "You have reached your specified API usage limits. You will"), Refusal.SPEND_CAP),
        (A, 301, None, Refusal.SERVER_ERROR),
        (A, 408, None, Refusal.SERVER_ERROR),
        (A, 400, fault("invalid_request_error", "max_tokens: too large"), None),
        (A, 404, fault("not_found_error", "model"), None),
        (A, 413, fault("request_too_large"), None),
        (A, 200, None, None),
        (OA, 429, {"error": {"type": "tokens", "code": "rate_limit_exceeded", "message": "Rate limit reached"}}, Refusal.RATE_LIMITED),
        (OA, 429, {"error": {"type": "usage_limit_reached", "resets_at": 1795269600}}, Refusal.WINDOW_SPENT),
        (OA, 429, {"error": {"type": "insufficient_quota", "code": "insufficient_quota"}}, Refusal.SPEND_CAP),
        (OA, 503, {"error": {"message": "Slow down", "code": "slow_down"}}, Refusal.ACCELERATION),
        (OA, 503, {"error": {"message": "The engine is currently overloaded, please try again later"}}, Refusal.OVERLOADED),
        (OA, 401, {"error": {"code": "invalid_api_key"}}, Refusal.KEY_REFUSED),
        (OA, 403, {"error": {"message": "Project `p` does not have access to model `m`", "code": "model_not_found"}}, None),
        (OA, 403, {"error": {"message": "unsupported", "code": "unsupported_country_region_territory"}}, None),
        (OA, 403, {"error": {"code": "account_deactivated"}}, Refusal.KEY_REFUSED),
        (OA, 500, {"error": "words"}, Refusal.SERVER_ERROR),
        (OA, 400, {"error": {"code": "context_length_exceeded"}}, None),
        (OA, 409, None, None),
        (G, 429, {"error": {"status": "RESOURCE_EXHAUSTED"}}, Refusal.RATE_LIMITED),
        (G, 503, {"error": {"status": "UNAVAILABLE", "message": "The model is overloaded."}}, Refusal.OVERLOADED),
        (G, 503, [{"error": {"message": "The model is overloaded."}}], Refusal.OVERLOADED),
        (G, 403, {"error": {"status": "PERMISSION_DENIED", "message": "You do not have permission to access the File abc"}}, None),
        (G, 403, {"error": {"status": "PERMISSION_DENIED", "details": [{"reason": "CONSUMER_SUSPENDED"}]}}, Refusal.KEY_REFUSED),
        (G, 403, {"error": {"status": "PERMISSION_DENIED", "details": [{"reason": "BILLING_DISABLED"}]}}, Refusal.SPEND_CAP),
        (G, 400, BAD_KEY, Refusal.KEY_REFUSED),
        (G, 400, {"error": {"status": "INVALID_ARGUMENT"}}, None),
    ],
)
def test_each_status_has_one_meaning(api: Api, status: int, body: object, expected: Refusal | None) -> None:
    assert why(api, status, body) == expected


@pytest.mark.parametrize("api", Api)
@pytest.mark.parametrize("status", [400, 403])
@pytest.mark.parametrize(
    "words",
    [
        "Your credit balance is too low",
        "insufficient_quota",
        "This organization has been disabled",
        "authentication_error",
        "API_KEY_INVALID",
    ],
)
def test_words_of_a_client_that_an_error_quotes_close_no_account(api: Api, status: int, words: str) -> None:
    for message in (f"Invalid value: '{words}'. Supported values are: 'user'", f"messages.0.role: {words}"):
        assert why(api, status, fault("invalid_request_error", message)) is None
    if api is not Api.ANTHROPIC:
        assert why(api, status, fault("invalid_request_error", words)) is None


def test_a_spent_window_is_no_ordinary_429() -> None:
    spent = {"anthropic_ratelimit_unified_status": "rejected", "anthropic_ratelimit_unified_5h_status": "rejected"}
    assert why(A, 429, fault("rate_limit_error"), **spent) is Refusal.WINDOW_SPENT
    found = refusal(A, 429, DATE | {name.replace("_", "-"): text for name, text in spent.items()} | {"retry-after": "7999"}, b"")
    assert found is not None and found[1].windows == (Window("5h", 1.0, 7999.0, spent=True),) and found[1].retry_after_s == 7999.0


def gemini(*violations: object, delay: object = "34.07s") -> dict[str, Any]:
    details = [
        {"@type": "t/google.rpc.QuotaFailure", "violations": [*violations]},
        {"@type": "t/google.rpc.RetryInfo", "retryDelay": delay},
    ]
    return {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "quota", "details": details}}


REQUESTS = {
    "quotaMetric": "g/generate_content_free_tier_requests",
    "quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier",
    "quotaValue": "15",
}
TOKENS = {
    "quotaMetric": "g/generate_content_free_tier_input_token_count",
    "quotaId": "GenerateContentInputTokensPerModelPerMinute-FreeTier",
    "quotaValue": "250000",
}
DAY = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "50"}


def test_gemini_says_its_limits_in_the_body() -> None:
    found = refusal(G, 429, DATE, json.dumps(gemini(REQUESTS, TOKENS)).encode())
    assert found is not None and found[0] is Refusal.RATE_LIMITED
    assert found[1].levels == {"requests": Level(15), "input": Level(250000)} and found[1].retry_after_s == 34.07


@pytest.mark.parametrize("delay", ["-3s", "abc", "NaN", 5, None, "100000000s"])
def test_a_retry_delay_that_makes_no_sense_is_left_out(delay: object) -> None:
    found = refusal(G, 429, {}, json.dumps(gemini({"quotaId": 7}, "x", delay=delay)).encode())
    assert found is not None and found[1].retry_after_s == (5.0 if delay == 5 else None) and found[1].levels == {}


@pytest.mark.parametrize(
    ("date", "resets_in_s"),
    [
        ("Sat, 21 Nov 2026 10:00:00 GMT", 22 * 3600),
        ("Sat, 21 Nov 2026 07:59:59 GMT", 1),
        ("Tue, 21 Jul 2026 08:00:00 GMT", 24 * 3600),
        ("", 300),
    ],
)
def test_geminis_daily_quota_parks_until_midnight_pacific(date: str, resets_in_s: float) -> None:
    found = refusal(G, 429, {"date": date}, json.dumps(gemini(DAY)).encode())
    assert found is not None and found[0] is Refusal.WINDOW_SPENT
    assert found[1].windows == (Window("day", 1.0, resets_in_s, spent=True),)


def test_an_error_event_before_the_first_byte_is_a_refusal() -> None:
    assert failure(A, "overloaded_error") is Refusal.OVERLOADED
    assert failure(A, "rate_limit_error") is Refusal.RATE_LIMITED
    assert failure(OA, "rate_limit_exceeded") is Refusal.RATE_LIMITED
    assert failure(OA, "insufficient_quota") is Refusal.SPEND_CAP
    assert failure(G, "UNAVAILABLE") is Refusal.OVERLOADED
    assert failure(A, "invalid_request_error") is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "details", "violations", "quotaId", "quotaValue", "retryDelay", "type", "code", "message", "reason"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(st.sampled_from(Api), st.integers(100, 599), st.binary(max_size=60) | anything.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_judged(api: Api, status: int, body: bytes) -> None:
    found = refusal(api, status, DATE, body)
    assert found is None or isinstance(found[0], Refusal)
    assert found is not None or status < 500


def test_a_body_that_was_cut_off_or_is_nested_too_deep_is_judged_by_its_status() -> None:
    assert refusal(A, 529, {}, b"[" * 200_000) is not None
    assert refusal(A, 429, {}, b'{"error":{"type":"rate_li') is not None


@pytest.mark.parametrize(("at", "seconds"), [(1795269600, 14_400.0), (1795000000, 0.0), (10**11, 77.0), ("soon", 77.0), (None, 77.0)])
def test_openai_says_when_a_subscriptions_window_opens(at: object, seconds: float) -> None:
    body = {"error": {"type": "usage_limit_reached", "message": "The usage limit has been reached", "resets_at": at}}
    found = refusal(OA, 429, DATE | {"retry-after": "77"}, json.dumps(body).encode())
    assert found is not None and found[0] is Refusal.WINDOW_SPENT
    assert found[1].windows == (Window("usage", 1.0, seconds, spent=True),)
