"""Our key and what no client could read, taken out of an answer."""

from __future__ import annotations

import base64
import json

import pytest
from multidict import CIMultiDict

from supervisor.gateway.wire.headers import KeyFilter, mask, passable, reason

KEY = "sk-ant-0123456789-sk-ant-9876543210"


def passed(*pieces: bytes, key: str = KEY) -> bytes:
    found = KeyFilter(key)
    return b"".join(found.feed(piece) for piece in pieces) + found.finish()


@pytest.mark.parametrize("at", range(len(KEY) + 1))
def test_a_key_is_found_wherever_its_answer_is_cut(at: int) -> None:
    text = f"a s{KEY[:5]}{KEY} b sk-"
    cut = text.index(KEY) + at
    expected = text.replace(KEY, mask(len(KEY))).encode()
    assert passed(text[:cut].encode(), text[cut:].encode()) == expected
    assert passed(*(bytes([byte]) for byte in text.encode())) == expected
    assert len(expected) == len(text)


FORMS = {
    "every character as \\u": "".join(f"\\u{ord(char):04x}" for char in KEY),
    "every character as \\U": "".join(f"\\u{ord(char):04X}" for char in KEY),
    "one character as \\u": KEY[:9] + f"\\u{ord(KEY[9]):04x}" + KEY[10:],
    "JSON in JSON": KEY[:3] + f"\\\\u{ord(KEY[3]):04x}" + KEY[4:],
    "every character as %": "".join(f"%{ord(char):02X}" for char in KEY),
    "one character as %": "%73" + KEY[1:],
    "quoted twice": KEY.replace("-", "%252d"),
    "every character as \\x": "".join(f"\\x{ord(char):02x}" for char in KEY),
    "every character in octal": "".join(f"\\{ord(char):03o}" for char in KEY),
    "every character as \\u{}": "".join(f"\\u{{{ord(char):x}}}" for char in KEY),
    "every character as &#": "".join(f"&#{ord(char)};" for char in KEY),
    "every character as &#x": "".join(f"&#x{ord(char):02X};" for char in KEY),
    "every character as &# without semicolon": "".join(f"&#{ord(char)}" for char in KEY),
    "every character as &#x without semicolon": "".join(f"&#x{ord(char):x}" for char in KEY),
    "a backslash as \\u": KEY.replace("-", "\\u005cu002d"),
    "every backslash as \\u": "".join(f"\\u005Cu{ord(char):04x}" for char in KEY),
    "entities in entities": KEY.replace("-", "&amp;#045;"),
    "hexadecimal digits": KEY.encode().hex(),
    "capital hexadecimal digits": KEY.encode().hex().upper(),
    "base64": base64.b64encode(KEY.encode()).decode()[:-2],
    "base64 after one byte": base64.b64encode(b":" + KEY.encode()).decode()[2:-1],
    "base64 after two bytes": base64.b64encode(b"a:" + KEY.encode()).decode()[3:-3],
    "both": "\\u0073%6B" + KEY[2:-1] + "%30",
}


@pytest.mark.parametrize("form", FORMS)
def test_an_escaped_key_is_found_wherever_its_answer_is_cut(form: str) -> None:
    written = FORMS[form]
    text = f'{{"a": "100% \\n\\u0073 s{written[:8]}{written} b\\u00'
    expected = text.replace(written, mask(len(written))).encode()
    assert passed(text.encode()) == expected
    for cut in range(len(text)):
        assert passed(text[:cut].encode(), text[cut:].encode()) == expected, cut
    assert passed(*(bytes([byte]) for byte in text.encode())) == expected
    assert passed(written.encode()) == mask(len(written)).encode()
    for end in ("", " b"):
        head = CIMultiDict({"x": f"a {written}{end}"})
        assert passable(head, KEY)["x"] == f"a {mask(len(written))}{end}"
    assert reason(f"a {written}", KEY) is None


def test_a_key_with_slashes_is_found_where_they_are_escaped() -> None:
    key = "abcd/efgh/ijkl+mnop/qrst="
    assert passed(key.replace("/", "\\/").encode(), key=key) == mask(len(key) + 3).encode()


