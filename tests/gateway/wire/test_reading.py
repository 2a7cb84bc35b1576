"""What a request asks for, and the two changes that are ever made to its body."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.gateway.admission.types import LONG_CONTEXT_BYTES
from supervisor.gateway.wire.requests import Asked, BadRequest, Endpoint, Recognised, read, recognise, sent_body
from supervisor.kernel.gateway_settings import Api

SESSION = "0b9f7a52-53a5-4d6e-9c7e-1f0b9f7a5253"


def at(raw: str, method: str = "POST") -> Recognised:
    found = recognise(method, raw)
    assert found is not None
    return found


MESSAGES, CHAT, RESPONSES = at("/v1/messages"), at("/v1/chat/completions"), at("/v1/responses")
GENERATE = at("/v1beta/models/gemini-2.5-pro:generateContent")


def ask(where: Recognised, headers: dict[str, str] | None = None, **members: Any) -> Asked:
    return read(where, headers or {}, json.dumps({"model": "m-1", **members}).encode())


def test_a_request_of_claude_code() -> None:
    user_id = json.dumps({"device_id": "d", "account_uuid": "a", "session_id": SESSION})
    asked = ask(MESSAGES, model="claude-opus-4-8", max_tokens=64000, stream=True, metadata={"user_id": user_id}, messages=[])
    assert (asked.api, asked.endpoint, asked.model) == (Api.ANTHROPIC, Endpoint.MESSAGES, "claude-opus-4-8")
    assert (asked.stream, asked.max_tokens, asked.session, asked.long_context, asked.free) == (True, 64000, SESSION, False, False)


@pytest.mark.parametrize(
    ("where", "members", "expected"),
    [
        (MESSAGES, {"max_tokens": 5}, 5),
        (MESSAGES, {}, None),
        (MESSAGES, {"max_tokens": None}, None),
        (CHAT, {"max_tokens": 5, "max_completion_tokens": 9}, 9),
        (CHAT, {"max_tokens": 5, "n": 3}, 15),
        (CHAT, {"max_tokens": -1}, None),
        (RESPONSES, {"max_output_tokens": 7.0}, 7),
        (GENERATE, {"generationConfig": {"maxOutputTokens": 8}}, 8),
        (GENERATE, {"generationConfig": {"maxOutputTokens": 8, "candidateCount": 2}}, 16),
        (GENERATE, {"generation_config": {"max_output_tokens": 8, "candidate_count": 8}, "max_tokens": 1}, 64),
        (GENERATE, {"generationConfig": {"maxOutputTokens": 8}, "generation_config": {"max_output_tokens": 9}}, 9),
        (GENERATE, {"max_tokens": 5, "maxOutputTokens": 5}, None),
        (CHAT, {"max_output_tokens": 1}, None),
        (RESPONSES, {"max_tokens": 1, "max_completion_tokens": 1}, None),
        (MESSAGES, {"max_tokens": 5, "max_output_tokens": 900, "n": 9}, 5),
    ],
)
def test_the_most_output(where: Recognised, members: dict[str, Any], expected: int | None) -> None:
    assert ask(where, **members).max_tokens == expected


def test_choices_are_counted_where_the_endpoint_has_them() -> None:
    assert (ask(CHAT, n=128).choices, ask(CHAT, n=128).max_tokens) == (128, None)
    assert ask(GENERATE, generation_config={"candidate_count": 8}).choices == 8
    assert ask(MESSAGES, n=128).choices == 1


def test_input_that_the_provider_stores_is_said() -> None:
    for where, member in [
        (RESPONSES, "previous_response_id"),
        (RESPONSES, "conversation"),
        (RESPONSES, "prompt"),
        (GENERATE, "cachedContent"),
        (GENERATE, "cached_content"),
    ]:
        assert ask(where, None, **{member: "x"}).stored_input, member
        assert not ask(where, None, **{member: None}).stored_input, member
    assert not ask(CHAT, previous_response_id="x").stored_input, "it does not heed it"


def test_what_runs_in_the_background_is_refused() -> None:
    for value in (True, 1, "true"):
        with pytest.raises(BadRequest, match="background") as caught:
            ask(RESPONSES, background=value)
        assert caught.value.status == 400
    assert ask(RESPONSES, background=False).model == "m-1"
    assert ask(CHAT, background=True).model == "m-1"


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"a","x":[' + b"[]," * 400_000 + b"[]]}",
        b'{"model":"a","x":[' + b"{}," * 400_000 + b"{}]}",
        b'{"model":"a","x":[' + b"1," * 600_000 + b"1]}",
    ],
    ids=["lists", "objects", "numbers"],
)
def test_what_is_made_to_be_expensive_is_not_parsed(body: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        read(CHAT, {}, body)
    assert caught.value.status == 413


def test_an_object_of_very_many_members_is_not_read_to_its_end() -> None:
    many = b",".join(b'"k%d":1' % number for number in range(100_000))
    for body in (b'{"model":"a",' + many + b"}", b'{"model":"a","stream":true,"stream_options":{' + many + b"}}"):
        with pytest.raises(BadRequest, match="members"):
            read(CHAT, {}, body)


def test_a_user_id_hides_no_second_document() -> None:
    hidden = '{"session_id": "s", "x": [' + "[]," * 1000 + "[]]}"
    assert ask(MESSAGES, metadata={"user_id": hidden}).session == ""


@pytest.mark.parametrize(
    ("headers", "members", "expected"),
    [
        ({"x-claude-code-session-id": SESSION}, {"prompt_cache_key": "k"}, SESSION),
        ({"session-id": SESSION}, {}, SESSION),
        ({}, {"prompt_cache_key": "k"}, "k"),
        ({}, {"metadata": {"user_id": f"user_ab_account__session_{SESSION}"}}, SESSION),
        ({}, {"metadata": {"user_id": "{broken"}}, ""),
        ({}, {"metadata": {"user_id": "[" * 100_000}}, ""),
        ({}, {"metadata": {"user_id": '{"session_id": 5}'}}, ""),
        ({}, {"metadata": "x", "prompt_cache_key": 7}, ""),
        ({"session-id": "a\x00b"}, {}, ""),
        ({"session-id": "x" * 201}, {}, ""),
    ],
)
def test_the_session_is_the_clients_own(headers: dict[str, str], members: dict[str, Any], expected: str) -> None:
    assert ask(MESSAGES, headers, **members).session == expected


def test_long_context_is_counted_apart() -> None:
    beta = {"anthropic-beta": "claude-code-20250219,context-1m-2025-08-07"}
    long = "x" * LONG_CONTEXT_BYTES
    assert ask(MESSAGES, beta, system=long).long_context
    assert not ask(MESSAGES, beta).long_context
    assert not ask(MESSAGES, {}, system=long).long_context
    assert ask(MESSAGES, {}, model="claude-opus-4-8[1m]").long_context


def test_what_takes_no_tokens_is_free_and_the_header_tells_whose_models() -> None:
    assert read(at("/v1/models", "GET"), {"anthropic-version": "2023-06-01"}, b"").api is Api.ANTHROPIC
    assert read(at("/v1/models", "GET"), {}, b"").api is Api.OPENAI
    assert read(at("/", "HEAD"), {}, b"").free
    counted = ask(at("/v1/messages/count_tokens"))
    assert counted.free and counted.model == "m-1"


def test_gemini_names_model_and_stream_in_its_path() -> None:
    asked = read(at("/v1beta/models/gemini-2.5-pro:streamGenerateContent"), {}, b'{"contents":[]}')
    assert (asked.model, asked.stream, asked.model_at) == ("gemini-2.5-pro", True, None)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"null", 400),
        (b"[]", 400),
        (b"{}", 400),
        (b'{"model":"a"', 400),
        (b'{"model":"a",}', 400),
        (b'{"model" "a"}', 400),
        (b'{model:"a"}', 400),
        (b'{1:"a"}', 400),
        (b'{"model":"a"} x', 400),
        (b'{"model":"a"}{"model":"b"}', 400),
        (b'{"model":"a","model":"b"}', 400),
        (b'{"model":"a","mod\\u0065l":"b"}', 400),
        (b'{"model":"a","stream_options":{"include_usage":true,"include_usage":false},"stream":true}', 400),
        (b'{"model":7}', 400),
        (b'{"model":""}', 400),
        (b'{"model":"a\\nb"}', 400),
        (b'{"model":"\\ud800"}', 400),
        (b'{"model":"' + b"a" * 201 + b'"}', 400),
        (b'{"model":"a","max_tokens":1e400}', 400),
        (b'{"model":"a","max_tokens":' + b"9" * 5000 + b"}", 400),
        (b'{"model":"a","x":[1.' + b"5" * 300 + b"]}", 400),
        (b'{"model":"a","x":[1' + b"5" * 300 + b"]}", 400),
        (b'{"model":"a","max_tokens":1000000001}', 400),
        (b'{"model":"a","max_tokens":1.5}', 400),
        (b'{"model":"a","max_tokens":"5"}', 400),
        (b'{"model":"a","max_tokens":true}', 400),
        (b'{"model":"a","max_tokens":-2}', 400),
        (b'{"model":"a","x":NaN}', 400),
        (b'{"model":"a","x":Infinity}', 400),
        (b'{"model":"a","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
        (b'{"model":"a","x":' + b'{"a":' * 100_000, 400),
        (b'{"model":"a\xff"}', 400),
        (b'\xef\xbb\xbf{"model":"a"}', 400),
        ('{"model":"a"}'.encode("utf-16"), 400),
    ],
)
def test_what_is_no_request_is_a_bad_request(body: bytes, status: int) -> None:
    with pytest.raises(BadRequest) as caught:
        read(CHAT, {}, body)
    assert caught.value.status == status and caught.value.why.endswith(".")


def test_a_packed_body_is_not_read() -> None:
    with pytest.raises(BadRequest) as caught:
        read(RESPONSES, {"content-encoding": "zstd"}, b"\x28\xb5\x2f\xfd")
    assert caught.value.status == 415


@given(st.one_of(st.binary(max_size=200), st.text(alphabet='{}[]":,\\ntrue0123e-.mode ', max_size=80).map(str.encode)))
def test_any_bytes_are_a_request_or_a_bad_request(body: bytes) -> None:
    for where in (MESSAGES, CHAT, RESPONSES, GENERATE):
        asked = or_refused(where, body)
        if asked is not None:
            said = json.loads(body)
            assert isinstance(said, dict) and (where is GENERATE or said["model"] == asked.model)


def or_refused(where: Recognised, body: bytes) -> Asked | None:
    """What is asked; None for a BadRequest. Any other exception is a failure of the test."""
    try:
        return read(where, {}, body)
    except BadRequest:
        return None


# The two changes -------------------------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | st.just("model"), inner, max_size=3),
    max_leaves=8,
)
spaces = st.text(alphabet=" \t\r\n", max_size=2)


@st.composite
def objects(draw: st.DrawFn, fixed: dict[str, Any]) -> str:
    """The text of a JSON object with these members somewhere in it, in any order, escaping and spacing."""
    others = draw(
        st.dictionaries(st.text(max_size=6).filter(lambda name: name not in ("model", "stream", "stream_options")), json_values, max_size=4)
    )
    members = draw(st.permutations([*others.items(), *fixed.items()]))
    parts = [
        f"{draw(spaces)}{json.dumps(name)}{draw(spaces)}:{draw(spaces)}{json.dumps(value, ensure_ascii=draw(st.booleans()))}"
        for name, value in members
    ]
    text = draw(spaces) + "{" + ",".join(f"{part}{draw(spaces)}" for part in parts) + "}" + draw(spaces)
    return text if draw(st.booleans()) else text.replace('"model"', '"mo\\u0064el"')


def is_utf8(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


names = st.text(min_size=1, max_size=20).filter(str.isprintable)


@given(st.data(), names, names)
def test_only_the_model_is_rewritten(data: st.DataObject, old: str, new: str) -> None:
    text = data.draw(objects({"model": old}).filter(is_utf8))
    body = text.encode()
    asked = or_refused(MESSAGES, body)
    if asked is None:  # a member such as `n` was drawn with nonsense in it
        return
    sent = sent_body(asked, body, model=new)
    if new == old:
        assert sent is body
        return
    assert json.loads(sent) == {**json.loads(body), "model": new}
    assert asked.model_at is not None
    start, end = asked.model_at
    assert json.loads(body[start:end]) == old
    assert sent == body[:start] + json.dumps(new).encode() + body[end:]


@pytest.mark.parametrize("model", [None, "m-1"])
def test_without_a_change_it_is_the_very_same_object(model: str | None) -> None:
    body = b'{ "messages": [{"model": "no"}],"model":"m-1" , "stream":true}'
    assert sent_body(read(MESSAGES, {}, body), body, model=model) is body
    assert sent_body(read(RESPONSES, {}, body), body, model=model) is body


@pytest.mark.parametrize(
    ("given_options", "sent_options"),
    [
        ("", '"stream_options":{"include_usage":true},'),
        ('"stream_options":null,', '"stream_options":{"include_usage":true},'),
        ('"stream_options":{},', '"stream_options":{"include_usage":true},'),
        ('"stream_options": {"include_usage" : false },', '"stream_options": {"include_usage" : true },'),
        ('"stream_options":{ "x":1},', '"stream_options":{"include_usage":true, "x":1},'),
    ],
)
def test_a_chat_stream_is_made_to_report_its_usage(given_options: str, sent_options: str) -> None:
    body = f'{{{given_options}"model":"ü","stream":true,"messages":[]}}'.encode()
    sent = f'{{{sent_options}"model":"ü","stream":true,"messages":[]}}'.encode()
    asked = read(CHAT, {}, body)
    assert asked.usage_edit is not None
    assert sent_body(asked, body) == sent
    assert sent_body(asked, body, model="other") == sent.replace('"ü"'.encode(), b'"other"')
    json.loads(sent)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"a","stream":true,"stream_options":{"include_usage":true}}',
        b'{"model":"a","stream":false}',
        b'{"model":"a"}',
        b'{"model":"a","stream":true,"stream_options":[]}',
    ],
)
def test_nothing_is_put_in_where_it_is_there_or_of_no_use(body: bytes) -> None:
    asked = read(CHAT, {}, body)
    assert asked.usage_edit is None and sent_body(asked, body) is body


@given(st.data())
def test_only_the_options_change(data: st.DataObject) -> None:
    options = data.draw(st.none() | st.dictionaries(st.text(max_size=4).filter(is_utf8), st.booleans(), max_size=2))
    fixed: dict[str, Any] = {"model": "m-1", "stream": True} | ({"stream_options": options} if data.draw(st.booleans()) else {})
    body = data.draw(objects(fixed).filter(is_utf8)).encode()
    asked = or_refused(CHAT, body)
    if asked is None:
        return
    before = json.loads(body)
    wanted = {**before, "stream_options": {**(before.get("stream_options") or {}), "include_usage": True}}
    assert json.loads(sent_body(asked, body, model="x")) == {**wanted, "model": "x"}
