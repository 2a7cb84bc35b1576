"""What heads of requests and answers say: words that change a price, limits, refusals, our own errors; and what no agent may see."""

from __future__ import annotations

import base64
import binascii
import functools
import html.entities
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from multidict import CIMultiDict

from supervisor.gateway.admission.types import NOTHING_OBSERVED, Level, Observed, Window
from supervisor.kernel.gateway_settings import Api

# Tiers
# -----
# Words of a request that change what its tokens cost, and the same words in its answer.
#
# Sources: Anthropic's pages on fast mode (2 to 6 times the price, by model) and data residency (1.1 times); OpenAI's and Google's
# on service tiers (flex: half the price; priority, which OpenAI also calls fast: more, by model).


_FACTORS: Mapping[Api, Mapping[str, Mapping[str, float]]] = {
    Api.ANTHROPIC: {
        "service_tier": {"auto": 1.0, "standard_only": 1.0},
        "speed": {"standard": 1.0},
        "inference_geo": {"global": 1.0, "not_available": 1.0, "us": 1.1},
    },
    Api.OPENAI: {"service_tier": {"auto": 1.0, "default": 1.0, "standard": 1.0, "flex": 0.5}},
    Api.GEMINI: {"service_tier": {"unspecified": 1.0, "standard": 1.0, "flex": 0.5}},
}
"""Word -> value -> times the price of the table. Any other value has a price that is not known."""
_AT_HOME = frozenset({"https://api.openai.com", "https://generativelanguage.googleapis.com"})
"""Where a tier that costs less is known to: elsewhere the same word may cost the whole price."""

PriceWords = Mapping[str, str]


def price_words(api: Api, values: Mapping[str, Any]) -> PriceWords:
    """Return the words of a request's members."""
    places = [values]
    if api is Api.GEMINI:
        places += [config for name in ("generationConfig", "generation_config") if isinstance(config := values.get(name), dict)]
    return {word: said for place in places for word, said in price_words_told(api, place).items()}


def price_words_told(api: Api, values: Mapping[str, Any]) -> PriceWords:
    """Return the words of one object, in a request or in its answer. A value that is no text counts as one that nobody knows."""
    found = {}
    for word in _FACTORS[api]:
        value = values.get(word, values.get("serviceTier") if word == "service_tier" and api is Api.GEMINI else None)
        if value is not None:
            found[word] = value.lower().removeprefix("service_tier_")[:40] if isinstance(value, str) else "?"
    return found


def price_factor(api: Api, words: PriceWords, url: str = "") -> float | None:
    """Return how many times the price of the table holds; None if nobody knows. `url` is the upstream's: discounts count at `_AT_HOME`."""
    found = 1.0
    for word, value in words.items():
        times = _FACTORS[api][word].get(value)
        if times is None:
            return None
        found *= times if times >= 1.0 or url in _AT_HOME else 1.0
    return found


def dear_word(api: Api, words: PriceWords) -> str:
    """Return the word and value whose price is not known, for people; empty if there is none."""
    return next((f"{word} {value!r}" for word, value in words.items() if value not in _FACTORS[api][word]), "")


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


_KEY_HEADERS = ("x-api-key", "x-goog-api-key", "api-key")


def carried(headers: Mapping[str, str]) -> Iterator[str]:
    """Each key that the headers carry, without the scheme."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        yield _password(value)
    elif value.strip():
        yield value.strip()
    yield from (text for name in _KEY_HEADERS if (text := headers.get(name, "").strip()))


def _password(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode("utf-8", "replace").partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


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


# Masking
# -------
# What an answer must not carry to an agent: our own key, and headers that no client could take. Everything else passes unchanged.


SECRET_LEAST = 16
"""Characters. A shorter key is a word like `ollama`, which a local server wants and which normal answers may contain."""
FIELD_MAX = 8000
"""Bytes of one header's value: aiohttp's and others' clients read lines up to 8,190."""
HEADERS_MAX = 12 * 2**10
"""Bytes of all headers. Node, and so Claude Code, reads 16 KiB with the status line."""
_ODD = re.compile(r"[^\t -~\x80-\ud7ff\ue000-\U0010ffff]")
"""Control characters, and the lone surrogates that stand for bytes that are no UTF-8. Nothing can write them again."""
_REASON = re.compile(r"[\t -~]{0,200}")


