"""A provider that has the key writes it into its answers in every way that docs/gateway.md and docs/safety.md name.

The author read the documentation and not the code. One gateway serves all tests; the provider and the client speak bytes, so that
nothing between them hides what was sent. A reader looks for the key in what the client received: as it came, and with the escapes,
the entities, the base64 and the compression undone.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import random
import re
import tempfile
import urllib.parse
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from supervisor.host import files
from tests import rounds
from tests.independent.raw_provider import (
    PATHS,
    RawProvider,
    Reply,
    anthropic_stream,
    anthropic_texts,
    ask,
    block_delta,
    block_start,
    block_stop,
    chat_chunk,
    chat_message,
    chat_stream,
    chunked,
    cut,
    data_lines,
    event,
    gemini_chunk,
    http_reply,
    message,
    message_of_blocks,
    message_of_raw,
    question,
    raw_provider,
    responses_stream,
    taken_apart,
)
from tests.support import House, make_repository, shell_task, wait_until

KEYS = {
    "anthropic": "sk-ant-api03-T7r_9Kq2-ZxWv81Lm-pQe5Rt6Yu_bN3oHAA",
    "openai": "sk-proj-9f/Xc2+Vb7Nm=Lk4Jh5Gf6Ds8Aq_Zw",
    "gemini": "AIzaSyD-trial8_3kQxPz71LmNoRs5TuVw9XyZ",
}
KEY, OPENAI_KEY, GEMINI_KEY = KEYS["anthropic"], KEYS["openai"], KEYS["gemini"]
EVENTS = "text/event-stream"


@dataclass(frozen=True)
class Case:
    """An answer with the key in it, and the request that gets it. `status`: what the client is told, where that is promised."""

    reply: Reply
    api: str = "anthropic"
    path: str = ""
    stream: bool = False
    method: str = "POST"
    status: int | None = 200


def whole(text: str, *, status: int | None = 200) -> Case:
    """An answer in JSON with this text."""
    return Case(http_reply(message(text)), status=status)


def whole_raw(text: str) -> Case:
    """An answer in JSON with this text as it stands there, escapes included."""
    return Case(http_reply(message_of_raw(text)))


def streamed(body: str, kind: str = EVENTS, *, chunk: int = 0, piece: int = 0) -> Case:
    """A stream of Anthropic's."""
    return Case(http_reply(body, kind, chunk=chunk, piece=piece), stream=True)


# The reader -----------------------------------------------------------------------------------------------------------------------

TEXT_KEYS = frozenset(
    ("text", "partial_json", "thinking", "signature", "content", "arguments", "delta", "reasoning_content", "refusal", "input", "a")
)
ESCAPE = re.compile(r"\\+(?:u\{?([0-9a-fA-F]{2,4})\}?|x([0-9a-fA-F]{2})|([0-7]{3})|(/))")


def texts_in(shape: object) -> Iterator[tuple[str, str]]:
    """Find the texts of a piece of a stream, each with the index that it belongs to."""
    if isinstance(shape, list):
        for item in shape:
            yield from texts_in(item)
    if not isinstance(shape, dict):
        return
    index = str(shape.get("index", ""))
    for key, value in shape.items():
        if isinstance(value, str) and key in TEXT_KEYS:
            yield index, value
        else:
            yield from ((index or inner, text) for inner, text in texts_in(value))


def joined_texts(body: str) -> Iterator[str]:
    """Put the texts of a stream together: all in their order, and those of each index alone."""
    pieces: list[tuple[str, str]] = []
    events = re.split(r"(?:\r\n|\r|\n){2,}", body)
    for one in events:
        lines = [line.removeprefix("data:") for line in re.split(r"\r\n|\r|\n", one) if line.startswith("data:")]
        with suppress(ValueError):
            pieces += texts_in(json.loads("\n".join(lines)))
    yield "".join(text for _, text in pieces)
    for index in {index for index, _ in pieces}:
        yield "".join(text for each, text in pieces if each == index)


def strings_in(shape: object) -> Iterator[str]:
    """Find every string of a JSON value."""
    if isinstance(shape, str):
        yield shape
    elif isinstance(shape, list):
        for item in shape:
            yield from strings_in(item)
    elif isinstance(shape, dict):
        for key, value in shape.items():
            yield key
            yield from strings_in(value)


