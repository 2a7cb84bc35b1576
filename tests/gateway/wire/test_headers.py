"""Limits, waiting and keys, as headers say them (battery N01)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.gateway.admission.types import NOTHING_OBSERVED, Level, Window
from supervisor.gateway.wire.headers import CLIENT_AUTH_HEADERS, HOP_BY_HOP, auth_headers, duration_s, number, observed, retry_after_s
from supervisor.kernel.gateway_settings import Api

DATE = {"date": "Sat, 21 Nov 2026 10:00:00 GMT"}
AT_10 = 1_795_255_200  # the same moment in seconds since 1970


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30", 30.0),
        (" 30 ", 30.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("Sat, 21 Nov 2026 10:00:45 GMT", 45.0),
        ("Saturday, 21-Nov-26 10:00:45 GMT", 45.0),
        ("Sat, 21 Nov 2026 09:00:00 GMT", 0.0),
        ("86400", 86400.0),
        ("86401", None),
        ("1e9", None),
        ("1000000000", None),
        ("9" * 400, None),
        ("-5", None),
        ("abc", None),
        ("NaN", None),
        ("inf", None),
        ("", None),
        ("٣", None),
        ("3 s", None),
        ("Sat, 21 Nov 9999 10:00:45 GMT", None),
        ("Sat, 99 Nov 2026 10:00:45 GMT", None),
    ],
)
def test_retry_after(text: str, expected: float | None) -> None:
    assert retry_after_s({**DATE, "retry-after": text}) == expected
    assert observed(Api.GEMINI, {**DATE, "retry-after": text}).retry_after_s == expected


def test_a_date_is_counted_from_the_responses_own_clock() -> None:
    assert retry_after_s({"retry-after": "Sat, 21 Nov 2026 10:00:45 GMT"}) is None
    assert retry_after_s({"date": "nonsense", "retry-after": "Sat, 21 Nov 2026 10:00:45 GMT"}) is None
    assert retry_after_s({"date": "Thu, 21 Nov 1996 10:00:00 GMT", "retry-after": "Thu, 21 Nov 1996 10:00:07 GMT"}) == 7.0


def test_milliseconds_win() -> None:
    assert retry_after_s({"retry-after": "3", "retry-after-ms": "2500"}) == 2.5
    assert retry_after_s({"retry-after": "3", "retry-after-ms": "x"}) == 3.0


def test_the_twelve_headers_of_anthropic_and_the_priority_ones() -> None:
    headers = dict(DATE)
    for prefix, limit in (
        ("ratelimit-requests", 1000),
        ("ratelimit-input-tokens", 80000),
        ("ratelimit-output-tokens", 16000),
        ("ratelimit-tokens", 96000),
    ):
        headers |= {f"anthropic-{prefix}-limit": str(limit), f"anthropic-{prefix}-remaining": str(limit // 2)}
        headers[f"anthropic-{prefix}-reset"] = "2026-11-21T10:00:30Z"
    for kind in ("input", "output"):
        headers |= {f"anthropic-priority-{kind}-tokens-limit": "10000", f"anthropic-priority-{kind}-tokens-remaining": "9000"}
    seen = observed(Api.ANTHROPIC, headers)
    assert seen.levels == {
        "requests": Level(1000, 500, 30.0),
        "input": Level(80000, 40000, 30.0),
        "output": Level(16000, 8000, 30.0),
        "tokens": Level(96000, 48000, 30.0),
        "priority_input": Level(10000, 9000, None),
        "priority_output": Level(10000, 9000, None),
    }
    assert seen.rounding == 1000 and seen.windows == () and seen.retry_after_s is None


@pytest.mark.parametrize("reset", ["2026-11-21T10:00:30", "2026-11-21T11:00:30+01:00", "2026-11-21T10:00:30.000Z", str(AT_10 + 30)])
def test_a_reset_in_any_notation(reset: str) -> None:
    headers = {**DATE, "anthropic-ratelimit-requests-limit": "5", "anthropic-ratelimit-requests-reset": reset}
    assert observed(Api.ANTHROPIC, headers).levels["requests"] == Level(5, None, 30.0)


@pytest.mark.parametrize("reset", ["", "soon", "2026-13-41T10:00:30Z", "2099-01-01T00:00:00Z", "9" * 15])
def test_a_reset_that_makes_no_sense_is_left_out(reset: str) -> None:
    headers = {**DATE, "anthropic-ratelimit-requests-limit": "5", "anthropic-ratelimit-requests-reset": reset}
    assert observed(Api.ANTHROPIC, headers).levels["requests"] == Level(5, None, None)


@pytest.mark.parametrize(
    ("limit", "remaining", "expected"),
    [
        ("-1", "-1", None),
        ("0", "0", None),
        ("", "", None),
        ("abc", "100", None),
        ("100", "0", Level(100, 0)),
        ("100", "-1", Level(100, None)),
        ("100", "NaN", Level(100, None)),
        (None, "100", Level(None, 100)),
        (None, "x", None),
    ],
)
def test_negative_and_absent_figures_are_unknown(limit: str | None, remaining: str | None, expected: Level | None) -> None:
    headers = {name: text for name, text in (("limit", limit), ("remaining", remaining)) if text is not None}
    openai = {f"x-ratelimit-{name}-tokens": text for name, text in headers.items()}
    anthropic = {f"anthropic-ratelimit-tokens-{name}": text for name, text in headers.items()}
    assert observed(Api.OPENAI, openai).levels.get("tokens") == expected
    assert observed(Api.ANTHROPIC, anthropic).levels.get("tokens") == expected


def test_openai_counts_for_account_and_project() -> None:
    headers = {
        "x-ratelimit-limit-requests": "500",
        "x-ratelimit-remaining-requests": "499",
        "x-ratelimit-reset-requests": "120ms",
        "x-ratelimit-limit-tokens": "30000",
        "x-ratelimit-remaining-tokens": "29000",
        "x-ratelimit-reset-tokens": "6m0s",
        "x-ratelimit-limit-project-tokens": "10000",
        "x-ratelimit-remaining-project-tokens": "100",
        "x-ratelimit-reset-project-tokens": "1m30s",
    }
    assert observed(Api.OPENAI, headers).levels == {"requests": Level(500, 499, 0.12), "tokens": Level(10000, 100, 90.0)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1m30s", 90),
        ("6m0s", 360),
        ("250ms", 0.25),
        ("1h2m3.5s", 3723.5),
        ("1d2h", 93600),
        ("59.5s", 59.5),
        ("7.66s", 7.66),
        ("60", 60),
        ("0s", 0),
    ],
)
def test_durations(text: str, expected: float) -> None:
    assert duration_s(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "s", "1m-3s", "-1s", "5 s", "1s1m", "abc", "1e9s", "NaN", "9" * 40 + "s"])
def test_no_durations(text: str) -> None:
    assert duration_s(text) is None


def windows(**headers: str) -> tuple[Window, ...]:
    named = {f"anthropic-ratelimit-unified-{name.replace('__', '-').lstrip('_')}": text for name, text in headers.items()}
    return observed(Api.ANTHROPIC, {**DATE, **named}).windows


def test_a_subscription_with_room_left() -> None:
    assert windows(
        status="allowed",
        _5h__status="allowed",
        _5h__utilization="0.36",
        _5h__reset=str(AT_10 + 3600),
        _7d__status="allowed_warning",
        _7d__utilization="0.94",
        _7d__reset="2026-11-24T10:00:00Z",
        overage__status="rejected",
        fallback__percentage="0.5",
        representative__claim="five_hour",
    ) == (Window("5h", 0.36, 3600.0, spent=False), Window("7d", 0.94, 3 * 86400.0, spent=False))


def test_a_spent_window_parks_until_its_reset() -> None:
    found = windows(
        status="rejected",
        _5h__status="rejected",
        _5h__utilization="1.04",
        _5h__reset=str(AT_10 + 7999),
        _7d__status="allowed",
        _7d__utilization="0.2",
    )
    assert found[0] == Window("5h", 1.04, 7999.0, spent=True)
    assert not found[1].spent


def test_a_window_is_not_spent_while_the_whole_is_allowed() -> None:
    """Paid overage; or the week of another model family."""
    assert not windows(status="allowed", _5h__status="rejected", _5h__utilization="1.0")[0].spent
    assert not windows(status="allowed_warning", _7d_oi__status="rejected", _7d_oi__utilization="1.0")[0].spent
    assert windows(status="rejected", _7d_oi__status="rejected", _7d_oi__utilization="1.0")[0].spent


def test_a_refusal_without_a_window_of_its_own_is_one_all_the_same() -> None:
    assert windows(status="rejected", reset=str(AT_10 + 60), _5h__status="allowed")[-1] == Window("unified", 1.0, 60.0, spent=True)
    assert windows(status="rejected") == (Window("unified", 1.0, 300.0, spent=True),)


def test_utilization_alone_tells_when_there_is_no_status() -> None:
    assert windows(_5h__utilization="1.0")[0].spent
    assert not windows(_5h__utilization="0.99")[0].spent


def test_nothing_said_is_nothing_observed() -> None:
    for api in Api:
        assert observed(api, {"content-type": "text/event-stream", **DATE}) is NOTHING_OBSERVED


NAMES = [
    "date",
    "retry-after",
    "retry-after-ms",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-tokens-limit",
    "anthropic-ratelimit-tokens-reset",
    "anthropic-ratelimit-unified-status",
    "anthropic-ratelimit-unified-5h-status",
    "anthropic-ratelimit-unified-5h-reset",
    "anthropic-ratelimit-unified-5h-utilization",
]


@given(
    st.sampled_from(Api),
    st.dictionaries(
        st.sampled_from(NAMES), st.text(max_size=12) | st.sampled_from(["Sat, 21 Nov 2026 10:00:00 GMT", "rejected", "99999999999"])
    ),
)
def test_any_headers_give_figures_that_make_sense(api: Api, headers: dict[str, str]) -> None:
    seen = observed(api, headers)
    figures = [
        seen.retry_after_s,
        *(figure for level in seen.levels.values() for figure in (level.limit, level.remaining, level.full_in_s)),
    ]
    figures += [figure for window in seen.windows for figure in (window.utilization, window.resets_in_s)]
    assert all(figure is None or 0 <= figure < 1e15 for figure in figures)


@given(st.text(max_size=30))
def test_a_number_is_one_that_json_would_take(text: str) -> None:
    found = number(text)
    assert found is None or (found >= 0 and found == float(text))


def test_keys_go_where_each_provider_wants_them() -> None:
    assert auth_headers(Api.ANTHROPIC, "k") == {"x-api-key": "k"}
    assert auth_headers(Api.OPENAI, "k") == {"authorization": "Bearer k"}
    assert auth_headers(Api.GEMINI, "k") == {"x-goog-api-key": "k"}
    for api in Api:
        assert auth_headers(api, "").keys() == set() and auth_headers(api, "k").keys() <= CLIENT_AUTH_HEADERS
    assert "authorization" not in HOP_BY_HOP and all(name == name.lower() for name in HOP_BY_HOP | CLIENT_AUTH_HEADERS)
