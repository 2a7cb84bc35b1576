"""What an error of a provider's means, and the errors that the gateway answers itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from supervisor.gateway.admission.types import Level, Observed, Refusal, Window
from supervisor.gateway.wire.headers import (
    MAX_RESET_S,
    MAX_RETRY_AFTER_S,
    UNKNOWN_RESET_S,
    date_of,
    duration_s,
    number,
    observed,
)
from supervisor.kernel.gateway_settings import Api

# Errors
# ------
# Our own answers, in the shape that the clients of each API read.


RETRY_AFTER_S = (1, 60)
"""Claude Code gives up at once at 61 (measured with 2.1.197)."""

_NO_USE = frozenset({401, 402, 403, 503})
"""Without a Retry-After these last until a person does something. Claude Code would try 401 twice again and 503 ten times."""

_ERRORS_ANTHROPIC: Mapping[int, str] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}
_OPENAI: Mapping[int, tuple[str, str | None]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("invalid_request_error", None),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}
_GEMINI: Mapping[int, str] = {
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def error(api: Api | None, status: int, why: str, retry_after_s: float | None = None) -> tuple[dict[str, str], bytes]:
    """Headers and JSON body of an answer of our own; `api` None: no API was recognised. Both say that it comes from the gateway.

    `retry_after_s` becomes a Retry-After of 1 to 60 whole seconds. Where trying again is of no use the client is told so.
    """
    headers = {"content-type": "application/json"}
    text = f"nightcrew gateway: {why}"
    wait = None
    if retry_after_s is not None:
        wait = int(min(max(retry_after_s, RETRY_AFTER_S[0]), RETRY_AFTER_S[1]))
        headers["retry-after"] = str(wait)
        text += f" Please try again in {wait}s."  # Codex reads its delay from this sentence
    elif status in _NO_USE:
        headers["x-should-retry"] = "false"
    return headers, json.dumps(_shape(api, status, text, wait)).encode()


def _shape(api: Api | None, status: int, text: str, wait: int | None) -> dict[str, Any]:
    if api is Api.GEMINI:
        named = _GEMINI.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
        details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{wait}s"}] if wait is not None else []
        return {"error": {"code": status, "message": text, "status": named, "details": details}}
    if api is Api.OPENAI:
        kind, code = _OPENAI.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
        return {"error": {"message": text, "type": kind, "param": None, "code": code}}
    kind = _ERRORS_ANTHROPIC.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": text}}


# Refusals
# --------
# Why an upstream did not serve a request, told from its status, its headers and the body of its error.


_SPEND_CODES = frozenset(
    {
        "enforced_spend_limit_reached", "billing_error",
        "insufficient_quota", "billing_hard_limit_reached", "billing_not_active",
        "BILLING_DISABLED",
    }
)  # fmt: skip
_KEY_CODES = frozenset(
    {
        "authentication_error",
        "invalid_api_key", "account_deactivated", "organization_deactivated", "organization_disabled",
        "API_KEY_INVALID", "API_KEY_SERVICE_BLOCKED", "API_KEY_HTTP_REFERRER_BLOCKED", "API_KEY_IP_ADDRESS_BLOCKED",
        "CONSUMER_INVALID", "CONSUMER_SUSPENDED", "SERVICE_DISABLED",
    }
)  # fmt: skip
"""What names the key or its account. Any other 403 may be about one thing that one client asked for: a file, a model."""
_ACCELERATION = re.compile(r"acceleration limit|usage increase rate|slow_down", re.IGNORECASE)
_NO_CREDIT = re.compile(r"Your credit balance is too low|You have reached your specified (?:\w+ )?API usage limits")
_DISABLED = re.compile(r"This organization has been disabled|OAuth token has been revoked")
"""Anthropic says these in words alone. Only at the very start of a message: further on it may quote what the client sent."""
_IN_WORDS = frozenset({"invalid_request_error", "permission_error"})
_FAILURES: Mapping[Api, Mapping[str, Refusal]] = {
    Api.ANTHROPIC: {
        "overloaded_error": Refusal.OVERLOADED,
        "rate_limit_error": Refusal.RATE_LIMITED,
        "api_error": Refusal.SERVER_ERROR,
        "timeout_error": Refusal.SERVER_ERROR,
    },
    Api.OPENAI: {
        "server_is_overloaded": Refusal.OVERLOADED,
        "rate_limit_exceeded": Refusal.RATE_LIMITED,
        "slow_down": Refusal.ACCELERATION,
        "server_error": Refusal.SERVER_ERROR,
    },
    Api.GEMINI: {
        "UNAVAILABLE": Refusal.OVERLOADED,
        "RESOURCE_EXHAUSTED": Refusal.RATE_LIMITED,
        "INTERNAL": Refusal.SERVER_ERROR,
        "DEADLINE_EXCEEDED": Refusal.SERVER_ERROR,
    },
}


def refusal(api: Api, status: int, headers: Mapping[str, str], body: bytes) -> tuple[Refusal, Observed] | None:
    """Why the upstream did not serve, with what it said of its limits. None: the answer is the client's own affair and is passed on.

    `body` may be cut off (its first 64 KiB are plenty). A redirect counts as a server error: it is never followed, and never passed on,
    since a client would follow it with its token. The caller decides whether a refused key was ours or the client's own.
    """
    if status < 300:
        return None
    fault = _fault(body)
    seen = observed(api, headers)
    if api is Api.OPENAI and fault.get("type") == "usage_limit_reached":
        seen = replace(seen, windows=(_openai_window(seen, headers, fault),))
    if api is Api.GEMINI:
        seen = _gemini_limits(seen, headers, fault)
    why = _account(api, status, fault) or _why(status, fault, seen)
    return None if why is None else (why, seen)


def failure(api: Api, failed: str) -> Refusal | None:
    """What an error event inside a stream (`Answer.failed`) means, when nothing was passed on yet; None: the client's own affair."""
    return Refusal.SPEND_CAP if failed in _SPEND_CODES else _FAILURES[api].get(failed)