def decompressed(body: bytes) -> Iterator[bytes]:
    """Decompress bytes in every way that fits, also twice."""
    for bits in (31, 15, -15):  # gzip, zlib, deflate without a head
        held, inner = body, b""
        with suppress(zlib.error):
            while held:  # members of gzip may follow each other
                one = zlib.decompressobj(bits)
                inner += one.decompress(held)
                held = one.unused_data
        if inner:
            yield inner
            yield from decompressed(inner)


def without_escapes(text: str) -> str:
    r"""Undo `\uXXXX`, `\u{XX}`, `\xXX`, `\OOO` and `\/`, each with any number of backslashes."""

    def character(found: re.Match[str]) -> str:
        if found[4]:
            return "/"
        return chr(int(found[3], 8)) if found[3] else chr(int(found[1] or found[2], 16))

    return ESCAPE.sub(character, text)


def without_base64(text: str) -> str:
    """Decode every long run of base64, from each of the four places where a group may begin."""
    found = []
    for run in re.findall(r"[A-Za-z0-9+/_=-]{24,}", text):
        for start in range(4):
            part = run[start:].replace("-", "+").replace("_", "/").partition("=")[0]
            part = part[:-1] if len(part) % 4 == 1 else part
            found.append(base64.b64decode(part + "=" * (-len(part) % 4)).decode("latin-1"))
    return "|".join(found)


