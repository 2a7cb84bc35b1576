"""Responses, read while they pass (battery N05, N09, N11)."""

import json
import re
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.gateway.admission.types import Usage
from supervisor.gateway.wire.metering import PART_MAX, Answer, Meter

from .streams import (
    BODY,
    CHAT_USAGE,
    DONE,
    RESPONSES_USAGE,
    STOP,
    STREAMS,
    asked,
    chat_chunk,
    cut,
    delta,
    event,
    feed,
    gemini_chunk,
    named,
    start,
    text,
)

KINDS = list(STREAMS)
ENDS = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100_000])
def test_a_stream_is_read_over_any_boundaries_and_any_line_ends(kind: str, end: str, size: int) -> None:
    data, usage = STREAMS[kind]
    data = data.replace(b"\n", ENDS[end])
    answer = Answer(asked(kind))
    assert feed(answer, cut(data, size)) == data
    assert (answer.usage, answer.charge(), answer.began, answer.final) == (usage, usage, True, True)
    assert (answer.failed, answer.flags) == ("", [])


@pytest.mark.parametrize("kind", KINDS)
def test_the_forwarded_chunks_are_the_very_same_objects(kind: str) -> None:
    answer = Answer(asked(kind))
    for chunk in cut(STREAMS[kind][0], 50):
        assert answer.feed(chunk) is chunk
    assert answer.finish() == b""


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_is_no_stream(kind: str) -> None:
    whole = {
        "anthropic": {
            "type": "message",
            "content": [{"type": "tool_use", "input": {"usage": {"input_tokens": 9}}}],
            "usage": {"input_tokens": 3, "output_tokens": 4},
        },
        "chat": {"object": "chat.completion", "choices": [{"message": {}, "finish_reason": "stop"}], "usage": CHAT_USAGE},
        "responses": {"object": "response", "status": "completed", "usage": RESPONSES_USAGE, "error": None},
        "gemini": gemini_chunk("a", 12, finishReason="STOP"),
    }[kind]
    data = b"  \n" + json.dumps(whole, indent=1).encode()
    for size in (1, 10, 100_000):
        answer = Answer(asked(kind))
        assert feed(answer, cut(data, size)) == data
        assert answer.usage == (Usage(3, 4) if kind == "anthropic" else STREAMS[kind][1]) and answer.final


def test_gemini_streams_one_long_array_unless_it_is_told_otherwise() -> None:
    odd = gemini_chunk('}], "x\\"]} \\', 5)
    data = (
        b"["
        + b"\n,\r\n".join(json.dumps(part, ensure_ascii=False).encode() for part in (odd, gemini_chunk("ü[{", 12, finishReason="STOP")))
        + b"]"
    )
    for size in (1, 2, 5, 100_000):
        answer = Answer(asked("gemini"))
        assert feed(answer, cut(data, size)) == data
        assert (answer.usage, answer.final, answer.flags) == (STREAMS["gemini"][1], True, [])
    refused = b'[{"error":{"code":503,"status":"UNAVAILABLE"}}]'
    answer = Answer(asked("gemini"))
    assert feed(answer, cut(refused, 4)) == refused and answer.failed == "UNAVAILABLE"


@given(
    st.sampled_from([("chat", True), *((kind, False) for kind in KINDS)]),
    st.binary(max_size=300) | st.text(alphabet='dat: {}[]"\\\r\n\tusage:,1', max_size=200).map(str.encode),
    st.data(),
)
@example(("gemini", False), b"[", None)
@example(("gemini", False), b"]]}}{{", None)
@example(("chat", True), b"\n\r", None)
def test_anything_passes_unchanged_in_any_chunks(how: tuple[str, bool], noise: bytes, data: st.DataObject | None) -> None:
    kind, injected = how
    stream, _ = STREAMS[kind]
    place = data.draw(st.integers(0, len(stream))) if data else 0
    whole = stream[:place] + noise + stream[place:]
    marks = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8))) if data else [1]
    chunks = [whole[begin:end] for begin, end in zip([0, *marks], [*marks, len(whole)], strict=True)]
    answer = Answer(asked(kind), injected)
    passed = feed(answer, chunks)
    assert passed == (without_extra(whole) if injected else whole)


