"""Which addresses are passed on, and to where. Nothing of a client's address reaches an upstream but what is named here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from supervisor.core.gateway.types import Api
from supervisor.gateway.wire.asked import Endpoint, Recognised
from supervisor.gateway.wire.errors import error

_EXACT: Mapping[tuple[str, str], tuple[Endpoint, Api | None, str]] = {
    ("HEAD", ""): (Endpoint.PROBE, Api.ANTHROPIC, "/"),
    ("HEAD", "/"): (Endpoint.PROBE, Api.ANTHROPIC, "/"),
    ("HEAD", "/api/hello"): (Endpoint.PROBE, Api.ANTHROPIC, "/"),
    ("POST", "/v1/messages"): (Endpoint.MESSAGES, Api.ANTHROPIC, "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"): (Endpoint.COUNT_TOKENS, Api.ANTHROPIC, "/v1/messages/count_tokens"),
    ("POST", "/v1/messages/batches"): (Endpoint.BATCHES, Api.ANTHROPIC, "/v1/messages/batches"),
    ("GET", "/v1/messages/batches"): (Endpoint.BATCHES, Api.ANTHROPIC, "/v1/messages/batches"),
    ("GET", "/v1/models"): (Endpoint.MODELS, None, "/v1/models"),
    ("POST", "/v1/chat/completions"): (Endpoint.CHAT, Api.OPENAI, "/v1/chat/completions"),
    ("POST", "/v1/responses"): (Endpoint.RESPONSES, Api.OPENAI, "/v1/responses"),
    ("POST", "/v1/responses/compact"): (Endpoint.COMPACT, Api.OPENAI, "/v1/responses/compact"),
    ("POST", "/v1/responses/input_tokens"): (Endpoint.COUNT_TOKENS, Api.OPENAI, "/v1/responses/input_tokens"),
    ("POST", "/v1/embeddings"): (Endpoint.EMBEDDINGS, Api.OPENAI, "/v1/embeddings"),
    ("GET", "/v1beta/models"): (Endpoint.MODELS, Api.GEMINI, "/v1beta/models"),
    # A base URL without its version, as some OpenAI clients are given it.
    ("GET", "/models"): (Endpoint.MODELS, Api.OPENAI, "/v1/models"),
    ("POST", "/chat/completions"): (Endpoint.CHAT, Api.OPENAI, "/v1/chat/completions"),
    ("POST", "/responses"): (Endpoint.RESPONSES, Api.OPENAI, "/v1/responses"),
    ("POST", "/responses/compact"): (Endpoint.COMPACT, Api.OPENAI, "/v1/responses/compact"),
    ("POST", "/responses/input_tokens"): (Endpoint.COUNT_TOKENS, Api.OPENAI, "/v1/responses/input_tokens"),
    ("POST", "/embeddings"): (Endpoint.EMBEDDINGS, Api.OPENAI, "/v1/embeddings"),
}
_ACTIONS: Mapping[str, Endpoint] = {
    "generateContent": Endpoint.GENERATE,
    "streamGenerateContent": Endpoint.STREAM_GENERATE,
    "countTokens": Endpoint.COUNT_TOKENS,
}
_SENT = re.compile(r"beta=true|alt=sse|api-version=[0-9A-Za-z.-]{1,40}|limit=\d{1,4}|(?:after|before)_id=[A-Za-z0-9_.-]{1,200}")
"""What a query may say to an upstream; the rest is left out. Gemini's `fields`, for one, would hide the usage from us."""