def test_named_entities_and_urlsafe_base64_are_found() -> None:
    key = "sk_ant.0123~456?789>sk_ant"
    written = key.replace("_", "&lowbar;").replace(".", "&amp;period;")
    assert passed(written.encode(), key=key) == mask(len(written)).encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in (b"", b"1", b"12", b"Bearer "):
            sent = encode(before + key.encode() + b" rest")
            shown = passed(sent, key=key)
            assert len(shown) == len(sent) and shown[-6:] == sent[-6:]
            assert sum(one == other for one, other in zip(sent, shown, strict=True)) <= len(sent) - 30


def deltas(*texts: str) -> list[bytes]:
    event = "event: content_block_delta\ndata: {}\n\n"
    shapes = [{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}} for text in texts]
    return [event.format(json.dumps(shape)).encode() for shape in shapes]


def texts_of(stream: bytes) -> str:
    return "".join(json.loads(line[6:])["delta"]["text"] for line in stream.splitlines() if line.startswith(b"data: "))


@pytest.mark.parametrize("size", [3, 4, 5, 17, 30, 34])
def test_a_key_that_is_split_over_deltas_does_not_pass(size: int) -> None:
    said = f"the keys: s{KEY[:2]} {KEY} and {KEY}."
    events = deltas(*(said[at : at + size] for at in range(0, len(said), size)))
    for pieces in (events, [b"".join(events)], [bytes([byte]) for byte in b"".join(events)]):
        shown = passed(*pieces)
        assert len(shown) == len(b"".join(events))
        assert KEY[:17] not in texts_of(shown) and KEY[16:] not in texts_of(shown)
        assert texts_of(shown).startswith("the keys: s") and texts_of(shown).endswith(".")


def test_deltas_that_only_begin_like_a_key_pass() -> None:
    events = deltas("it is", "s", "sk", "-ant-0123", "45", "and s", "k-an")
    assert passed(*events) == b"".join(events)
    halves = deltas(KEY[:20], KEY[20:] + " is it")
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    assert passed(halves[0], ping, halves[1]) == b"".join([deltas(mask(20))[0], ping, deltas(mask(len(KEY) - 20) + " is it")[0]])


def test_what_only_begins_like_a_key_passes() -> None:
    for text in (b"%73%6B-ant", b"\\u0073\\u006b-", b"100%", b"a\\", b"\\u00e4\\u0073x", b"%73%"):
        assert passed(text) == text == passed(*(bytes([byte]) for byte in text))
    event = b'data: {"text": "\\u003cb\\u003e 100% of sk-ant-01 \\u0073"}\n\n'
    assert KeyFilter(KEY).feed(event) is event


def test_what_has_no_key_is_the_same_object_and_whole_events_are_not_kept_back() -> None:
    event = b"data: sk-ant-0123456789-sk-ant-987654321\n\n"
    found = KeyFilter(KEY)
    assert found.feed(event) is event
    assert found.finish() == b""


def test_a_word_is_no_secret() -> None:
    assert passed(b"ollama", key="ollama") == b"ollama"
    assert passed(b"anything", key="") == b"anything"
    assert passable(headers := CIMultiDict({"x": "ollama"}), "ollama") is headers
    assert reason("ollama", "ollama") == "ollama"


@pytest.mark.parametrize("name", [KEY, KEY.upper(), f"x-{KEY.title()}-y"])
def test_a_header_whose_name_has_the_key_is_left_out(name: str) -> None:
    assert list(passable(CIMultiDict({"a": "b", name: "v"}), KEY).items()) == [("a", "b")]


def test_good_headers_are_the_same_object() -> None:
    headers = CIMultiDict({"Content-Type": "text/event-stream", "X-Text": "gr\u00fc\u00dfe"})
    assert passable(headers, KEY) is headers


def test_the_longest_headers_go_first() -> None:
    headers = CIMultiDict([("a", "x" * 7000), ("b", "x" * 7000), ("b", "x" * 3000), ("c", "y"), ("d", "x" * 9000)])
    assert [(name, len(text)) for name, text in passable(headers, KEY).items()] == [("b", 7000), ("b", 3000), ("c", 1)]


@pytest.mark.parametrize("said", [None, "a\x1b", "gr\u00fc\u00dfe", f"bad {KEY}", "x" * 201])
def test_an_odd_reason_is_none(said: str | None) -> None:
    assert reason(said, KEY) is None