def without_extra(whole: bytes) -> bytes:
    """The stream without the chunks that hold nothing but usage, told in another way than the reader's."""
    if whole.lstrip()[:1] in (b"{", b"["):
        return whole
    kept = b""
    for found in re.finditer(rb"(?s:.*?)(?:(?:\r\n|\n|\r(?!\n)){2}|\Z)", whole):
        lines = re.split(rb"\r\n|\n|\r", found[0].removeprefix(b"\xef\xbb\xbf"))
        try:
            message = json.loads(b"\n".join(line[5:] for line in lines if line.startswith(b"data:")))
        except ValueError:
            message = None
        if not (isinstance(message, dict) and message.get("choices") == [] and isinstance(message.get("usage"), dict)):
            kept += found[0]
    return kept


# The chunk that the client did not ask for ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100_000])
def test_exactly_the_extra_chunk_is_left_out(end: str, size: int) -> None:
    before = (
        chat_chunk("a") + b": comment\n\n" + event({"choices": [], "prompt_filter_results": []}) + chat_chunk("ü", finish_reason="stop")
    )
    extra = chat_chunk(None, CHAT_USAGE)
    data, rest = (part.replace(b"\n", ENDS[end]) for part in (before + extra + DONE, before + DONE))
    answer = Answer(asked("chat"), injected_usage=True)
    assert feed(answer, cut(data, size)) == rest
    assert answer.usage == Usage(40, 20, 60, 0) and answer.final


def test_the_extra_chunk_over_several_data_lines_and_without_an_end() -> None:
    spread = b"data: " + json.dumps({"choices": [], "usage": CHAT_USAGE}, indent=1).replace("\n", "\ndata:").encode()
    for tail in (b"\n\n", b"\n", b""):
        answer = Answer(asked("chat"), injected_usage=True)
        assert feed(answer, [chat_chunk("a"), spread + tail]) == chat_chunk("a")
        assert answer.usage == Usage(40, 20, 60, 0)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_extra_chunk_is_found_wherever_its_lines_break(mark: bytes) -> None:
    extra = mark + b'data: {"choices":[],"usage":\r\ndata: {"prompt_tokens":3,"completion_tokens":4}}\r\n\r\n'
    for size in (1, 1000):
        answer = Answer(asked("chat"), injected_usage=True)
        assert feed(answer, cut(extra + DONE, size)) == DONE and answer.usage == Usage(3, 4)


def test_usage_beside_a_choice_is_the_clients_and_stays() -> None:
    last = chat_chunk("a", CHAT_USAGE, finish_reason="stop")
    answer = Answer(asked("chat"), injected_usage=True)
    assert feed(answer, [last, DONE]) == last + DONE and answer.final


def test_a_server_that_answers_json_all_the_same() -> None:
    whole = json.dumps({"object": "chat.completion", "choices": [], "usage": CHAT_USAGE}).encode()
    answer = Answer(asked("chat"), injected_usage=True)
    assert feed(answer, cut(whole, 9)) == whole and answer.usage == Usage(40, 20, 60, 0)
    assert feed(Answer(asked("chat"), injected_usage=True), [b'[{"a"', b":1}, 2]"]) == b'[{"a":1}, 2]'


def test_an_event_is_passed_on_as_soon_as_it_is_whole() -> None:
    answer = Answer(asked("chat"), injected_usage=True)
    first = chat_chunk("a")
    assert answer.feed(first) == first
    assert answer.feed(first[:20]) == b""
    assert answer.feed(first[20:] + first[:5]) == first
    assert answer.finish() == first[:5]


# What is too large -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("injected", [False, True])
@pytest.mark.parametrize("size", [4096, 65536])
def test_a_line_of_five_megabytes_passes_and_costs_little_memory(injected: bool, size: int) -> None:
    huge = chat_chunk("x" * 5_000_000, {"prompt_tokens": 1})
    chunks = cut(huge + chat_chunk(None, CHAT_USAGE) + DONE, size)
    answer = Answer(asked("chat"), injected)
    passed = 0
    tracemalloc.start()
    for chunk in chunks:
        passed += len(answer.feed(chunk))
    passed += len(answer.finish())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * PART_MAX
    assert passed == len(huge + DONE) + (0 if injected else len(chat_chunk(None, CHAT_USAGE)))
    assert answer.usage == Usage(40, 20, 60, 0) and "event_too_long" in answer.flags


