"""Our key and what no client could read, taken out of an answer."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from supervisor.gateway.wire.scrub import KeyFilter, mask, passable, reason

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


def test_good_headers_are_the_same_object() -> None:
    headers = CIMultiDict({"Content-Type": "text/event-stream", "X-Text": "gr\u00fc\u00dfe"})
    assert passable(headers, KEY) is headers


def test_the_longest_headers_go_first() -> None:
    headers = CIMultiDict([("a", "x" * 7000), ("b", "x" * 7000), ("b", "x" * 3000), ("c", "y"), ("d", "x" * 9000)])
    assert [(name, len(text)) for name, text in passable(headers, KEY).items()] == [("b", 7000), ("b", 3000), ("c", 1)]


@pytest.mark.parametrize("said", [None, "a\x1b", "gr\u00fc\u00dfe", f"bad {KEY}", "x" * 201])
def test_an_odd_reason_is_none(said: str | None) -> None:
    assert reason(said, KEY) is None
