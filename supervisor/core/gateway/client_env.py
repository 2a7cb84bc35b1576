"""The variables by which an agent's client finds the gateway instead of its provider. Sources: field measurements of Claude Code 2.1 and
Codex 0.169; docs/gateway.md lists them."""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.core.gateway.settings import GatewaySettings
from supervisor.core.gateway.types import Api
from supervisor.core.states import TaskClass

_CLAUDE_QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1"}
_CLAUDE_PATIENT = {
    "API_FORCE_IDLE_TIMEOUT": "0",
    "API_TIMEOUT_MS": "1800000",
    "CLAUDE_STREAM_IDLE_TIMEOUT_MS": "900000",
    "CLAUDE_CODE_RETRY_WATCHDOG": "1",
}
"""Claude Code then holds out for 30 minutes before a first byte, and waits any 429 or 529 out instead of giving up after a few."""


def is_patient(task_class: TaskClass) -> bool:
    """Whether an agent's client is told to wait long: nobody sits in front of it."""
    return task_class is not TaskClass.INTERACTIVE


def block(settings: GatewaySettings, port: int, token: str, *, patient: bool) -> Mapping[str, str]:
    """The variables for an agent with this attempt token; empty without upstreams.

    For an API all of whose upstreams pass the client's own login on, the token is in the path, and no key variable is set.
    """
    found: dict[str, str] = {}
    for api in {upstream.api for upstream in settings.upstreams}:
        own_login = all(upstream.key.kind == "client" for upstream in settings.upstreams if upstream.api is api)
        base = f"http://127.0.0.1:{port}" + (f"/a/{token}" if own_login else "")
        found |= {name: base + path for name, path in _ADDRESS[api].items()} | ({} if own_login else {_KEY[api]: token})
        if api is Api.ANTHROPIC:
            found |= _CLAUDE_QUIET | (_CLAUDE_PATIENT if patient else {})
    return found


_KEY = {Api.ANTHROPIC: "ANTHROPIC_AUTH_TOKEN", Api.OPENAI: "OPENAI_API_KEY", Api.GEMINI: "GEMINI_API_KEY"}
_ADDRESS = {
    Api.ANTHROPIC: {"ANTHROPIC_BASE_URL": "", "ANTHROPIC_API_BASE": ""},
    Api.OPENAI: {"OPENAI_BASE_URL": "/v1", "OPENAI_API_BASE": "/v1"},
    Api.GEMINI: {"GOOGLE_GEMINI_BASE_URL": ""},
}
"""Variable -> what its client wants behind the address."""
PROVIDER_KEYS = {"ANTHROPIC_API_KEY": Api.ANTHROPIC, "OPENAI_API_KEY": Api.OPENAI, "GEMINI_API_KEY": Api.GEMINI}
"""Where a person's shell holds a provider's key."""