def without_hexadecimal(text: str) -> str:
    """Decode every long run of hexadecimal digits, from both places where a byte may begin."""
    found = []
    for run in re.findall(r"[0-9a-fA-F]{24,}", text):
        for start in range(2):
            part = run[start:]
            found.append(bytes.fromhex(part[: len(part) // 2 * 2]).decode("latin-1"))
    return "|".join(found)


def everything_undone(text: str) -> str:
    """Undo escapes, percent signs and entities all at once, as for a key that is written in several of these ways."""
    return without_escapes(urllib.parse.unquote(html.unescape(text)))


UNDO: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "percent signs": urllib.parse.unquote,
    "entities": html.unescape,
    "entities twice": lambda text: html.unescape(html.unescape(text)),
    "escapes": without_escapes,
    "escapes twice": lambda text: without_escapes(without_escapes(text)),
    "escapes, percent signs and entities": everything_undone,
    "base64": without_base64,
    "base64 behind escapes": lambda text: without_base64(everything_undone(text)),
    "hexadecimal digits": without_hexadecimal,
    "UTF-16 or UTF-32": lambda text: text.replace("\0", ""),
    "UTF-7": lambda text: re.sub(r"\+([A-Za-z0-9+/]*)-", lambda found: utf_7(found[0]), text),
}


def utf_7(text: str) -> str:
    """Decode a shifted part of UTF-7, or leave it."""
    try:
        return text.encode().decode("utf-7")
    except UnicodeError:
        return text


def readings(raw: bytes) -> Iterator[tuple[str, str]]:
    """Read an answer in every way that a clever client might."""
    answer = taken_apart(raw)
    bodies = [answer.body, *decompressed(answer.body)]
    yield "the raw bytes", raw.decode("latin-1")
    for body in bodies:
        text = body.decode("utf-8", "replace")
        yield "the body", text
        for joined in joined_texts(text):
            yield "the texts of the stream", joined
        with suppress(ValueError):
            yield "the strings of the JSON", "\n".join(strings_in(json.loads(text)))


def found_in(raw: bytes, key: str) -> list[str]:
    """Name the readings of an answer that show the key."""
    found = []
    for place, text in readings(raw):
        found += [f"{place}: {way}" for way, undo in UNDO.items() if key in undo(text)]
    return found


# Answers with the key in them -----------------------------------------------------------------------------------------------------


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def escaped(text: str, only: str | None = None) -> str:
    r"""Write characters as `\uXXXX`: all of them, or those of `only`."""
    return "".join(f"\\u{ord(char):04x}" if only is None or char in only else char for char in text)


def in_percents(text: str) -> str:
    return "".join(f"%{ord(char):02X}" for char in text)


def in_entities(text: str) -> str:
    return "".join(f"&#{ord(char)};" for char in text)


def four_ways(text: str) -> str:
    """Write each character in one of four ways, in turn."""
    ways: list[Callable[[str], str]] = [str, escaped, in_percents, in_entities]
    return "".join(ways[at % 4](char) for at, char in enumerate(text))


def spellings() -> dict[str, Case]:
    """The key in the text of a whole answer."""
    capitals = escaped(KEY).upper().replace("\\U", "\\u")
    third = "".join(f"%{ord(char):02x}" if at % 3 else char for at, char in enumerate(KEY))
    in_text = {
        "plain": KEY,
        "base64": in_base64(KEY),
        "base64 after one byte": in_base64("a" + KEY),
        "base64 between bytes": in_base64(f"ab{KEY}zz"),
        "base64 for URLs": base64.urlsafe_b64encode(b"key=" + KEY.encode()).decode().rstrip("="),
        "base64 of a login": in_base64(f"user:{KEY}"),
        "base64 with percent signs": urllib.parse.quote(in_base64(KEY), safe=""),
        "hexadecimal digits": KEY.encode().hex(),
        "capital hexadecimal digits": KEY.encode().hex().upper(),
        "hexadecimal digits after 0x": "0x" + KEY.encode().hex(),
        "hexadecimal digits of a longer text": f"user:{KEY}!".encode().hex(),
        "percent signs for some": KEY.replace("-", "%2D").replace("_", "%5f"),
        "percent signs": in_percents(KEY),
        "percent signs for two of three": third,
        "decimal entities": in_entities(KEY),
        "hexadecimal entities": "".join(f"&#x{ord(char):x};" for char in KEY),
        "entities with zeros": KEY.replace("-", "&#0045;").replace("_", "&#x05F;"),
        "entities for some": KEY.replace("-", "&#45;"),
        "entities without semicolon": KEY.replace("-", "&#45"),
        "a named entity": KEY.replace("_", "&lowbar;"),
        "another named entity": KEY.replace("_", "&UnderBar;"),
        "entities in entities": KEY.replace("-", "&amp;#45;"),
    }
    in_json = {
        "u": escaped(KEY),
        "u for some": escaped(KEY, "-_"),
        "u in capitals": capitals,
        "u with two backslashes": escaped(KEY, "-_").replace("\\", "\\\\"),
        "u with four backslashes": escaped(KEY, "-_").replace("\\", "\\" * 4),
        "u with braces": KEY.replace("-", "\\\\u{2d}"),
        "u whose backslash is escaped": KEY.replace("-", "\\u005cu002d"),
        "x": "".join(f"\\\\x{ord(char):02x}" for char in KEY),
        "x for some": KEY.replace("-", "\\\\x2d"),
        "octal": "".join(f"\\\\{ord(char):03o}" for char in KEY),
        "four ways": four_ways(KEY),
        "base64 with escapes of JSON": base64.b64encode(b"\xff\xff?" + KEY.encode()).decode().replace("/", "\\/").replace("=", "\\u003d"),
    }
    return {
        **{name: whole(f"Your key: {text}!") for name, text in in_text.items()},
        **{name: whole_raw(text) for name, text in in_json.items()},
    }


def fragments() -> dict[str, Case]:
    """The key in the deltas of a stream, in fragments of three characters and more."""
    cases = {}
    for size in (3, 4, 5, 7, 11, 16, 24, 40):
        parts = cut(KEY, size)
        if len(parts[-1]) < 3:  # shorter than what is promised
            parts[-2:] = ["".join(parts[-2:])]
        cases[f"text, {size}"] = streamed(anthropic_texts(["hello ", *parts, " end"]), chunk=300)
        cases[f"input of a tool, {size}"] = streamed(anthropic_texts(['{"command":"echo ', *parts, '"}'], "json"))
        cases[f"thinking, {size}"] = streamed(anthropic_texts(["ok ", *parts, "."], "thinking"), piece=97)
    for moved in range(6):
        at = 20 - moved
        cases[f"text before and behind, {at}"] = streamed(anthropic_texts(["pre" + KEY[:at], KEY[at:] + "post"]))
    parts = cut(KEY, 8)
    cases["signature"] = streamed(anthropic_texts(parts, "signature"))
    cases["empty texts between"] = streamed(anthropic_texts(["a ", *(text for part in parts for text in (part, ""))]))
    cases["uneven fragments"] = streamed(anthropic_texts([KEY[:3], KEY[3:10], KEY[10:13], KEY[13:30], KEY[30:33], KEY[33:]]))
    cases["the key three times"] = streamed(anthropic_texts([*parts, *parts, " ", *cut(KEY, 6)]))
    cases["escaped in one delta"] = streamed(anthropic_texts(["a", "@@", "b"]).replace("@@", escaped(KEY)))
    ping = event("ping", {})
    deltas = [block_delta(text) for text in ("a ", KEY[:9], KEY[9:25])]
    cases["a ping between"] = streamed(anthropic_stream(block_start(), *deltas, ping, block_delta(KEY[25:]), block_stop()))
    noise = [block_delta(text, index=index) for part in cut(KEY, 6) for index, text in ((0, part), (1, "noise and noise"))]
    cases["two blocks in turns"] = streamed(anthropic_stream(block_start(), block_start(index=1), *noise, block_stop(), block_stop(1)))
    blocks = ["".join((block_start(index=at), block_delta(part, index=at), block_stop(at))) for at, part in enumerate(parts)]
    cases["a block for each fragment"] = streamed(anthropic_stream(*blocks))
    empty = '"content_block": {"type": "text", "text": ""}'
    begun = anthropic_texts(parts[2:]).replace(empty, empty[:-2] + parts[0] + parts[1] + '"}')
    cases["the first fragment in the start of the block"] = streamed(begun)
    return cases


def stream_framing() -> dict[str, Case]:
    """The key in a stream that is written in another way than the provider's own."""
    plain = anthropic_texts(["a ", *cut(KEY, 8)])
    two_lines = plain.replace('data: {"type": "content_block_delta", ', 'data: {"type": "content_block_delta",\ndata: ')
    assert two_lines != plain
    bodies = {
        "CRLF": plain.replace("\n", "\r\n"),
        "CR": plain.replace("\n", "\r"),
        "a byte order mark": "\ufeff" + plain,
        "no space before the data": plain.replace("data: ", "data:"),
        "spaces in the JSON": plain.replace('{"type"', '{  "type"').replace('": ', '" : '),
        "data on two lines": two_lines,
        "no names of events": re.sub(r"event: .*\n", "", plain),
        "escapes in the names of JSON": plain.replace('"text":', '"\\u0074ext":'),
        "no type in the delta": plain.replace('{"type": "text_delta", "text"', '{"text"'),
        "a name of JSON twice": plain.replace('"type": "text_delta", ', '"type": "text_delta", "text": "zzz", '),
        "a comment": f": {KEY}\n\n" + anthropic_texts(["a"]),
        "a name of an event": f"event: {KEY}\ndata: {{}}\n\n" + anthropic_texts(["a"]),
        "an id": f"id: {KEY}\n" + anthropic_texts(["a"]),
        "an error": anthropic_texts(["a"]) + event("error", {"error": {"type": "x", "message": f"bad key {KEY}"}}),
    }
    cases = {name: streamed(body) for name, body in bodies.items()}
    cases["called JSON"] = streamed(plain, "application/json")
    cases["called plain text"] = streamed(plain, "text/plain")
    for size in (1, 7, 33):
        cases[f"whole answer in pieces of {size}"] = Case(http_reply(message(f"k {KEY}"), piece=size))
        cases[f"whole answer in chunks of {size}"] = Case(http_reply(message(f"k {KEY}"), chunk=size))
    for size in (5, 33):
        cases[f"stream in pieces of {size}"] = streamed(anthropic_texts([f"k {KEY}"]), piece=size)
    return cases


def headers() -> dict[str, Case]:
    """The key in the head of an answer."""
    spelled = {
        "plain": KEY,
        "base64": in_base64(KEY),
        "login": "Basic " + in_base64(f"user:{KEY}"),
        "hexadecimal digits": KEY.encode().hex(),
        "percent signs": in_percents(KEY),
        "percent signs for some": KEY.replace("-", "%2D").replace("_", "%5f"),
        "entities": in_entities(KEY),
        "u": escaped(KEY),
        "x": KEY.replace("-", "\\x2d"),
    }
    cases = {}
    for name, text in spelled.items():
        for field, value in (("X-Debug", text), ("Set-Cookie", f"k={text}; Path=/"), ("request-id", text)):
            cases[f"{field}, {name}"] = Case(http_reply(message("a"), fields=[(field, value)]))
    cases["the name of a header"] = Case(http_reply(message("a"), fields=[(KEY, "v")]))
    cases["the reason"] = Case(http_reply(message("a"), status=f"200 {KEY}"))
    cases["the content type"] = Case(http_reply(message("a"), f"application/json; k={KEY}"))
    return cases


def errors_and_redirects() -> dict[str, Case]:
    """The key in an error, in a redirect and in other answers than a message."""
    cases = {}
    told = f"key {KEY} {in_base64(KEY)} {in_percents(KEY)} {KEY.encode().hex()}"
    for status in ("400 Bad Request", "403 Forbidden", "404 Not Found", "413 Too Large", "422 Unprocessable"):
        shape = {"type": "error", "error": {"type": "invalid", "message": told}}
        cases[f"{status}, JSON"] = Case(http_reply(json.dumps(shape), status=status), status=int(status[:3]))
        page = f"<html>{in_entities(KEY)} {KEY}"
        cases[f"{status}, a page"] = Case(http_reply(page, "text/html", status=status), status=int(status[:3]))
    to = f"https://127.0.0.1:1/?k={in_percents(KEY)}&{KEY}"
    for status in ("300 Choices", "301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"):
        cases[status] = Case(http_reply(f"see {KEY}", status=status, fields=[("Location", to)]), status=502)
    cases["304 Not Modified"] = Case(http_reply("", status="304 Not Modified", fields=[("Location", to)]), status=None)
    to_itself = [("Location", f"/v1/messages?k={KEY}")]
    cases["a redirect to the same place"] = Case(http_reply("", status="307 Temporary", fields=to_itself), status=502)
    cases["a list of models"] = Case(http_reply(json.dumps({"data": [{"id": KEY}]})), path="/v1/models", method="GET")
    counted = json.dumps({"input_tokens": 3, "k": KEY})
    cases["a count of tokens"] = Case(http_reply(counted), path="/v1/messages/count_tokens")
    listed = json.dumps({"data": [], "k": KEY})
    cases["a list of batches"] = Case(http_reply(listed), path="/v1/messages/batches", method="GET", status=None)
    return cases


def encodings() -> dict[str, Case]:
    """The key in an answer that is compressed."""
    body = message(f"k {KEY} {in_base64(KEY)}").encode()
    readable = {
        "gzip": (gzip.compress(body), "gzip"),
        "x-gzip": (gzip.compress(body), "x-gzip"),
        "gzip in two members": (gzip.compress(body[:60]) + gzip.compress(body[60:]), "gzip"),
        "deflate": (zlib.compress(body), "deflate"),
        "deflate without head": (deflated(body), "deflate"),
    }
    refused = {
        "gzip twice": (gzip.compress(gzip.compress(body)), "gzip, gzip"),
        "not brotli": (body, "br"),
        "not zstd": (body, "zstd"),
        "an unknown encoding": (body, "rot13"),
    }
    cases = {}
    for name, (data, encoding) in readable.items():
        cases[name] = Case(http_reply(data, encoding=encoding))
        cases[f"{name}, in chunks"] = Case(http_reply(data, encoding=encoding, chunk=11))
    for name, (data, encoding) in refused.items():
        cases[name] = Case(http_reply(data, encoding=encoding), status=502)
    stream = gzip.compress(anthropic_texts(["a ", *cut(KEY, 8)]).encode())
    cases["stream in gzip"] = Case(http_reply(stream, EVENTS, encoding="gzip", chunk=50), stream=True)
    return cases


def deflated(body: bytes) -> bytes:
    """Compress without a head."""
    one = zlib.compressobj(wbits=-15)
    return one.compress(body) + one.flush()


def unreadable() -> dict[str, Case]:
    """The key in an answer that cannot be what it says: the gateway asks again, until it gives up."""
    body = message(f"k {KEY} {in_base64(KEY)}").encode()
    stream = gzip.compress(anthropic_texts(["a ", *cut(KEY, 8)]).encode())
    replies = {
        "not gzip": http_reply(body, encoding="gzip", chunk=11),
        "gzip that says nothing": http_reply(gzip.compress(body)),
        "deflate that says nothing": http_reply(zlib.compress(body), chunk=11),
        "deflate without head that says nothing": http_reply(deflated(body)),
        "gzip that says identity": http_reply(gzip.compress(body), encoding="identity"),
        "octets": http_reply(b"\xff\xfe" + KEY.encode() + b"\x00", "application/octet-stream"),
        "no HTTP": Reply((KEY.encode(),), closes=True),
        "less than its length": Reply((http_reply(body).raw[:-1],), closes=True),
    }
    for charset in ("utf-16", "utf-16-le", "utf-32", "utf-7"):
        replies[charset] = http_reply(message(f"k {KEY}").encode(charset), f"application/json; charset={charset}")
    cases = {name: Case(reply, status=None) for name, reply in replies.items()}
    cases["stream in gzip that says nothing"] = Case(http_reply(stream, EVENTS, chunk=50), stream=True, status=None)
    return cases


def odd_http() -> dict[str, Case]:
    """The key where HTTP has room for it, and in what is hardly HTTP."""
    key, body = KEY.encode(), message("a").encode()
    in_gzip = chunked(gzip.compress(message(KEY).encode()), 65536)
    in_chunks = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: "
    extended = b"%x;k=%b\r\n%b\r\n0\r\n\r\n" % (len(body), key, body)
    early = b"HTTP/1.1 103 Early Hints\r\nLink: <%b>\r\n\r\n" % key
    go_on = b"HTTP/1.1 100 %b\r\nX-K: %b\r\n\r\n" % (key, key)
    changed = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + key
    old = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + message(KEY).encode()
    untyped = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(key), key)
    return {
        "trailers": Case(http_reply(body, trailers=[("X-T", KEY), ("X-B", in_base64(KEY))])),
        "an extension of a chunk": Case(Reply((in_chunks + b"chunked\r\n\r\n" + extended,))),
        "compressed for its way": Case(Reply((in_chunks + b"gzip, chunked\r\n\r\n" + in_gzip,)), status=502),
        "early hints": Case(Reply((early, http_reply(body).raw))),
        "continue": Case(Reply((go_on, http_reply(body).raw))),
        "a change of protocol": Case(Reply((changed,), closes=True), status=502),
        "HTTP/1.0": Case(Reply((old,), closes=True)),
        "no content type": Case(Reply((untyped,)), status=None),
    }


def openai() -> dict[str, Case]:
    """The key in the answers of OpenAI's two APIs."""
    cases = {}
    spelled = {
        "plain": OPENAI_KEY,
        "escaped slashes": OPENAI_KEY.replace("/", "\\/"),
        "base64": in_base64(OPENAI_KEY),
        "base64 for URLs": base64.urlsafe_b64encode(OPENAI_KEY.encode()).decode(),
        "hexadecimal digits": OPENAI_KEY.encode().hex(),
        "percent signs": urllib.parse.quote(OPENAI_KEY, safe=""),
        "entities": OPENAI_KEY.replace("/", "&#x2F;").replace("=", "&#61;").replace("+", "&#43;"),
        "named entities": OPENAI_KEY.replace("/", "&sol;").replace("+", "&plus;").replace("=", "&equals;"),
    }
    for name, text in spelled.items():
        cases[f"a whole answer, {name}"] = Case(http_reply(chat_message(f"k {text}.")), "openai")

    def chat(name: str, chunks: Iterable[dict[str, object]]) -> None:
        cases[name] = Case(http_reply(chat_stream(chunks), EVENTS), "openai", stream=True)

    for size in (5, 7, 9, 17):
        parts = ["a ", *cut(OPENAI_KEY, size), " b"]
        chat(f"chat, {size}", (chat_chunk((0, {"content": part})) for part in parts))
        call = ({"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in parts)
        chat(f"call of a tool, {size}", (chat_chunk((0, delta)) for delta in call))
    parts = cut(OPENAI_KEY, 7)
    for field in ("reasoning_content", "refusal"):
        chat(field, (chat_chunk((0, {field: part})) for part in parts))
    chat("call of a function", (chat_chunk((0, {"function_call": {"arguments": part}})) for part in parts))
    in_turns = [(index, text) for part in parts for index, text in ((0, part), (1, "other words"))]
    chat("two choices in turns", (chat_chunk((index, {"content": text})) for index, text in in_turns))
    chat("two choices in a piece", (chat_chunk((0, {"content": part}), (1, {"content": "noise"})) for part in parts))
    names = ("output_text", "function_call_arguments", "reasoning_summary_text", "refusal", "reasoning_text", "custom_tool_call_input")
    for name in names:
        body = responses_stream(["a ", *parts, " b"], name)
        cases[f"responses, {name}"] = Case(http_reply(body, EVENTS), "openai", "/v1/responses", stream=True)
    return cases


def gemini() -> dict[str, Case]:
    """The key in the streams of Gemini's API."""
    parts = cut(GEMINI_KEY, 7)
    bodies = {f"text, {size}": data_lines(gemini_chunk([part]) for part in ["a ", *cut(GEMINI_KEY, size)]) for size in (3, 5, 9, 17)}
    bodies["CRLF"] = data_lines((gemini_chunk([part]) for part in parts), "\r\n")
    bodies["parts of one piece"] = data_lines([gemini_chunk(parts)])
    bodies["two candidates"] = data_lines(gemini_chunk([part], ["zz"]) for part in parts)
    bodies["hexadecimal digits"] = data_lines([gemini_chunk(["k " + GEMINI_KEY.encode().hex()])])
    return {name: Case(http_reply(body, EVENTS), "gemini", stream=True) for name, body in bodies.items()}


GROUPS: dict[str, Callable[[], dict[str, Case]]] = {
    "spellings": spellings,
    "fragments": fragments,
    "framing of streams": stream_framing,
    "headers": headers,
    "errors and redirects": errors_and_redirects,
    "encodings": encodings,
    "unreadable": unreadable,
    "odd HTTP": odd_http,
    "OpenAI": openai,
    "Gemini": gemini,
}


# The gateway ----------------------------------------------------------------------------------------------------------------------


@dataclass
class Gateway:
    """A gateway in front of the provider, and the token of an agent."""

    provider: RawProvider
    port: int
    token: str

    def ask(self, case: Case) -> bytes:
        """Have the provider send this answer, and return what the client receives.

        After answers that it could not read, the gateway asks no provider for a while, and answers by itself. Then a client asks again.
        """
        path = case.path or PATHS[case.api]
        self.provider.reply = case.reply
        body = question(case.api, path, stream=case.stream) if case.method == "POST" else ""
        self.provider.requests.clear()
        received = b""

        def provider_was_asked() -> bool:
            nonlocal received
            received = ask(self.port, path, body, self.token, case.method)
            assert self.provider.requests or taken_apart(received).status in (429, 503), received
            return bool(self.provider.requests)

        wait_until(provider_was_asked, "the gateway to ask the provider")
        return received


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """Start a supervisor whose gateway has an upstream for each API, all of them the raw provider."""
    with tempfile.TemporaryDirectory(prefix="masking-") as place, raw_provider() as provider:
        root = Path(place)
        house = House(root, make_repository(root / "repo"))
        keys = files.private_dir(files.private_dir(house.home.root) / "keys")
        settings = [house.config.read_text(), '[gateway]\nhold = "1s"\npatient_hold = "1s"\n']
        for api, key in KEYS.items():
            files.atomic_write(keys / f"{api}.key", f"{key}\n".encode())
            unlimited = "rpm = 1000000\nitpm = 1000000000\notpm = 1000000000\nlearn = false\n"
            settings.append(f'[upstream.{api}]\napi = "{api}"\nurl = "{provider.url}"\n{unlimited}')
        house.config.write_text("".join(settings))
        try:
            house.start_daemon()
            token = "env > $NIGHTCREW_OUT/part; mv $NIGHTCREW_OUT/part $NIGHTCREW_OUT/env; exec sleep 3600"
            house.ok("run", "-d", house.plan(shell_task("holder", token, sandbox=0)))
            wait_until(lambda: list(house.home.root.glob("runs/*/holder/1/out/env")), "the agent to write its environment down")
            (written,) = house.home.root.glob("runs/*/holder/1/out/env")
            environment = dict(line.split("=", 1) for line in written.read_text().splitlines() if "=" in line)
            assert not any(key in value for key in KEYS.values() for value in environment.values())
            port = urllib.parse.urlsplit(environment["ANTHROPIC_BASE_URL"]).port
            assert port is not None
            yield Gateway(provider, port, environment["NIGHTCREW_TOKEN"])
        finally:
            house.reap()


@pytest.mark.parametrize("group", GROUPS)
def test_a_reader_finds_the_key_in_what_the_provider_sends(group: str) -> None:
    """Otherwise the next test would prove nothing."""
    unseen = [name for name, case in GROUPS[group]().items() if not found_in(case.reply.raw, KEYS[case.api])]
    assert unseen == []


@pytest.mark.in_turns
@pytest.mark.parametrize("group", GROUPS)
def test_no_reading_of_what_a_client_receives_shows_the_key(gateway: Gateway, group: str) -> None:
    shown: dict[str, list[str]] = {}
    statuses: dict[str, int] = {}
    for name, case in GROUPS[group]().items():
        received = gateway.ask(case)
        if found := found_in(received, KEYS[case.api]):
            shown[name] = found
        status = taken_apart(received).status
        if case.status is not None and status != case.status:
            statuses[name] = status
        for request in gateway.provider.requests:
            assert KEYS[case.api].encode() in request.head, name
            assert gateway.token.encode() not in request.head + request.body, name
    assert shown == {}
    assert statuses == {}


# Answers without the key ----------------------------------------------------------------------------------------------------------

LETTERS = "abcdefghijklm -_/+%&\\\"'\n\tsk-ant0123456789é"


def harmless() -> dict[str, str]:
    """Whole answers that look a little like a key, or have many of the characters that a filter looks at."""
    texts = {
        "a word": "plain",
        "the beginning of a key": KEY[:12],
        "shorter beginning": KEY[:10],
        "parts of a key": f"{KEY[5:14]} {KEY[20:29]}",
        "a mask": "[hidden]***",
        "base64": base64.b64encode(b"hello" * 40).decode(),
        "hexadecimal digits": b"hello".hex() * 40,
        "other letters": "é漢字🎉\u2028",
        "a long text": "x" * 200_000,
        "many base64 letters": "A" * 50_000,
        "escapes": json.dumps({"a": "\\u002d\\x2d%2D&#45;"}),
        "percent signs": "%" * 500,
        "backslashes": "\\" * 300,
        "beginnings of entities": "&#" * 300,
    }
    bodies = {name: message(text) for name, text in texts.items()}
    bodies["escapes of JSON"] = message_of_raw("\\u0073k\\u002dant-\\u00e9")
    bodies["odd spaces"] = '  {"a" :1 ,\t"b":[ ]}\n'
    bodies["two blocks"] = message_of_blocks("a", "b")
    bodies["nothing"] = ""
    return bodies


def random_stream(draw: random.Random, number: int) -> str:
    """A stream of 60 short texts; a quarter of them with the beginning and the end of the key, apart from each other."""
    texts = ["".join(draw.choice(LETTERS) for _ in range(draw.randint(1, 40))) for _ in range(60)]
    if number % 4 == 0:
        at = draw.randint(0, 59)
        texts[at:at] = [KEY[: draw.randint(1, 12)], "not", KEY[-7:]]
    stream = anthropic_texts(texts, draw.choice(["text", "json", "thinking"]))
    return stream.replace("\n", "\r\n") if number % 5 == 0 else stream


def test_answers_without_the_key_arrive_byte_for_byte(gateway: Gateway, seed: int) -> None:
    draw = random.Random(seed)
    bodies = {name: (body, False) for name, body in harmless().items()}
    bodies |= {f"stream {number}": (random_stream(draw, number), True) for number in range(rounds.examples(40))}
    fields = [("X-Odd", 'a  b;c="d"'), ("anthropic-organization-id", "org-1")]
    for name, (body, stream) in bodies.items():
        kind = EVENTS if stream else "application/json; charset=utf-8"
        ways = [(0, 0), (draw.randint(1, 4000), 0), (0, max(draw.randint(200, 3000), len(body) // 20))]
        for chunk, piece in ways:
            case = Case(http_reply(body, kind, fields=fields, chunk=chunk, piece=piece), stream=stream)
            answer = taken_apart(gateway.ask(case))
            where = f"{name}, chunks of {chunk}, pieces of {piece}"
            assert answer.status == 200, where
            assert answer.body == body.encode(), where
            assert all(f"{field}: {value}".encode() in answer.head for field, value in fields), where


@pytest.mark.parametrize("more", [' ,"x": "\\u00e9\\/ %2D" }', ' ,  "y"  :[ 1 ,2 ]}'])
def test_a_request_reaches_the_provider_byte_for_byte(gateway: Gateway, more: str) -> None:
    body = question("anthropic", PATHS["anthropic"], stream=False).removesuffix("}") + more
    gateway.provider.reply = http_reply(message("a"))
    gateway.provider.requests.clear()
    assert taken_apart(ask(gateway.port, PATHS["anthropic"], body, gateway.token)).status == 200
    assert [request.body for request in gateway.provider.requests] == [body.encode()]