def mask(length: int) -> str:
    """What stands in the place of a secret of that length, so that no Content-Length changes."""
    return "[hidden]".ljust(length, "*")[:length]


class _Forms:
    """One key as it may stand in an answer: plain, in base64, in hexadecimal digits, or any of its characters as `\\uXXXX`, `\\u{X}`,
    `\\xXX`, `\\OOO`, `%XX`, `\\/` or an entity of HTML, with or without its semicolon, also escaped once more."""

    def __init__(self, key: bytes) -> None:
        steps = [_step(byte) for byte in key]
        self._whole = re.compile(b"".join(steps))
        self._steps = [re.compile(step) for step in steps]
        self._first = re.compile(b"[%s%%&\\\\]" % re.escape(key[:1]))
        self._marks = [*_MARKS, *((b"\\/",) if b"/" in key else ()), *(name for byte in set(key) for name in _ENTITIES.get(byte, ()))]
        digits = key.hex().encode()
        self._encoded = tuple(dict.fromkeys((*in_base64(key), digits, digits.upper())))
        self.longest = _STEP_MAX * len(key)

    def may_be_in(self, text: bytes) -> bool:
        """Tell quickly whether `text` can hold an escaped or encoded key."""
        if (b"%" in text or b"\\" in text or b"&" in text) and any(mark in text for mark in self._marks):
            return True
        return any(map(text.__contains__, self._encoded))

    def without(self, text: bytes) -> bytes:
        """Mask each key in `text`; the same object if there is none. A number of an entity that ends `text` may go on and is none yet."""
        cleaned, count = self._whole.subn(lambda found: mask(len(found[0])).encode(), text)
        for form in self._encoded:
            if form in cleaned:
                cleaned, count = cleaned.replace(form, mask(len(form)).encode()), 1
        return cleaned if count else text

    def begun(self, text: bytes) -> int:
        """Return where a key may have begun that the end of `text` cuts; the length of `text` for nowhere."""
        for found in self._first.finditer(text, max(0, len(text) - self.longest)):
            if self._is_begun(text, found.start()):
                return min(found.start(), self._begun_encoded(text))
        return self._begun_encoded(text)

    def _begun_encoded(self, text: bytes) -> int:
        begun = len(text)
        for form in self._encoded:
            at = text.find(form[:1], max(0, len(text) - len(form) + 1))
            while at >= 0 and not form.startswith(text[at:]):
                at = text.find(form[:1], at + 1)
            begun = min(begun, at) if at >= 0 else begun
        return begun

    def _is_begun(self, text: bytes, at: int) -> bool:
        for step in self._steps:
            found = step.match(text, at)
            if found is None:
                return _CUT_ESCAPE.fullmatch(text, at) is not None
            at = found.end()
        return False