_TOKEN = re.compile(r"/a/([A-Za-z0-9_.~-]{1,512})")
_GEMINI = re.compile(r"/v1beta/models/([A-Za-z0-9][A-Za-z0-9._-]{0,199}):([A-Za-z]+)")
_MODEL = re.compile(r"(/v1|/v1beta)?/models/((?:[A-Za-z0-9_][A-Za-z0-9._-]{0,99}/){0,2}[A-Za-z0-9_][A-Za-z0-9._:-]{0,199})")
"""One model: some servers have names such as `openai/gpt-5`."""
_BATCH = re.compile(r"/v1/messages/batches/([A-Za-z0-9_-]{1,128})(|/results|/cancel)")
_BATCH_VERBS: Mapping[tuple[str, str], Endpoint] = {
    ("GET", ""): Endpoint.BATCH,
    ("GET", "/results"): Endpoint.BATCH_RESULTS,
    ("POST", "/cancel"): Endpoint.BATCH_CANCEL,
}
_KEY = re.compile(r"key=([A-Za-z0-9_.~-]{1,512})")
_VERSION = re.compile(r"v\d+(?:alpha|beta)?\d*")
_SOCKET_PATHS = frozenset({"/v1/responses", "/responses"})


def recognise(method: str, raw_path: str) -> Recognised | None:
    """What the request line's address names; None when it is not passed on.

    `raw_path` is path and query as they came. An absolute address, `..`, `//`, an escaped or trailing slash, another method: None.
    Parameters of the query that no provider of ours needs are left out of what is sent.
    """
    path, _, query = raw_path.partition("?")
    token = ""
    if prefixed := _TOKEN.match(path):
        token, path = prefixed[1], path[prefixed.end() :]
    parameters = query.split("&")
    sent = "&".join(filter(_SENT.fullmatch, parameters))
    if exact := _EXACT.get((method, path)):
        endpoint, api, upstream_path = exact
        return Recognised(endpoint, api, upstream_path, sent, token)
    if (batch := _BATCH.fullmatch(path)) and (endpoint := _BATCH_VERBS.get((method, batch[2]))):  # type: ignore[assignment]  # None: the next rule
        return Recognised(endpoint, Api.ANTHROPIC, path, sent, token, batch=batch[1])
    if method == "GET" and (one := _MODEL.fullmatch(path)):
        api = {None: Api.OPENAI, "/v1": None, "/v1beta": Api.GEMINI}[one[1]]
        return Recognised(Endpoint.MODELS, api, f"{one[1] or '/v1'}/models/{one[2]}", sent, token)
    if method == "POST" and (named := _GEMINI.fullmatch(path)) and (action := _ACTIONS.get(named[2])):
        keys = [key[1] for key in map(_KEY.fullmatch, parameters) if key]
        return Recognised(action, Api.GEMINI, path, sent, token or (keys[0] if keys else ""), named[1])
    return None


def upgrade_refused(method: str, raw_path: str, headers: Mapping[str, str]) -> tuple[int, dict[str, str], bytes] | None:
    """The answer (status, headers, body) to a WebSocket upgrade of `/v1/responses`, to be given before anything else is asked; else None.

    426 is the one status at which Codex goes over to HTTPS at once and for the rest of its session; any other makes it try seven times
    (its client.rs, and reports of others' gateways). `headers` have lower-case names.
    """
    path = _TOKEN.sub("", raw_path.partition("?")[0], count=1)
    if method != "GET" or path not in _SOCKET_PATHS or headers.get("upgrade", "").lower() != "websocket":
        return None
    extra, body = error(Api.OPENAI, 426, "WebSockets are not spoken here; send a POST.")
    return 426, {**extra, "connection": "close"}, body


def target(url: str, recognised: Recognised, *, model: str | None = None, api: Api | None = None) -> str:
    """Where to send it: an upstream's `url`, the path, the query. `model` replaces the one that the path names (Gemini). `api` is the
    upstream's, to be given where the address does not tell it (model lists).

    A base URL may already hold the version, as each API's users write it: `https://api.openai.com/v1`, for OpenAI's language also
    `https://host/v1beta/openai`. Then the path brings none of its own.
    """
    path = recognised.path
    if model and recognised.model:
        path = path.replace(f"/{recognised.model}:", f"/{quote(model, safe='')}:")
    parts = url.partition("://")[2].split("/")[1:]
    if any(_VERSION.fullmatch(part) for part in (parts if (api or recognised.api) is Api.OPENAI else parts[-1:])):
        path = "/" + path.removeprefix("/").partition("/")[2]
    return f"{url}{path}{'?' if recognised.query else ''}{recognised.query}"
