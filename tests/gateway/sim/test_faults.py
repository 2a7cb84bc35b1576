"""Every fault does what it says, seen from the socket."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from email.utils import parsedate_to_datetime
from typing import Any

import anthropic
import openai
import pytest

from nightcrew.plugins.sim.dialects import BIG_LINE
from nightcrew.plugins.sim.exchange import BOMB_BYTES
from tests.gateway.sim.raw import (
    CHAT,
    GEMINI_STREAM,
    MESSAGES,
    RESPONSES,
    anthropic_body,
    ask,
    ask_raw,
    chat_body,
    chunk_sizes,
    connected,
    gemini_body,
)
from tests.gateway.simulator import Simulator
from tests.support import wait_until

STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic": (MESSAGES, anthropic_body(stream=True)),
    "chat": (CHAT, chat_body(stream=True, stream_options={"include_usage": True})),
    "responses": (RESPONSES, {"model": "gpt-5", "input": "hi", "stream": True}),
    "gemini": (f"{GEMINI_STREAM}?alt=sse", gemini_body()),
}
EVERY_API = pytest.mark.parametrize("api", STREAMS)


@pytest.mark.parametrize(
    ("retry_after", "shown"),
    [("30", "30"), ("1000000000", "1000000000"), ("-5", "-5"), ("abc", "abc"), ("", ""), (None, None)],
)
def test_429_with_any_retry_after(sim: Simulator, key: str, retry_after: str | None, shown: str | None) -> None:
    sim.faults(status=429, retry_after=retry_after)
    answer = ask(sim.url, MESSAGES, anthropic_body(), key)
    assert (answer.status, answer.headers.get("retry-after")) == (429, shown)
    assert sim.tally(key).refused == {"fault:429": 1}


def test_429_with_an_http_date(sim: Simulator, key: str) -> None:
    sim.faults(status=429, retry_after="date:30")
    answer = ask(sim.url, MESSAGES, anthropic_body(), key)
    wait = parsedate_to_datetime(answer.headers["retry-after"]) - parsedate_to_datetime(answer.headers["date"])
    assert 29 <= wait.total_seconds() <= 31


def test_errors_have_each_apis_own_shape(sim: Simulator, key: str) -> None:
    sim.faults({"status": 429, "reason": "spend_cap", "times": 4}, {"status": 503, "times": 4})
    shapes = [ask(sim.url, path, body, key).json["error"] for path, body in STREAMS.values()]
    assert shapes[0]["details"]["error_code"] == "enforced_spend_limit_reached"
    assert shapes[1]["code"] == shapes[2]["type"] == "insufficient_quota"
    assert shapes[3]["status"] == "RESOURCE_EXHAUSTED" and "details" not in shapes[3]
    shapes = [ask(sim.url, path, body, key).json["error"] for path, body in STREAMS.values()]
    assert [shape.get("type") or shape["status"] for shape in shapes] == ["api_error", "server_error", "server_error", "UNAVAILABLE"]


def test_the_sdks_know_the_errors(sim: Simulator, claude: anthropic.Anthropic) -> None:
    for status, error in (
        (401, anthropic.AuthenticationError),
        (403, anthropic.PermissionDeniedError),
        (429, anthropic.RateLimitError),
        (500, anthropic.InternalServerError),
        (529, anthropic.InternalServerError),
    ):
        sim.faults(status=status, times=1)
        with pytest.raises(error) as caught:
            claude.messages.create(model="claude-opus-4-8", max_tokens=5, messages=[{"role": "user", "content": "hi"}])
        assert caught.value.request_id


def test_who_when_and_how_often(sim: Simulator, key: str) -> None:
    sim.faults(
        {"status": 500, "key": key, "times": 1},
        {"status": 501, "model": "haiku", "times": 1},
        {"status": 502, "contains": "needle", "times": 1},
        {"status": 503, "api": "chat"},
        {"status": 504, "probability": 0.0},
    )

    def status(path: str = MESSAGES, body: dict[str, Any] | None = None, other: str = key) -> int:
        return ask(sim.url, path, body or anthropic_body(), other).status

    assert [status(), status()] == [500, 200]
    assert [status(body=anthropic_body(model="claude-haiku-4-5")) for _ in range(2)] == [501, 200]
    assert [status(body=anthropic_body(system="a needle")) for _ in range(2)] == [502, 200]
    assert [status(CHAT, chat_body()), status(other=f"{key}-b")] == [503, 200]
    assert sim.stats()["faults_done"] == [1, 1, 1, 1, 0]
    sim.clear()
    assert status(CHAT, chat_body()) == 200


def test_headers_can_be_set_and_taken_away(sim: Simulator, key: str) -> None:
    sim.faults(headers={"anthropic-ratelimit-input-tokens-limit": "12345", "Request-Id": None, "x-should-retry": "false"})
    headers = ask(sim.url, MESSAGES, anthropic_body(), key).headers
    assert headers["anthropic-ratelimit-input-tokens-limit"] == "12345" and headers["x-should-retry"] == "false"
    assert "request-id" not in headers


@EVERY_API
def test_a_stream_is_cut_after_some_events(sim: Simulator, key: str, api: str) -> None:
    path, body = STREAMS[api]
    whole = ask(sim.url, path, body, key)
    sim.faults(then="cut", after=3)
    cut = ask(sim.url, path, body, key)
    assert whole.ended and not cut.ended
    assert (len(whole.events()) > 3, len(cut.events())) == (True, 3)
    assert sim.tally(key).cut == 1


def test_a_whole_answer_is_cut_too(sim: Simulator, key: str) -> None:
    sim.faults(then="cut")
    cut = ask(sim.url, MESSAGES, anthropic_body(), key)
    assert cut.status == 200 and not cut.ended


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("anthropic", {"type": "overloaded_error", "message": "Overloaded"}),
        ("chat", {"message": "Overloaded", "type": "server_error", "param": None, "code": None}),
        ("gemini", {"code": 529, "message": "Overloaded", "status": "INTERNAL"}),
    ],
)
def test_an_error_event_inside_a_200(sim: Simulator, key: str, api: str, error: dict[str, Any]) -> None:
    sim.faults(then="error", after=2)
    answer = ask(sim.url, *STREAMS[api], key)
    assert (answer.status, answer.ended, len(answer.events())) == (200, True, 3)
    assert answer.events()[-1]["error"] == error
    assert not sim.tally(key).reported, "its final usage was never said"


def test_an_error_event_of_the_responses_api(sim: Simulator, key: str) -> None:
    sim.faults(then="error", after=2, message="Rate limit reached: try again in 2.5s", error_status=429)
    last = ask(sim.url, *STREAMS["responses"], key).events()[-1]
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "rate_limit_exceeded")


def test_silence_before_the_headers_until_released(sim: Simulator, key: str) -> None:
    sim.faults(hold="gate", times=1)
    with connected(sim.url, MESSAGES, anthropic_body(), key) as talk:
        sim.wait_held("gate")
        talk.setblocking(False)
        with pytest.raises(BlockingIOError):
            talk.recv(1)
        talk.settimeout(30)
        sim.release("gate")
        assert talk.recv(12) == b"HTTP/1.1 200"


def test_silence_and_pings_amid_a_stream(sim: Simulator, key: str) -> None:
    sim.faults({"then": "silence", "after": 2, "for_s": 0.05, "times": 1}, {"then": "pings", "after": 2, "for_s": 0.5, "times": 1})
    silent, pinged, plain = (ask(sim.url, *STREAMS["anthropic"], key) for _ in range(3))
    assert len(silent.events()) == len(plain.events())
    assert [event["type"] for event in pinged.events()].count("ping") == 1 + 3


def test_a_client_that_leaves_is_noticed(sim: Simulator, key: str) -> None:
    sim.faults({"then": "pings", "after": 4, "times": 1}, {"then": "silence", "after": 4, "times": 1}, {"hold": "for ever", "times": 1})
    for number in (1, 2, 3):
        with connected(sim.url, *STREAMS["anthropic"], key):
            wait_until(lambda: sim.stats()["streams"] == 1 or sim.stats()["held"], "the answer to be on its way")
        wait_until(lambda expected=number: sim.tally(key).cancelled == expected, "the cancelled stream to be noticed")  # type: ignore[misc]
    told = sim.stats()
    assert (told["streams"], told["held"]) == (0, {})
    # One event of 12 tokens (50 in 4) was produced in each of the first two, and in no final usage was it said.
    assert sim.tally(key).used["output"] == 2 * 12 and not sim.tally(key).reported


def test_cut_before_the_first_byte_and_amid_the_headers(sim: Simulator, key: str) -> None:
    sim.faults({"wire": "no_answer", "times": 1}, {"wire": "mid_headers", "times": 1})
    assert ask_raw(sim.url, MESSAGES, anthropic_body(), key) == b""
    amid = ask_raw(sim.url, MESSAGES, anthropic_body(), key)
    assert amid.startswith(b"HTTP/1.1 200 OK\r\n") and b"\r\n\r\n" not in amid


@pytest.mark.parametrize(("wire", "more"), [("length_short", 10), ("length_long", -1000)])
def test_a_wrong_content_length(sim: Simulator, key: str, wire: str, more: int) -> None:
    sim.faults(wire=wire)
    answer = ask(sim.url, MESSAGES, anthropic_body(), key)
    assert len(answer.body) - int(answer.headers["content-length"]) == more


def test_the_last_chunk_is_missing(sim: Simulator, key: str) -> None:
    sim.faults(wire="no_chunk_end")
    answer = ask(sim.url, *STREAMS["anthropic"], key)
    assert answer.events()[-1]["type"] == "message_stop" and not answer.ended


def test_a_gzip_bomb(sim: Simulator, key: str) -> None:
    sim.faults(wire="gzip_bomb")
    answer = ask(sim.url, MESSAGES, anthropic_body(), key)
    assert answer.headers["content-encoding"] == "gzip" and answer.ended
    assert len(answer.body) < BOMB_BYTES / 500
    unpacked, opened = 0, zlib.decompressobj(16 + zlib.MAX_WBITS)
    rest = answer.body
    while rest:
        unpacked += len(opened.decompress(rest, 1_000_000))
        rest = opened.unconsumed_tail
    assert unpacked == BOMB_BYTES


def said(body: bytes) -> str:
    """The text, by a reading of SSE as simple as it can be."""
    return "".join(re.findall(r'"text_delta","text":"([^"]*)"', body.decode()))


@pytest.mark.parametrize("manner", ["bytes", "split", "crlf", "comments", "big_line"])
def test_odd_but_valid_streams_say_the_same(sim: Simulator, key: str, manner: str) -> None:
    sim.faults(manner=manner)
    raw = ask_raw(sim.url, *STREAMS["anthropic"], key)
    answer = ask(sim.url, *STREAMS["anthropic"], key)
    assert answer.ended and answer.events()[-1]["type"] == "message_stop"
    text = said(answer.body)
    assert text.startswith("[simulated] ") and len(text) > 100
    match manner:
        case "bytes":
            assert set(chunk_sizes(raw)) == {0, 1}
        case "split":
            heads = raw.split(b"\r\n")
            assert any(part[-1:] > b"\xc1" for part in heads), "no write ends inside a character"
            assert "🌙" in text
        case "crlf":
            assert b"\n" not in answer.body.replace(b"\r\n", b"")
        case "comments":
            assert answer.body.count(b": a comment\n") > 5
        case "big_line":
            assert max(len(line) for line in answer.body.split(b"\n")) > BIG_LINE


def test_the_sdks_read_odd_streams(sim: Simulator, claude: anthropic.Anthropic) -> None:
    for manner in ("bytes", "split", "crlf", "comments"):
        sim.clear()
        sim.faults(manner=manner, output_tokens=50)
        with claude.messages.stream(model="claude-opus-4-8", max_tokens=50, messages=[{"role": "user", "content": "hi"}]) as stream:
            assert stream.get_final_message().usage.output_tokens == 50, manner


def test_usage_that_is_missing_negative_twice_or_too_large(sim: Simulator, key: str) -> None:
    for usage in ("missing", "negative", "duplicated", "larger"):
        sim.faults(usage=usage, output_tokens=7, times=1)
    answers = [ask(sim.url, *STREAMS["anthropic"], key).events() for _ in range(4)]
    missing, negative, twice, larger = ([event["usage"]["output_tokens"] for event in events if "usage" in event] for events in answers)
    assert (missing, negative, twice, larger) == ([], [-7], [7, 7], [70])
    told = sim.tally(key)
    assert told.reported["output"] == -7 + 7 + 70, "as it was said, and once each"
    assert told.used["output"] == 4 * 7, "as it was"


def test_missing_usage_of_the_others(sim: Simulator, key: str) -> None:
    sim.faults(usage="missing")
    for api in ("chat", "responses", "gemini"):
        body = ask(sim.url, *STREAMS[api], key).body
        assert re.search(rb'"(total_tokens|totalTokenCount)"', body) is None, api


def test_scripted_text_tokens_and_turns(sim: Simulator, gpt: openai.OpenAI) -> None:
    sim.faults({"tool": "write", "tool_input": {"path": "a"}, "times": 1}, {"text": "Done.", "input_tokens": 100, "times": 1})
    first = gpt.responses.create(model="gpt-5", input="hi")
    second = gpt.responses.create(model="gpt-5", input="hi")
    assert first.output[-1].type == "function_call" and second.output_text == "Done."
    assert second.usage is not None
    assert (second.usage.input_tokens, second.usage.output_tokens) == (100, 2)


def test_a_fault_that_does_not_exist_is_refused(sim: Simulator) -> None:
    for fault in ({"colour": "red"}, {"wire": "loose"}, {"then": "explode"}):
        with pytest.raises(ValueError, match=rf"^{next(iter(fault))}: "):
            sim.faults(fault)
    assert sim.stats()["faults_done"] == []


def test_what_was_sent_and_received_can_be_compared_and_no_key_is_told(sim: Simulator, key: str) -> None:
    body = json.dumps(anthropic_body(), indent=3).encode()
    answer = ask(sim.url, MESSAGES, body, "sk-secret-1", Authorization="Bearer sk-secret-2", X_Agent="a7")
    entry = sim.last()[-1]
    assert (entry["body_sha256"], entry["body_bytes"]) == (hashlib.sha256(body).hexdigest(), len(body))
    assert entry["sent_sha256"] == hashlib.sha256(answer.body).hexdigest()
    assert ["x-agent", "a7"] in entry["headers"]
    assert "sk-secret" not in json.dumps(sim.stats())
