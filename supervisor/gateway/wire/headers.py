"""Headers of requests and answers, and our own errors."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from supervisor.gateway.admission.types import NOTHING_OBSERVED, Api, Level, Observed, Window

# Headers
# -------
# What headers say: of limits, of waiting, of keys. Names are lower case everywhere.
#
# Times are counted from the response's own Date, never from a local clock: a clock that is wrong by an hour changes nothing. What
# is negative, absurd or no number is left out.


CLIENT_AUTH_HEADERS = frozenset({"authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie", "proxy-authorization"})
"""Never passed to an upstream that has a key of its own: a client may send two of them at once (Claude Code does)."""

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""They belong to one connection (RFC 9110, 7.6.1), in both directions. So do those that `connection` names."""

MAX_RETRY_AFTER_S = 86_400.0
"""A longer Retry-After is left out: the longest honest one is that of a daily limit. A subscription's week is read from its own headers."""

UNKNOWN_RESET_S = 300.0
"""A spent window that does not say when it opens again (or has no Date to count from) is looked at after this."""

MAX_RESET_S = 32 * 86_400.0
"""A reset that is further away is nonsense."""
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{0,9})?")
_DURATION = re.compile(
    r"(?:(\d{1,6}(?:\.\d+)?)d)?(?:(\d{1,6}(?:\.\d+)?)h)?(?:(\d{1,6}(?:\.\d+)?)m)?(?:(\d{1,9}(?:\.\d+)?)s)?(?:(\d{1,9}(?:\.\d+)?)ms)?"
)
_UNITS_S = (86_400.0, 3600.0, 60.0, 1.0, 0.001)

_ANTHROPIC = "anthropic-ratelimit-"
_PRIORITY = "anthropic-priority-"
_UNIFIED = _ANTHROPIC + "unified-"
_ANTHROPIC_LEVELS = (
    ("requests", _ANTHROPIC + "requests-"),
    ("input", _ANTHROPIC + "input-tokens-"),
    ("output", _ANTHROPIC + "output-tokens-"),
    ("tokens", _ANTHROPIC + "tokens-"),
    ("priority_input", _PRIORITY + "input-tokens-"),
    ("priority_output", _PRIORITY + "output-tokens-"),
)
_WINDOW_STATUS = re.compile(_UNIFIED + r"(\d+[a-z][a-z0-9_]*)-(?:status|utilization)")
ANTHROPIC_ROUNDING = 1000.0


def auth_headers(api: Api, key: str) -> dict[str, str]:
    """How a provider of this API wants its key; nothing for an empty key (a server that wants none)."""
    if not key:
        return {}
    match api:
        case Api.ANTHROPIC:
            return {"x-api-key": key}
        case Api.OPENAI:
            return {"authorization": f"Bearer {key}"}
        case Api.GEMINI:
            return {"x-goog-api-key": key}


def observed(api: Api, headers: Mapping[str, str]) -> Observed:
    """What a response says of its account's limits. Gemini says it in the bodies of its errors alone: see `refusal`.

    Besides `requests`, `input`, `output` and `tokens` the levels may hold `priority_input` and `priority_output`: what is left of capacity
    that was bought ahead (Anthropic), beside the ordinary limits.
    """
    wait = retry_after_s(headers)
    match api:
        case Api.ANTHROPIC:
            now = date_of(headers)
            levels = {name: level for name, prefix in _ANTHROPIC_LEVELS if (level := _anthropic_level(headers, prefix, now))}
            windows = _windows(headers, wait, now)
            return Observed(levels, windows, wait, ANTHROPIC_ROUNDING) if levels or windows or wait is not None else NOTHING_OBSERVED
        case Api.OPENAI:
            levels = _openai_levels(headers)
            return Observed(levels, (), wait) if levels or wait is not None else NOTHING_OBSERVED
        case Api.GEMINI:
            return Observed({}, (), wait) if wait is not None else NOTHING_OBSERVED


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `retry-after` (seconds or a date); None when neither makes sense."""
    if (exact := number(headers.get("retry-after-ms", ""))) is not None:
        return _sane(exact / 1000.0, MAX_RETRY_AFTER_S)
    if not (text := headers.get("retry-after", "").strip()):
        return None
    seconds = number(text) if text[:1].isdigit() else _until(_date(text), date_of(headers))
    return _sane(seconds, MAX_RETRY_AFTER_S)


def number(text: str) -> float | None:
    """A plain decimal number that is not negative; None for anything else (`1e9`, `NaN`, `-1`, text)."""
    text = text.strip()
    return float(text) if _NUMBER.fullmatch(text) and text.isascii() else None


def duration_s(text: str) -> float | None:
    """`6m0s`, `1m30.5s`, `250ms`, or a plain number of seconds; None for anything else."""
    text = text.strip()
    if (plain := number(text)) is not None:
        return plain
    match = _DURATION.fullmatch(text) if text and text.isascii() else None
    return sum(float(part) * unit for part, unit in zip(match.groups(), _UNITS_S, strict=True) if part) if match else None


def date_of(headers: Mapping[str, str]) -> datetime | None:
    """The response's own Date."""
    return _date(headers.get("date", ""))


