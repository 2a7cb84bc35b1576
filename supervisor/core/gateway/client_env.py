"""The variables by which an agent's client finds the gateway instead of its provider. Sources: field measurements of Claude Code 2.1 and
Codex 0.169; docs/gateway.md lists them."""

from __future__ import annotations

import json
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


_CLAUDE_WAY = ("ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "NO_PROXY", "no_proxy")
_CLAUDE_ELSEWHERE = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def past_proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Return NO_PROXY, in both cases, with what `environ` has there and the loopback: the gateway is reached by no proxy."""
    said = [word.strip() for name in ("NO_PROXY", "no_proxy") for word in environ.get(name, "").split(",")]
    names = dict.fromkeys(word for word in (*said, *_LOOPBACK) if word)
    value = "*" if "*" in names else ",".join(names)
    return {"NO_PROXY": value, "no_proxy": value}


def claude_env(variables: Mapping[str, str]) -> dict[str, str]:
    """Return what leads Claude Code to the gateway, as `env` of the settings of one session; empty where `variables`, the agent's own, name
    no gateway. Needed because the `env` of a person's or a repository's settings goes before the environment, and this before both
    (measured with Claude Code 2.1.329)."""
    if "ANTHROPIC_BASE_URL" not in variables:
        return {}
    return {**{name: variables[name] for name in _CLAUDE_WAY if name in variables}, **dict.fromkeys(_CLAUDE_ELSEWHERE, "")}


def aider_config(variables: Mapping[str, str]) -> str:
    """Return what leads aider to the gateway as a configuration file of its own, JSON; empty where `variables` name no gateway. Its
    `set-env` and keys go before `.env` and `.aider.conf.yml` of a person and of a repository (measured with aider 0.86.2)."""
    names = [name for addresses in _ADDRESS.values() for name in addresses if name in variables]
    if not names:
        return ""
    keys = {api: variables[name] for api, name in _KEY.items() if name in variables}
    found: dict[str, object] = {"set-env": [f"{name}={variables[name]}" for name in (*names, "NO_PROXY", "no_proxy") if name in variables]}
    found["api-key"] = [f"{api}={token}" for api, token in keys.items()]
    found |= {f"{api}-api-key": token for api, token in keys.items() if api is not Api.GEMINI}
    return json.dumps(found | ({"openai-api-base": variables["OPENAI_API_BASE"]} if "OPENAI_API_BASE" in variables else {}))


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
