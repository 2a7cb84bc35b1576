"""What a request asks for, and where it goes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote

from supervisor.gateway.admission.types import LONG_CONTEXT_BYTES
from supervisor.gateway.wire.errors import error
from supervisor.gateway.wire.headers import price_words
from supervisor.kernel.gateway_settings import Api

# Asked
# -----
# The types of `wire`: what an address names, and what a request asks for.


class Endpoint(StrEnum):
    """What is passed on; nothing else is."""

    MESSAGES = "messages"
    COUNT_TOKENS = "count tokens"
    CHAT = "chat"
    RESPONSES = "responses"
    COMPACT = "compact"
    """Makes a long conversation of OpenAI's Responses API short: a model call."""
    EMBEDDINGS = "embeddings"
    """Takes input tokens alone."""
    GENERATE = "generate"
    STREAM_GENERATE = "stream generate"
    BATCHES = "batches"
    """Making one, and the list of them."""
    BATCH = "batch"
    BATCH_RESULTS = "batch results"
    BATCH_CANCEL = "cancel batch"
    MODELS = "models"
    """The list of them, and one of them."""
    PROBE = "probe"
    """`HEAD /` or `HEAD /api/hello`: Claude Code sends one before its first request, without a token, and ignores the answer."""


OF_BATCHES = frozenset({Endpoint.BATCHES, Endpoint.BATCH, Endpoint.BATCH_RESULTS, Endpoint.BATCH_CANCEL})
"""Served by `batches`: what they take is charged when a batch has ended."""
FREE = frozenset({Endpoint.COUNT_TOKENS, Endpoint.MODELS, Endpoint.PROBE})
"""Takes no tokens, so it waits in no queue."""