def _account(api: Api, status: int, fault: Mapping[str, Any]) -> Refusal | None:
    """What closes the whole account. It stops the crew, so no words decide it that a client could have put there."""
    codes, words = _codes(fault), str(fault.get("message"))
    in_words = api is Api.ANTHROPIC and status in (400, 403) and fault.get("type") in _IN_WORDS
    if status == 402 or (status in (400, 403, 429) and codes & _SPEND_CODES) or (in_words and _NO_CREDIT.match(words)):
        return Refusal.SPEND_CAP
    if status == 401 or (status in (400, 403) and codes & _KEY_CODES) or (in_words and _DISABLED.match(words)):
        return Refusal.KEY_REFUSED
    return None


def _why(status: int, fault: Mapping[str, Any], seen: Observed) -> Refusal | None:
    text = f"{fault.get('type')} {fault.get('code')} {fault.get('message')}"
    if status in (429, 503) and _ACCELERATION.search(text):
        return Refusal.ACCELERATION
    if status == 429:
        return Refusal.WINDOW_SPENT if any(window.spent for window in seen.windows) else Refusal.RATE_LIMITED
    if status == 529 or (status >= 500 and "overloaded" in text.lower()):
        return Refusal.OVERLOADED
    return Refusal.SERVER_ERROR if status >= 500 or status < 400 or status == 408 else None


def _fault(body: bytes) -> Mapping[str, Any]:
    """The `error` object of any of the APIs (Gemini's streams wrap it in a list); empty when there is none."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(said, list) and said:
        said = said[0]
    fault = said.get("error") if isinstance(said, dict) else None
    return fault if isinstance(fault, dict) else {"message": fault} if isinstance(fault, str) else {}


def _codes(fault: Mapping[str, Any]) -> set[str]:
    """Every word by which an error names itself."""
    details = fault.get("details")
    named = [fault.get("type"), fault.get("code"), details.get("error_code") if isinstance(details, dict) else None]
    return {word for word in (*named, *(detail.get("reason") for detail in _details(fault))) if isinstance(word, str)}


def _details(fault: Mapping[str, Any]) -> list[dict[str, Any]]:
    details = fault.get("details")
    return [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []


def _openai_window(seen: Observed, headers: Mapping[str, str], fault: Mapping[str, Any]) -> Window:
    """What ChatGPT's backend says of a subscription whose window is spent: the moment when it opens, as `resets_at`."""
    at, now = number(str(fault.get("resets_at", ""))), date_of(headers)
    in_s = max(0.0, at - now.timestamp()) if at is not None and now is not None else None
    known = in_s if in_s is not None and in_s <= MAX_RESET_S else seen.retry_after_s
    return Window("usage", 1.0, known if known is not None else UNKNOWN_RESET_S, spent=True)


def _gemini_limits(seen: Observed, headers: Mapping[str, str], fault: Mapping[str, Any]) -> Observed:
    """RetryInfo, and the quota that QuotaFailure names: one per minute is a limit, one per day is a window that is spent."""
    wait, levels, windows = seen.retry_after_s, dict(seen.levels), list(seen.windows)
    for detail in _details(fault):
        delay = duration_s(str(detail.get("retryDelay", "")))
        if wait is None and delay is not None and delay <= MAX_RETRY_AFTER_S:
            wait = delay
        violations = detail.get("violations")
        for quota in violations if isinstance(violations, list) else ():
            name = str(quota.get("quotaId", "")) if isinstance(quota, dict) else ""
            if "PerDay" in name:
                windows.append(Window("day", 1.0, _until_pacific_midnight_s(headers), spent=True))
            elif "PerMinute" in name and (limit := number(str(quota.get("quotaValue", "")))):
                levels["input" if "token" in f"{name} {quota.get('quotaMetric')}".lower() else "requests"] = Level(limit)
    return replace(seen, levels=levels, windows=tuple(windows[:1]), retry_after_s=wait)


def _until_pacific_midnight_s(headers: Mapping[str, str]) -> float:
    """Gemini's daily quotas begin at midnight Pacific. Taken as UTC-8 the whole year: an hour late in summer rather than an hour early."""
    now = date_of(headers)
    if now is None:
        return UNKNOWN_RESET_S
    here = now - timedelta(hours=8)
    return 86_400.0 - (here.hour * 3600 + here.minute * 60 + here.second)
