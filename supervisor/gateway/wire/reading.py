"""What a request asks for, and the only two ways in which its body is ever changed.

A body is walked once, member by member of its outermost object; each value is parsed by the standard library's scanner, which also says
where it ends. So the place of `model` is known to the byte, whatever stands around it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from supervisor.core.gateway.models import LONG_CONTEXT_BYTES
from supervisor.core.gateway.types import Api
from supervisor.gateway.wire import tiers
from supervisor.gateway.wire.asked import Asked, BadRequest, Endpoint, Recognised, Span

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
        tuple(tiers.asked(api, values).items()),
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