def test_a_long_answer_that_is_no_stream_is_read_from_its_end() -> None:
    answer = Answer(asked("anthropic"))
    tracemalloc.start()
    answer.feed(b'{"type":"message","content":[{"type":"text","text":"')
    for _ in range(200):
        answer.feed(b"x" * 65536)
    answer.feed(b'"},{"type":"tool_use","input":{"usage":{"input_tokens":9}}}],"usage":{"input_tokens":3,"output_tokens":4},"x":"y"}')
    answer.finish()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * PART_MAX
    assert answer.usage == Usage(3, 4) and answer.final


def test_of_a_long_array_the_last_usage_is_read() -> None:
    data = (
        b"["
        + json.dumps(gemini_chunk("x" * 2_000_000, 5)).encode()
        + b","
        + json.dumps(gemini_chunk("a", 12, finishReason="STOP")).encode()
        + b"]"
    )
    answer = Answer(asked("gemini"))
    assert feed(answer, cut(data, 65536)) == data
    assert answer.usage == STREAMS["gemini"][1] and answer.flags == []


# What ends early, and what goes wrong -----------------------------------------------------------------------------------------------------


def test_a_cut_stream_is_charged_by_what_passed() -> None:
    answer = Answer(asked("anthropic"))
    feed(answer, [start(input_tokens=10, output_tokens=1), text("x" * 360)])
    assert (answer.began, answer.final, answer.output_so_far_bytes) == (True, False, 360)
    assert answer.usage == Usage(10, 1) and answer.charge() == Usage(10, 100)


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("anthropic", named({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "abc"}}), 3),
        ("anthropic", named({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": '{"a'}}), 4),
        ("chat", chat_chunk("four"), 4),
        ("chat", event({"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "12"}}]}}]}), 2),
        ("responses", named({"type": "response.output_text.delta", "delta": "abc"}), 3),
        ("responses", named({"type": "response.output_text.done", "text": "abc"}), 0),
        ("gemini", event(gemini_chunk("abcd", 1)), 4),
    ],
)
def test_generated_text_is_counted_once(kind: str, data: bytes, expected: int) -> None:
    for size in (1, 1000):
        answer = Answer(asked(kind))
        feed(answer, cut(data, size))
        assert answer.output_so_far_bytes == expected


def test_a_stream_that_never_said_anything_leaves_the_reservation() -> None:
    answer = Answer(asked("chat"))
    feed(answer, [chat_chunk("a"), DONE])
    assert answer.usage is None and answer.charge() is None and answer.flags == ["usage_missing"]


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("anthropic", named({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}), "overloaded_error"),
        ("anthropic", b'{"type":"error","error":{"type":"api_error"}}', "api_error"),
        ("chat", event({"error": {"message": "no", "type": "server_error", "code": None}}), "server_error"),
        ("chat", event({"error": {"type": "x", "code": "rate_limit_exceeded"}}), "rate_limit_exceeded"),
        ("chat", event({"error": "just words"}), "error"),
        (
            "responses",
            named({"type": "response.failed", "response": {"status": "failed", "error": {"code": "rate_limit_exceeded"}}}),
            "rate_limit_exceeded",
        ),
        ("responses", named({"type": "error", "code": "server_error", "message": "no"}), "server_error"),
        ("gemini", event({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}), "RESOURCE_EXHAUSTED"),
    ],
)
def test_an_error_inside_a_200_is_seen_and_passed_on(kind: str, data: bytes, expected: str) -> None:
    for size in (1, 1000):
        answer = Answer(asked(kind))
        assert feed(answer, cut(data, size)) == data
        assert answer.failed == expected and "usage_missing" not in answer.flags


def test_a_mistake_of_the_reader_never_reaches_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Meter, __: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Meter, "read", broken)
    data = STREAMS["anthropic"][0]
    answer = Answer(asked("anthropic"))
    assert feed(answer, cut(data, 40)) == data and "reader_failed" in answer.flags
    injected = Answer(asked("chat"), injected_usage=True)
    assert feed(injected, [chat_chunk("a"), chat_chunk(None, CHAT_USAGE), DONE]) == chat_chunk("a") + DONE


def test_the_body_of_the_tests_is_what_they_take_it_for() -> None:
    assert json.loads(BODY)["stream"] is True and STOP.endswith(b"\n\n") and delta(output_tokens=1).startswith(b"event: message_delta")