class Turned(Exception):
    """A request that goes no further. `status` and `why` are for the answer; `why` quotes nothing that was sent."""

    def __init__(self, status: int, why: str, retry_after_s: int | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.why = why
        self.retry_after_s = retry_after_s


class BadRequest(Turned):
    """What came is no request of its API."""


class Recognised(NamedTuple):
    """An address that is passed on."""

    endpoint: Endpoint
    api: Api | None
    """None while only the headers can tell: the model lists of Anthropic and OpenAI have the same address."""
    path: str
    """As an upstream's root serves it, for example `/v1/messages`; see `target`."""
    query: str = ""
    """What is sent of the query, without the question mark: its known parameters, each as it came."""
    token: str = ""
    """The client's token, when the address carries it: `/a/<token>/...`, or Gemini's `?key=`."""
    model: str = ""
    """The model, when the path names it (Gemini)."""
    batch: str = ""
    """The batch that the path names."""


Span = tuple[int, int]
"""Where a value stands in a body: the first byte, and the one after its last."""


class Asked(NamedTuple):
    """What one request asks for. Text that came from the client is printable and at most 200 characters."""

    api: Api
    endpoint: Endpoint
    model: str = ""
    """As the client named it; empty for `MODELS` and `PROBE`."""
    stream: bool = False
    max_tokens: int | None = None
    """The most output over all choices that were asked for; None when the request sets no limit."""
    session: str = ""
    """The client's own id of its conversation, empty when it sends none."""
    long_context: bool = False
    """It counts against the limit for long contexts."""
    model_at: Span | None = None
    """Where the body names the model, quotes included."""
    usage_edit: tuple[Span, bytes] | None = None
    """What makes an OpenAI chat stream report its usage: put these bytes there. None when there is nothing to add."""
    choices: int = 1
    """Answers that were asked for at once."""
    stored_input: bool = False
    """It refers to input that the provider keeps, so its body does not bound its input."""
    may_cache_hour: bool = False
    """It may have something written to the cache for an hour (Anthropic)."""
    price_words: tuple[tuple[str, str], ...] = ()
    """Its words that change the price, see `headers.price_words`."""
    tools: bool = False
    """It offers the model tools."""
    turns: int = 0
    """Messages of its history, the newest included."""
    prompt_at: tuple[tuple[str, int, int], ...] = ()
    """The members that make the prompt, in the order in which a model reads them, and where they stand in the body's text."""
    work: str = ""
    """The weight of its work, and why; empty where no route asks for it. See `work.weigh`."""
    work_why: str = ""

    @property
    def free(self) -> bool:
        """It takes no tokens (`count_tokens`, model lists, the probe), and bypasses the queue."""
        return self.endpoint in FREE


# Addresses
# ---------
# Which addresses are passed on, and to where. Nothing of a client's address reaches an upstream but what is named here.


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


# Reading
# -------
# What a request asks for, and the only two ways in which its body is ever changed.
#
# A body is walked once, member by member of its outermost object; each value is parsed by the standard library's scanner, which
# also says where it ends. So the place of `model` is known to the byte, whatever stands around it.


MODEL_CHARS = 200
MAX_TOKENS = 1_000_000_000
"""Far above what any model gives; a larger `max_tokens` is no number to reckon with."""

BRACKETS_MAX = 200_000
VALUES_MAX = 300_000
"""Of one body, counted by `[` and `{` and by commas, those in its texts as well. A million tokens are about 4 MB; a megabyte of Python has
18,000 commas and 6,000 brackets, of JSON 36,000 and 7,000 (measured on this project). What is above is made to be expensive:
`[[],[],...` takes 26 times its own size in memory, and its parsing holds up everybody."""
_DIGITS_MAX = 200
"""Characters of one number. Reading a long one takes the square of its length."""
MEMBERS_MAX = 1000
"""Of the outermost object. The APIs know about 30."""
_USER_ID_MAX = 2000

_WITHOUT_BODY = frozenset({Endpoint.MODELS, Endpoint.PROBE})
_LIMITS: Mapping[Endpoint, tuple[str, ...]] = {
    Endpoint.MESSAGES: ("max_tokens",),
    Endpoint.CHAT: ("max_completion_tokens", "max_tokens"),
    Endpoint.RESPONSES: ("max_output_tokens",),
    Endpoint.GENERATE: ("maxOutputTokens", "max_output_tokens"),
    Endpoint.STREAM_GENERATE: ("maxOutputTokens", "max_output_tokens"),
}
"""What each endpoint heeds. Any other is no limit, only said to be one."""
_CHOICES: Mapping[Endpoint, tuple[str, ...]] = {
    Endpoint.CHAT: ("n",),
    Endpoint.GENERATE: ("candidateCount", "candidate_count"),
    Endpoint.STREAM_GENERATE: ("candidateCount", "candidate_count"),
}
_CONFIGS = ("generationConfig", "generation_config")
"""Where Gemini has both; it reads either spelling."""
_STORED: Mapping[Endpoint, tuple[str, ...]] = {
    Endpoint.RESPONSES: ("previous_response_id", "conversation", "prompt"),
    Endpoint.COMPACT: ("previous_response_id", "conversation", "prompt"),
    Endpoint.GENERATE: ("cachedContent", "cached_content"),
    Endpoint.STREAM_GENERATE: ("cachedContent", "cached_content"),
}
"""Input that the provider keeps: the body does not show how much it is."""
_HISTORY = ("messages", "input", "contents")
"""Where each API has the messages of a conversation."""
_PROMPT = ("tools", "system", "instructions", "systemInstruction", "messages", "input", "contents")
CACHE_MARKS = re.compile(r',\s*"cache_control"\s*:\s*\{[^{}]*\}')
"""Marks of a prompt that move from turn to turn, and are no part of what a model reads."""
_SESSION_HEADERS = ("x-claude-code-session-id", "session-id", "session_id")
_SESSION = re.compile(r"[!-~]{1,200}")
_OLD_USER_ID = re.compile(r"_session_([0-9a-fA-F-]{36})$")

_TTL = re.compile(rb'"ttl"|\\u00')
"""A cache's time to live, or a name that may be one in disguise, wherever it stands: it counts only where a provider does not tell how long
it keeps what it has written."""

_SPACE = re.compile(r"[ \t\n\r]*")
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_NEXT = re.compile(r"[ \t\n\r]*([,}])[ \t\n\r]*")


class _Member(NamedTuple):
    """One member of an object: its value, and where that stands in the text."""

    value: Any
    start: int
    end: int


_Members = Mapping[str, _Member]


def read(recognised: Recognised, headers: Mapping[str, str], body: bytes) -> Asked:
    """What is asked. Header names are lower case. Raises BadRequest for what is no request, and nothing else.

    A model that the client did not name (OpenAI allows that with a stored prompt) is a BadRequest: nobody could say whose limit it takes.
    So is a Responses request in the background: its answer comes without its usage, which nobody would ever see.
    """
    api = recognised.api or (Api.ANTHROPIC if "anthropic-version" in headers else Api.OPENAI)
    if recognised.endpoint in _WITHOUT_BODY:
        return Asked(api, recognised.endpoint)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise BadRequest(415, "send the body without a Content-Encoding.")
    text, members = parsed(body)
    values = {name: member.value for name, member in members.items()}
    model = recognised.model or model_name(values.get("model"))
    is_stream = recognised.endpoint is Endpoint.STREAM_GENERATE or values.get("stream") is True
    if recognised.endpoint is Endpoint.RESPONSES and values.get("background") not in (None, False):
        raise BadRequest(400, "background: it is not passed on, since what it takes could not be counted; stream the response instead.")
    most, choices = _most_output(recognised.endpoint, values)
    edit = _usage_edit(text, members) if recognised.endpoint is Endpoint.CHAT and is_stream else None
    return Asked(
        api,
        recognised.endpoint,
        model,
        is_stream,
        most,
        _session(headers, values),
        model.endswith("[1m]") or (len(body) > LONG_CONTEXT_BYTES and "context-1m" in headers.get("anthropic-beta", "")),
        None if recognised.model else _in_bytes(text, body, (members["model"].start, members["model"].end)),
        None if edit is None else (_in_bytes(text, body, edit[0]), edit[1]),
        choices,
        any(values.get(name) is not None for name in _STORED.get(recognised.endpoint, ())),
        _TTL.search(body) is not None,
        tuple(price_words(api, values).items()),
        bool(values.get("tools") or values.get("functions")),
        max(len(said) if isinstance(said := values.get(name), list) else 0 for name in _HISTORY),
        tuple((name, members[name].start, members[name].end) for name in _PROMPT if name in members),
    )


def sent_body(asked: Asked, body: bytes, *, model: str | None = None) -> bytes:
    """The body to send: the very same object, but for a `model` that a route gives, and for a chat stream that has to report its usage.

    `body` is the one that `asked` was read from. Every other byte stays as it was.
    """
    edits = [asked.usage_edit] if asked.usage_edit else []
    if model is not None and model != asked.model and asked.model_at:
        edits.append((asked.model_at, json.dumps(model).encode()))
    for (start, end), put in sorted(edits, reverse=True):
        body = b"".join((body[:start], put, body[end:]))
    return body


def _refused(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are no JSON")


def _whole(text: str) -> int:
    return int(_short(text))


def _real(text: str) -> float:
    return float(_short(text))


def _short(text: str) -> str:
    if len(text) > _DIGITS_MAX:
        raise ValueError("no number to reckon with")
    return text


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        raise ValueError("a member comes twice")
    return found


_decoder = json.JSONDecoder(parse_constant=_refused, parse_int=_whole, parse_float=_real)
_strict_decoder = json.JSONDecoder(parse_constant=_refused, parse_int=_whole, parse_float=_real, object_pairs_hook=_once)


def parsed(body: bytes, *, once: bool = False) -> tuple[str, _Members]:
    """The text, and the members of the object that it is. `once`: also no object inside may have a member twice. Raises BadRequest."""
    if len(body) > BRACKETS_MAX and _has_too_many_values(body):  # a shorter one cannot hold so many
        raise BadRequest(413, "the body has too many values.")
    try:
        text = body.decode()
        members, end = _object(text, _space(text, 0), _strict_decoder if once else _decoder)
        if _space(text, end) != len(text):
            raise BadRequest(400, "something follows the JSON object.")
    except UnicodeDecodeError:
        raise BadRequest(400, "the body is not UTF-8.") from None
    except RecursionError:
        raise BadRequest(400, "the JSON is nested too deep.") from None
    except ValueError:
        raise BadRequest(400, "the body is not a JSON object.") from None
    return text, members


def _has_too_many_values(body: bytes) -> bool:
    return body.count(b"[") + body.count(b"{") > BRACKETS_MAX or body.count(b",") > VALUES_MAX


def _object(text: str, start: int, decoder: json.JSONDecoder = _decoder) -> tuple[_Members, int]:
    """The members of the object that begins at `start`, and where it ends. Raises ValueError, RecursionError; BadRequest for a name that
    comes twice: the provider might take the one, and we the other."""
    if text[start : start + 1] != "{":
        raise ValueError("no object")
    place = _space(text, start + 1)
    members: dict[str, _Member] = {}
    if text[place : place + 1] == "}":
        return members, place + 1
    while True:
        name, place = _decoder.raw_decode(text, place)
        colon = _COLON.match(text, place)
        if not isinstance(name, str) or colon is None:
            raise ValueError("no member")
        if len(members) == MEMBERS_MAX:
            raise BadRequest(400, f"an object of the request has more than {MEMBERS_MAX} members.")
        if name in members:
            raise BadRequest(400, "a member of the JSON object comes twice.")
        value, end = decoder.raw_decode(text, colon.end())
        members[name] = _Member(value, colon.end(), end)
        after = _NEXT.match(text, end)
        if after is None:
            raise ValueError("no end of a member")
        if after[1] == "}":
            return members, after.start(1) + 1
        place = after.end()


def _space(text: str, place: int) -> int:
    """The first place from `place` on that is no white space."""
    match = _SPACE.match(text, place)
    return match.end() if match else place


def _in_bytes(text: str, body: bytes, span: Span) -> Span:
    """A span of the text as one of the body."""
    if len(text) == len(body):
        return span
    start = len(text[: span[0]].encode())
    return start, start + len(text[span[0] : span[1]].encode())


def model_name(value: object) -> str:
    """The name of a model. Raises BadRequest for what is none."""
    if not isinstance(value, str) or not value or len(value) > MODEL_CHARS or not value.isprintable():
        raise BadRequest(400, "model: a name of 1 to 200 printable characters is required.")
    return value


def _most_output(endpoint: Endpoint, values: Mapping[str, Any]) -> tuple[int | None, int]:
    """The most tokens of output over all choices, None when there is no limit; and the number of choices. Of two spellings the larger."""
    places = [values]
    if endpoint in (Endpoint.GENERATE, Endpoint.STREAM_GENERATE):
        places = [config for name in _CONFIGS if isinstance(config := values.get(name), dict)]
    limits = [tokens(place.get(name)) for place in places for name in _LIMITS.get(endpoint, ())]
    counts = [tokens(place.get(name)) for place in places for name in _CHOICES.get(endpoint, ())]
    choices = max((count for count in counts if count), default=1)
    most = max((limit for limit in limits if limit is not None), default=None)
    return None if most is None else min(most * choices, MAX_TOKENS), choices


def tokens(value: object) -> int | None:
    """A count that the client gives; None for none, and for -1, which some servers take for 'as many as you like'."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1 <= value <= MAX_TOKENS or value != int(value):
        raise BadRequest(400, "a number of tokens or choices is not a whole number that makes sense.")
    return int(value) if value >= 0 else None


def _session(headers: Mapping[str, str], values: Mapping[str, Any]) -> str:
    metadata = values.get("metadata")
    user_id = metadata.get("user_id") if isinstance(metadata, dict) else None
    said = (*(headers.get(name) for name in _SESSION_HEADERS), _session_of(user_id), values.get("prompt_cache_key"))
    return next((text for text in said if isinstance(text, str) and _SESSION.fullmatch(text)), "")


def _session_of(user_id: object) -> object:
    """Claude Code's session in `metadata.user_id`: a JSON text now, `user_..._session_<uuid>` in older versions."""
    if not isinstance(user_id, str) or len(user_id) > _USER_ID_MAX:
        return None
    if old := _OLD_USER_ID.search(user_id):
        return old[1]
    try:
        said = json.loads(user_id)
    except (ValueError, RecursionError):
        return None
    return said.get("session_id") if isinstance(said, dict) else None


def _usage_edit(text: str, members: _Members) -> tuple[Span, bytes] | None:
    """Where to put what into a chat request so that its stream reports usage; None when it does anyhow, or when it is no valid request."""
    options = members.get("stream_options")
    if options is None:
        inside = _space(text, 0) + 1
        return (inside, inside), b'"stream_options":{"include_usage":true},'
    if options.value is None:
        return (options.start, options.end), b'{"include_usage":true}'
    if not isinstance(options.value, dict):
        return None
    inner, _ = _object(text, options.start)
    wish = inner.get("include_usage")
    if wish is None:
        inside = options.start + 1
        return (inside, inside), b'"include_usage":true' + (b"," if inner else b"")
    return None if wish.value is True else ((wish.start, wish.end), b"true")


# Unbounded
# ---------
# Input that a request's body only names: its size is not that of the body, so nothing bounds what it costs.


_HINTS = re.compile(
    rb'"(?:url|image_url|file_id|file_url|file_data|fileUri|file_uri|item_reference|mcp_servers|application/pdf)"|"(?:mcp|file_search|code_)'
)
"""What stands in every body that names such input; most have none of it, and are not looked through."""
_UNBOUNDED_SENT = ("messages", "system", "input", "contents", "systemInstruction")
_NAMES = ("file_id", "file_url", "file_data", "fileUri", "file_uri")
_TOOLS = ("mcp", "file_search", "code_execution", "code_interpreter")
"""Tools that the provider runs and that read what it keeps."""
_OTHERS = {"tool_use": "input", "server_tool_use": "input", "mcp_tool_use": "input"}
"""Parts that hold what a model wrote for a tool: any JSON."""


def names_input(body: bytes) -> bool:
    """Whether a request, a JSON object, refers to a file, an address, a PDF or a tool whose text the provider adds. Costs a search through
    the body, and of a request with such a word in it that it is parsed: for requests that a cap holds for.

    A PDF counts although it is sent whole: a page of it is thousands of tokens in a few bytes. Searches in the web are not among it:
    agents offer them in every request, and docs/gateway.md says what that means.
    """
    if _HINTS.search(body) is None:
        return False
    values = json.loads(body)
    if values.get("mcp_servers"):
        return True
    tools = values.get("tools")
    named = [str(tool.get("type", "")) for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    return any(name.startswith(_TOOLS) for name in named) or any(map(_is_named, _parts([values.get(name) for name in _UNBOUNDED_SENT])))


def _parts(top: list[Any]) -> Iterator[dict[str, Any]]:
    """Every object below, but for what a model wrote."""
    rest = top
    while rest:
        value = rest.pop()
        if isinstance(value, list):
            rest.extend(value)
        elif isinstance(value, dict):
            yield value
            without = _OTHERS.get(str(value.get("type")))
            rest.extend(inner for name, inner in value.items() if name != without and isinstance(inner, dict | list))


def _is_named(part: dict[str, Any]) -> bool:
    image = part.get("image_url")
    address = image.get("url") if isinstance(image, dict) else image
    kind = part.get("media_type", part.get("mimeType", part.get("mime_type")))
    return (
        any(isinstance(part.get(name), str) for name in _NAMES)
        or (isinstance(address, str) and not address.startswith("data:"))
        or kind == "application/pdf"
        or part.get("type") in ("url", "item_reference")
        or part.keys() == {"id"}
    )