def in_base64(key: bytes) -> Iterator[bytes]:
    """The part of each base64 text of `key` that does not depend on what stands around it: it may begin at any byte of three."""
    for before in range(3):
        text = base64.b64encode(bytes(before) + key).rstrip(b"=")
        inner = text[-(-before * 4 // 3) : -1]
        yield inner
        yield inner.translate(_URL_SAFE)


_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_ENTITIES: dict[int, list[bytes]] = {}
for _name, _char in html.entities.html5.items():
    if _name.endswith(";") and _char.isascii() and len(_char) == 1:
        _ENTITIES.setdefault(ord(_char), []).append(f"&{_name}".encode())
_MARKS = (b"%", b"\\u00", b"\\u{", b"\\x", b"\\0", b"\\1", b"&#", b"&amp;")
_STEP_MAX = 20
"""Bytes of one character in its longest form: `&amp;amp;#x0000073;`."""
_CUT_ESCAPE = re.compile(
    rb"(?:\\{1,4}(?:u005[Cc])?(?:u(?:\{?[0-9A-Fa-f]{0,6})|x[0-9A-Fa-f]?|[01][0-7]?)?|%[0-9A-Fa-f]{0,7}|&[#;A-Za-z0-9]{0,18})?"
)
"""What may be the beginning of an escaped character."""


def _step(byte: int) -> bytes:
    """The pattern of one byte of a key."""
    digits = b"".join(b"[%c%c]" % (digit, digit - 32) if digit > 57 else b"%c" % digit for digit in b"%02x" % byte)
    slash = rb"|\\{1,4}/" if byte == ord("/") else b""
    escaped = rb"\\{1,4}(?:u005[Cc])?(?:u00%s|x%s|u\{0{0,4}%s\}|%03o)" % (digits, digits, digits, byte)
    named = b"".join(b"|" + name[1:] for name in _ENTITIES.get(byte, ()))
    entity = rb"&(?:amp;){0,2}(?:(?:#0{0,4}%d|#[xX]0{0,4}%s)(?:;|(?=[^;]))%s)" % (byte, digits, named)
    return rb"(?:%s|%%(?:25){0,3}%s|%s|%s%s)" % (re.escape(bytes([byte])), digits, escaped, entity, slash)


@functools.lru_cache(maxsize=64)
def _forms(key: bytes) -> _Forms:
    return _Forms(key)


class _Fragments:
    """Finds a key that several texts of JSON hold one after another, as the deltas of a stream do.

    A fragment ends a text, and the next text begins with what follows it in the key. Whole events are not kept back, so the first
    `least` - 1 characters pass; every fragment with which `least` or more are known is masked. A fragment of less than `_FRAGMENT`
    characters is only seen at the key's end: every other word ends with the first letter of a key.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._least = min(SECRET_LEAST, len(key) // 2)
        begins = b"".join(re.escape(bytes([byte])) for byte in sorted(set(key)))
        self._closing = re.compile(b'%s[%s]*"' % (re.escape(key[:_FRAGMENT]), begins)) if key else _NOTHING
        """Finds the quotes behind which the key may go on, and more: much is checked at once."""
        self._opening = tuple((size, b'"' + key[size : size + _FRAGMENT]) for size in range(1, _FRAGMENT))
        """What follows a first fragment that was too short to be seen, by its size."""
        self._ends: dict[int, list[int]] = {}
        for size in range(len(key) - 1, _FRAGMENT - 1, -1):
            self._ends.setdefault(key[size - 1], []).append(size)
        self._known: dict[int, int] = {}
        """Characters of the key that a text ended with, and the number of the line after which that counts no more."""
        self._lines = 0

    def begun(self, text: bytes) -> int:
        """Return where the end of `text` cuts what may be a fragment; the length of `text` for nowhere."""
        quote = text.rfind(b'"', max(0, len(text) - len(self._key) - 1))
        rest = text[quote + 1 :]
        if quote >= 0 and any(self._key.startswith(rest, size) for size in (*self._known, *range(1, _FRAGMENT))):
            return quote
        return len(text)

    def without(self, text: bytes, end: int) -> bytes:
        """Return `text[:end]` with its fragments masked; the same object if `text` ends there and has none. The rest comes again, as the
        beginning of the next text."""
        if not self._known and self._key[:_FRAGMENT] not in text and self._opening[0][1] not in text and self._opening[1][1] not in text:
            return text if end == len(text) else text[:end]
        masked, at, line = bytearray(text), 0, self._lines
        while (quote := self._next(text, at, end)) >= 0:
            line += text.count(b"\n", at, quote)
            found = [(quote - size, quote, size) for size in self._ended(text, quote)]
            for begin, until, size in [*found, *(self._continued(text, quote, line) if quote < end else ())]:
                if size >= self._least:
                    masked[begin:until] = mask(until - begin).encode()
                if size < len(self._key):
                    self._known[size] = line + _FRAGMENT_LINES
            at = quote + 1
        self._lines = line + text.count(b"\n", at, end)
        self._known = {size: last for size, last in self._known.items() if last >= self._lines}
        return bytes(masked[:end]) if end < len(text) or masked != text else text

    def _next(self, text: bytes, at: int, end: int) -> int:
        """Return where the next quote stands, from `at` to `end`, before or behind which a fragment may be; -1 for nowhere."""
        closing = self._closing.search(text, at)
        places = [closing.end() - 1 if closing is not None else -1]
        places += [text.find(b'"' + self._key[size : size + _FRAGMENT], at) for size in self._known]
        places += [text.find(mark, at) for _, mark in self._opening]
        return min((place for place in places if 0 <= place <= end), default=-1)

    def _continued(self, text: bytes, at: int, line: int) -> Iterator[tuple[int, int, int]]:
        """The fragments (begin, end, characters known with it) in the text that the quote at `at` opens."""
        begun = [(size, line) for size, mark in self._opening if text.startswith(mark, at)]
        for known, last in [*self._known.items(), *begun]:
            rest, size = self._key[known:], 0
            while last >= line and size < len(rest) and text[at + 1 + size : at + 2 + size] == rest[size : size + 1]:
                size += 1
            if size == len(rest) or (size and text[at + 1 + size : at + 2 + size] == b'"'):
                yield at + 1, at + 1 + size, known + size

    def _ended(self, text: bytes, at: int) -> Iterator[int]:
        """How many characters of the key's beginning end at the quote at `at`."""
        sizes = self._ends.get(text[at - 1], ()) if at else ()
        return (size for size in sizes if text.endswith(self._key[:size], max(0, at - size), at))


_FRAGMENT = 3
_NOTHING = re.compile(b"(?!)")
_FRAGMENT_LINES = 12
"""Lines between two fragments: an event has three, and a ping may stand between."""


class KeyFilter:
    """Takes one key, plain, escaped or encoded, out of the bytes of an answer while they pass, also where it is split over several pieces.

    The end of a piece that could be the key's beginning is kept until the next piece tells. A server-sent event ends with a line break,
    which is in no key, so no whole event is ever kept back.
    """

    def __init__(self, key: str) -> None:
        """A key of less than `SECRET_LEAST` characters is not looked for."""
        self._key = key.encode("utf-8", "surrogateescape") if len(key) >= SECRET_LEAST else b""
        self._forms = _forms(self._key)
        self._fragments = _Fragments(self._key)
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """What may pass now: the piece itself, the same object, when nothing of the key is in it."""
        if not self._key:
            return piece
        if self._held:
            piece = self._held + piece
            self._held = b""
        if self._key in piece or self._forms.may_be_in(piece):
            piece = self._forms.without(piece)
        begun = len(piece)
        if not piece.endswith(b"\n"):
            begun = min(self._forms.begun(piece), self._fragments.begun(piece))
            self._held = piece[begun:]
        return self._fragments.without(piece, begun)

    def finish(self) -> bytes:
        """Return what was kept back: the answer has ended."""
        held, self._held = self._held, b""
        return self._forms.without(held + b"\n")[:-1]


def _cleaned(text: str, key: str) -> str:
    """`text` of a header without the key; the same object if there is none."""
    if len(key) < SECRET_LEAST:
        return text
    line = text.encode("utf-8", "surrogateescape") + b"\n"
    forms = _forms(key.encode("utf-8", "surrogateescape"))
    cleaned = forms.without(line)
    return text if cleaned is line else cleaned[:-1].decode("utf-8", "surrogateescape")


def _is_named(text: str, key: str) -> bool:
    """Whether the key stands in names of headers, which have no case."""
    return len(key) >= SECRET_LEAST and (key.lower() in text.lower() or _cleaned(text, key) is not text)


def passable(headers: Mapping[str, str], key: str) -> Mapping[str, str]:
    """An answer's headers without those that would break the client's side, and without our key; the same object when all are good.

    Left out are values that no client could read, the longest ones of more than `HEADERS_MAX` together, headers with our key in their
    name, and headers that `Connection` names: they belong to the provider's connection (RFC 9110, 7.6.1).
    """
    text, names = " ".join(headers.values()), " ".join(headers)
    named = _is_named(names, key)
    if not named and len(text) < FIELD_MAX and "Connection" not in headers and not _ODD.search(text) and _cleaned(text, key) is text:
        return headers
    hops = {name.strip().lower() for name in headers.get("Connection", "").split(",")} - {"close", "keep-alive", "content-length"}
    kept = [(name, value) for name, value in headers.items() if name.lower() not in hops and not _ODD.search(value)]
    kept = [(name, _cleaned(value, key)) for name, value in kept if _size("", value) <= FIELD_MAX and not (named and _is_named(name, key))]
    while kept and sum(_size(name, value) for name, value in kept) > HEADERS_MAX:
        kept.remove(max(kept, key=lambda one: _size(*one)))
    return CIMultiDict(kept)


def reason(said: str | None, key: str) -> str | None:
    """The words beside a status; None, the standard's own, for those that no client could read or that hold our key."""
    good = said is not None and _REASON.fullmatch(said) and _cleaned(said, key) is said
    return said if good else None


def _size(name: str, value: str) -> int:
    """Bytes of a header's line."""
    return len(name) + len(value.encode("utf-8", "surrogateescape")) + 4