def _anthropic_level(headers: Mapping[str, str], prefix: str, now: datetime | None) -> Level | None:
    limit, remaining = headers.get(prefix + "limit"), headers.get(prefix + "remaining")
    if limit is None and remaining is None:
        return None
    return _level(limit, remaining, _until(_rfc3339(headers.get(prefix + "reset", "")), now))


def _openai_levels(headers: Mapping[str, str]) -> dict[str, Level]:
    levels = {}
    for name, kinds in (("requests", ("requests",)), ("tokens", ("tokens", "project-tokens"))):
        said = [level for kind in kinds if (level := _openai_level(headers, kind))]
        if said:  # the account's and the project's: whichever is nearer to its end
            levels[name] = min(said, key=lambda level: float("inf") if level.remaining is None else level.remaining)
    return levels


def _openai_level(headers: Mapping[str, str], kind: str) -> Level | None:
    limit, remaining = headers.get(f"x-ratelimit-limit-{kind}"), headers.get(f"x-ratelimit-remaining-{kind}")
    if limit is None and remaining is None:
        return None
    return _level(limit, remaining, duration_s(headers.get(f"x-ratelimit-reset-{kind}", "")))


def _level(limit_text: str | None, remaining_text: str | None, full_in_s: float | None) -> Level | None:
    """A limit of 0 or below says nothing (Azure answers -1 and 0/0): then the rest is not believed either."""
    limit = None if limit_text is None else number(limit_text)
    if limit_text is not None and not limit:
        return None
    remaining = None if remaining_text is None else number(remaining_text)
    if limit is None and remaining is None:
        return None
    return Level(limit, remaining, _sane(full_in_s, MAX_RESET_S))


def _windows(headers: Mapping[str, str], wait: float | None, now: datetime | None) -> tuple[Window, ...]:
    """A subscription's windows. A window that is over while the whole is allowed (paid overage, another model's week) is not spent."""
    overall = headers.get(_UNIFIED + "status", "").lower()
    names = sorted({match[1] for name in headers if (match := _WINDOW_STATUS.fullmatch(name))})
    windows = [_window(headers, name, wait, now) for name in names]
    if overall == "rejected" and not any(window.spent for window in windows):
        resets_in_s = _until(_rfc3339(headers.get(_UNIFIED + "reset", "")), now)
        windows.append(Window("unified", 1.0, _first(_sane(resets_in_s, MAX_RESET_S), wait, UNKNOWN_RESET_S), spent=True))
    return tuple(windows)


def _window(headers: Mapping[str, str], name: str, wait: float | None, now: datetime | None) -> Window:
    prefix = f"{_UNIFIED}{name}-"
    status = headers.get(prefix + "status", "").lower()
    used = number(headers.get(prefix + "utilization", ""))
    over = status == "rejected" or (not status and used is not None and used >= 1.0)
    resets_in_s = _sane(_until(_rfc3339(headers.get(prefix + "reset", "")), now), MAX_RESET_S)
    return Window(
        name,
        utilization=used if used is not None else float(over),
        resets_in_s=_first(resets_in_s, wait, UNKNOWN_RESET_S),
        spent=over and not headers.get(_UNIFIED + "status", "").lower().startswith("allowed"),
    )


def _first(*choices: float | None) -> float:
    return next(choice for choice in choices if choice is not None)


def _sane(seconds: float | None, most: float) -> float | None:
    """None for what is absurd; a moment that has passed is now."""
    return None if seconds is None or seconds > most else max(0.0, seconds)


def _until(moment: datetime | None, now: datetime | None) -> float | None:
    """Seconds from `now`, the response's Date, to `moment`."""
    return None if moment is None or now is None else (moment - now).total_seconds()


@functools.lru_cache(maxsize=32)  # the answers of one second have the same
def _date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _rfc3339(text: str) -> datetime | None:
    """RFC 3339, or seconds since 1970 as the subscription's headers have them."""
    try:
        if (seconds := number(text)) is not None:
            return datetime.fromtimestamp(seconds, UTC)
        moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError, OSError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


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
