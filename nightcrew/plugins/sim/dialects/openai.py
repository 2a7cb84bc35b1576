"""What the two OpenAI APIs share: errors, headers, durations."""

# ruff: noqa: ARG002 - one interface for all dialects, and not each needs every argument
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nightcrew.plugins.sim.dialects.types import Failure, Gauge

_TYPES = {400: "invalid_request_error", 401: "invalid_request_error", 403: "invalid_request_error", 404: "invalid_request_error"}


class OpenAi:
    """The base of both."""

    def error(self, failure: Failure, request_id: str) -> dict[str, Any]:
        """OpenAI's object has no request id: the header carries it."""
        kind, code = _kind(failure)
        if failure.reason == "window":  # as ChatGPT's backend answers, by what Codex 0.169.0 reads of it
            return {"error": {"message": failure.message, "type": kind, "resets_at": math.ceil(failure.opens_at)}}
        return {"error": {"message": failure.message, "type": kind, "param": None, "code": code}}

    def ping(self) -> bytes:
        """There is no ping event; compatible servers keep a stream alive with comments."""
        return b": keep-alive\n\n"

    def limit_headers(self, gauges: Mapping[str, Gauge], wall: float) -> dict[str, str]:
        """The headers that current OpenAI answers carry: requests and tokens, resets as durations."""
        shown = {"requests": gauges.get("requests"), "tokens": gauges.get("tokens") or gauges.get("input")}
        headers = {}
        for name, gauge in shown.items():
            if gauge is not None:
                headers[f"x-ratelimit-limit-{name}"] = str(round(gauge.limit))
                headers[f"x-ratelimit-remaining-{name}"] = str(max(0, int(gauge.remaining)))
                headers[f"x-ratelimit-reset-{name}"] = duration(gauge.full_in_s)
        return headers

    def id_headers(self, request_id: str) -> dict[str, str]:
        return {"x-request-id": request_id, "openai-processing-ms": "1", "openai-version": "2020-10-01", "openai-organization": "simulated"}


def _kind(failure: Failure) -> tuple[str, str | None]:
    """(type, code)."""
    if failure.reason == "window":
        return "usage_limit_reached", None
    if failure.reason == "spend_cap":
        return "insufficient_quota", "insufficient_quota"
    if failure.status == 429:
        return ("requests" if failure.dimension == "requests" else "tokens"), "rate_limit_exceeded"
    if failure.status == 401:
        return "invalid_request_error", "invalid_api_key"
    return _TYPES.get(failure.status, "server_error"), None


def duration(seconds: float) -> str:
    """As OpenAI writes it: `20ms`, `8.64s`, `6m0s`, `1h0m0s`."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    if seconds < 60:
        return f"{round(seconds, 3):g}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s"
