"""Our own answers, in the shape that the clients of each API read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from supervisor.core.gateway.types import Api

RETRY_AFTER_S = (1, 60)
"""Claude Code gives up at once at 61 (measured with 2.1.197)."""

_NO_USE = frozenset({401, 402, 403, 503})
"""Without a Retry-After these last until a person does something. Claude Code would try 401 twice again and 503 ten times."""

_ANTHROPIC: Mapping[int, str] = {
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
    kind = _ANTHROPIC.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": text}}
