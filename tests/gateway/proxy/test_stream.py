"""One request and its answer on their way through: bytes, order, failures, and what the account says of each."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.gateway import replay
from supervisor.host.paths import Home
from tests.gateway import kit
from tests.gateway.proxy import raw
from tests.gateway.simulator import Fault, SimSettings, running

pytestmark = pytest.mark.asyncio


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


CHAT = {"model": "gpt-5.1", "messages": [{"role": "user", "content": "grüße"}], "stream_options": {"include_usage": True}}
RESPONSES = {"model": "gpt-5.1", "input": "hello"}
GEMINI = {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
ENDPOINTS: Mapping[str, tuple[str, bytes]] = {
    "messages, streamed": ("/v1/messages?beta=true", kit.messages()),
    "messages": ("/v1/messages", kit.messages(stream=False)),
    "count tokens": (
        "/v1/messages/count_tokens",
        json.dumps({"model": "claude-opus-4-8", "messages": [{"role": "user", "content": "x"}]}).encode(),
    ),
    "chat, streamed": ("/v1/chat/completions", json.dumps({**CHAT, "stream": True}).encode()),
    "chat": ("/v1/chat/completions", json.dumps({"model": "gpt-5.1", "messages": CHAT["messages"]}, indent=3).encode()),
    "responses, streamed": ("/v1/responses", json.dumps({**RESPONSES, "stream": True}).encode()),
    "responses": ("/v1/responses", json.dumps(RESPONSES).encode()),
    "gemini": ("/v1beta/models/gemini-2.5-flash:generateContent", json.dumps(GEMINI).encode()),
    "gemini, streamed": ("/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", json.dumps(GEMINI).encode()),
    "gemini, a list": ("/v1beta/models/gemini-2.5-flash:streamGenerateContent", json.dumps(GEMINI).encode()),
}


@pytest.mark.parametrize("name", ENDPOINTS)
async def test_bytes_pass_unchanged_both_ways(tmp_path: Path, name: str) -> None:
    path, body = ENDPOINTS[name]
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.all_apis(home(tmp_path), sim.url)) as gate:
        answer = await gate.post(path, body, gate.crew.agent())
        entry = sim.provider.stats.last[-1]
        assert (answer.status, answer.cut) == (200, False), answer.body
        assert entry.path == path
        assert entry.body_sha256 == sha(body)
        if entry.sent_sha256:  # count_tokens says no digest
            assert sha(answer.body) == entry.sent_sha256
            (row,) = await kit.settled(gate.home, 1)
            assert (row["agent"], row["end"], row["status"], row["estimated"], row["flags"]) == ("run/a", "served", 200, 0, "")
            assert entry.usage is not None
            assert [row[kind] for kind in ("input", "output", "cache_read", "cache_write")] == [
                entry.usage.input, entry.usage.output, entry.usage.cache_read, entry.usage.cache_write,
            ]  # fmt: skip
        else:
            assert "input_tokens" in answer.json
            assert kit.rows(gate.home) == []


async def test_a_chat_stream_reports_its_usage_without_its_client_noticing(tmp_path: Path) -> None:
    body = json.dumps({"model": "gpt-5.1", "messages": CHAT["messages"], "stream": True}).encode()
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.all_apis(home(tmp_path), sim.url)) as gate:
        token = gate.crew.agent()
        plain = await gate.post("/v1/chat/completions", body, token)
        assert b"[DONE]" in plain.body
        assert b'"usage":{' not in plain.body
        (row,) = await kit.settled(gate.home, 1)
        assert row["output"] > 0
        assert row["estimated"] == 0
        assert sim.provider.stats.last[-1].body_sha256 != sha(body), "one field was added"


async def test_a_route_changes_the_models_name_and_nothing_else(tmp_path: Path) -> None:
    route = '[[route]]\nmodel = "claude-opus-*"\nas = "claude-haiku-4-5"\n'
    body = kit.messages("claude-opus-4-8 is not to be changed here")
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url) + route) as gate:
        await gate.post("/v1/messages", body, gate.crew.agent())
        entry = sim.provider.stats.last[-1]
        assert entry.body_sha256 == sha(body.replace(b'"model": "claude-opus-4-8"', b'"model": "claude-haiku-4-5"'))
        (row,) = await kit.settled(gate.home, 1)
        assert (row["model"], row["model_class"]) == ("claude-haiku-4-5", "haiku-4")


async def test_the_first_byte_passes_before_the_second_event_is_there(tmp_path: Path) -> None:
    seen = asyncio.Event()

    async def script(_request: raw.Received, to: raw.Connection) -> None:
        await to.send(raw.STREAM, raw.chunk(raw.START))
        await seen.wait()  # the second event exists only when the client has the first
        await to.send(raw.chunk(raw.TEXT), raw.chunk(raw.END), raw.LAST)

    async with raw.upstream(script) as up, kit.gateway(tmp_path, kit.upstream(home(tmp_path), up.url)) as gate:
        async with gate.ask("/v1/messages", kit.messages(), gate.crew.agent()) as response:
            first = await response.content.readany()
            seen.set()
            rest = await kit.collected(response)
        assert first == raw.START
        assert rest.body == raw.TEXT + raw.END
        assert not rest.cut


async def test_the_row_is_on_disk_before_the_upstream_sees_a_byte(tmp_path: Path) -> None:
    found: list[list[dict[str, Any]]] = []

    async def script(_request: raw.Received, to: raw.Connection) -> None:
        found.append(kit.rows(home(tmp_path)))
        await to.send(raw.STREAM, raw.chunk(raw.START + raw.END), raw.LAST)

    async with raw.upstream(script) as up, kit.gateway(tmp_path, kit.upstream(home(tmp_path), up.url)) as gate:
        await gate.post("/v1/messages", kit.messages(max_tokens=77), gate.crew.agent())
        ((row,),) = found
        assert row["end"] is None
        assert row["bound_output"] == 77
        (row,) = await kit.settled(gate.home, 1)
        assert (row["end"], row["input"], row["output"]) == ("served", 25, 15)


NOT_PASSED_ON = (
    "X-Goog-FieldMask", "X-HTTP-Method-Override", "OpenAI-Organization", "OpenAI-Project", "X-Goog-User-Project", "X-Forwarded-For",
    "X-Forwarded-Proto", "Forwarded", "Cookie",
)  # fmt: skip


async def test_keys_are_exchanged_and_other_headers_pass(tmp_path: Path) -> None:
    async def script(_request: raw.Received, to: raw.Connection) -> None:
        await to.send(
            raw.whole(200, b"{}", b"X-Answer: as it is\r\nAnthropic-Ratelimit-Tokens-Remaining: 7\r\nX-RateLimit-Limit-Tokens: 5\r\n")
        )

    async with raw.upstream(script) as up, kit.gateway(tmp_path, kit.upstream(home(tmp_path), up.url)) as gate:
        token = gate.crew.agent()
        sent = {
            "x_api_key": "sk-ant-somebody-elses",
            "anthropic_beta": "a,b",
            "X_Odd": "ü",
            "Accept_Encoding": "br",
            "Connection": "X-Mine",
            "X_Mine": "1",
            **dict.fromkeys(NOT_PASSED_ON, "x"),
        }
        answer = await gate.post("/v1/messages", kit.messages(stream=False), token, **sent)
        (request,) = up.received
        assert token not in request.head
        assert "somebody" not in request.head
        assert f"x-api-key: {kit.KEY}" in request.lines
        assert "anthropic-beta: a,b" in request.lines
        assert "accept-encoding: identity" in request.lines
        assert f"host: {up.url.removeprefix('http://')}" in request.lines
        assert not [line for line in request.lines if line.startswith(("x-mine", "authorization", "via", *map(str.lower, NOT_PASSED_ON)))]
        assert answer.headers["X-Answer"] == "as it is"
        assert int(answer.headers["x-gw-queue-ms"]) >= 0
        assert not [name for name in answer.headers if "ratelimit" in name.lower()], "the shared limit is the gateway's affair"


async def test_a_client_with_its_own_login_keeps_it(tmp_path: Path) -> None:
    async def script(_request: raw.Received, to: raw.Connection) -> None:
        await to.send(raw.whole(401, b'{"type":"error"}', b"Anthropic-Ratelimit-Unified-5h-Utilization: 0.5\r\n"))

    settings = kit.upstream(home(tmp_path), "http://127.0.0.1:1", key=None, more='key = "client"')
    async with raw.upstream(script) as up, kit.gateway(tmp_path, settings.replace("http://127.0.0.1:1", up.url)) as gate:
        token = gate.crew.agent()
        answer = await gate.post(f"/a/{token}/v1/messages", kit.messages(), "own-login")
        assert "authorization: bearer own-login" in up.received[0].lines
        assert "POST /v1/messages HTTP/1.1" in up.received[0].head
        assert token not in up.received[0].head
        assert (answer.status, answer.body) == (401, b'{"type":"error"}'), "its login is its own affair"
        assert "Anthropic-Ratelimit-Unified-5h-Utilization" in answer.headers
        without = await gate.post("/v1/messages", kit.messages(), token)
        assert without.status == 503, "it has brought no login that could be passed on"
        assert len(up.received) == 1
        own = {"Cookie": "a=b", "OpenAI-Organization": "mine", "Forwarded": "for=x"}
        beside = await gate.post("/v1/messages", kit.messages(), "own-login", x_api_key=token, **own)
        assert beside.status == 401
        assert "authorization: bearer own-login" in up.received[1].lines
        assert token not in up.received[1].head, "our token is no login"
        assert "openai-organization: mine" in up.received[1].lines, "who pays is its own affair as well"
        assert not [line for line in up.received[1].lines if line.startswith(("cookie", "forwarded"))]
        assert [row["end"] for row in await kit.settled(gate.home, 2)] == ["rejected", "rejected"]


# Before the first byte: tried again -------------------------------------------------------------------------------------------------


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=429, retry_after="0.05"),
        Fault(status=529),
        Fault(status=503),
        Fault(wire="no_answer"),
        Fault(wire="mid_headers"),
        Fault(then="error", after=0, error_status=529),
        Fault(then="cut", after=0),
    ],
    ids=["429", "529", "503", "no answer", "half a head", "an error first thing in a 200", "cut before anything"],
)
async def test_what_fails_before_the_first_byte_is_tried_again(tmp_path: Path, fault: Fault) -> None:
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        sim.faults(replace(fault, times=1))
        answer = await gate.post("/v1/messages", kit.messages(), gate.crew.agent())
        assert answer.status == 200
        assert b"message_stop" in answer.body
        assert b"error" not in answer.body
        refused, served = await kit.settled(gate.home, 2)
        assert (refused["end"], refused["attempt_no"], refused["output"], refused["cost_usd"]) == ("refused", 1, 0, refused["cost_usd"])
        assert refused["bound_input"] == served["bound_input"] > 0
        assert (served["end"], served["attempt_no"], served["retries"]) == ("served", 2, 1)


async def test_the_clients_own_mistake_is_passed_on(tmp_path: Path) -> None:
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        sim.faults(Fault(status=400, message="messages: at least one message is required", times=1))
        answer = await gate.post("/v1/messages", kit.messages(), gate.crew.agent())
        assert answer.status == 400
        assert "at least one message" in answer.json["error"]["message"]
        (row,) = await kit.settled(gate.home, 1)
        assert (row["end"], row["status"], row["input"], row["output"]) == ("rejected", 400, 0, 0)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (403, "You do not have permission to access the File abc or it may not exist."),
        (403, "Project `proj_x` does not have access to model `gpt-x`"),
        (400, "Invalid value: 'credit balance is too low'. Supported values are: 'user'"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1beta/models/gemini-2.5-pro:generateContent"])
async def test_one_agents_odd_request_closes_nothing_for_the_others(tmp_path: Path, status: int, message: str, path: str) -> None:
    def body(text: str) -> bytes:
        return json.dumps({"model": "gpt-5", "messages": [text], "contents": [{"role": "user", "parts": [{"text": text}]}]}).encode()

    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.all_apis(home(tmp_path), sim.url)) as gate:
        sim.faults(Fault(contains="POISON", status=status, message=message))
        answer = await gate.post(path, body("POISON"), gate.crew.agent("run/bad"))
        assert answer.status == status
        assert message in answer.json["error"]["message"]
        assert (await gate.post(path, body("hello"), gate.crew.agent("run/good"))).status == 200


async def test_a_client_that_leaves_while_it_is_answered_is_no_fault(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def script(_request: raw.Received, to: raw.Connection) -> None:
        await to.send(raw.STREAM, raw.chunk(raw.START))
        await left.wait()
        while True:
            await to.send(raw.chunk(raw.TEXT * 5000))

    async with raw.upstream(script) as up, kit.gateway(tmp_path, kit.upstream(home(tmp_path), up.url)) as gate:
        async with gate.ask("/v1/messages", kit.messages(), gate.crew.agent()) as response:
            await response.content.readany()
            left.set()
            response.close()
        await kit.settled(gate.home, 1)
        await kit.until(lambda: up.connections == 0, "the upstream to be left")
        assert "Traceback" not in gate.log()


async def test_a_redirect_is_neither_followed_nor_passed_on(tmp_path: Path) -> None:
    async def script(_request: raw.Received, to: raw.Connection) -> None:
        await to.send(b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:9/steal\r\nContent-Length: 0\r\n\r\n")

    async with raw.upstream(script) as up, kit.gateway(tmp_path, kit.upstream(home(tmp_path), up.url)) as gate:
        answer = await gate.post("/v1/messages", kit.messages(), gate.crew.agent())
        assert answer.status == 502
        assert "Location" not in answer.headers
        assert len(up.received) == 1


# After the first byte: never again --------------------------------------------------------------------------------------------------


async def test_a_cut_stream_is_passed_on_as_cut(tmp_path: Path) -> None:
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        sim.faults(Fault(then="cut", after=4, times=1))
        answer = await gate.post("/v1/messages", kit.messages(), gate.crew.agent())
        assert (answer.status, answer.cut) == (200, True)
        assert b"message_start" in answer.body
        assert b"message_stop" not in answer.body
        (row,) = await kit.settled(gate.home, 1)
        assert (row["end"], row["estimated"]) == ("cut", 1)
        assert row["input"] > 0, "what was seen is the least that is charged"
        assert sim.provider.stats.number() == 2, "it was asked once"


async def test_an_error_event_within_a_200_is_passed_on_and_counted_as_a_failure(tmp_path: Path) -> None:  # N05
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        sim.faults(Fault(then="error", after=4, times=1))
        answer = await gate.post("/v1/messages", kit.messages(), gate.crew.agent())
        assert (answer.status, answer.cut) == (200, False)
        assert b"event: error" in answer.body
        (row,) = await kit.settled(gate.home, 1)
        assert row["end"] == "cut"
        assert "overloaded_error" in row["flags"]


@pytest.mark.parametrize("wire", ["length_short", "length_long", "no_chunk_end"])  # N06
async def test_misshapen_answers_end(tmp_path: Path, wire: str) -> None:
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        sim.faults(Fault(wire=wire, times=1))  # type: ignore[arg-type]  # one of its words
        answer = await gate.post("/v1/messages", kit.messages(), gate.crew.agent())
        assert answer.status == 200
        assert answer.cut == (wire != "length_short"), "what is missing is seen to be missing"
        *_, row = await kit.settled(gate.home, 1)
        assert row["end"] == ("cut" if answer.cut else "served")
        again = await gate.post("/v1/messages", kit.messages(), gate.crew.agent("run/b"))
        assert b"message_stop" in again.body


async def test_a_gzip_bomb_is_decoded_in_pieces(tmp_path: Path) -> None:  # N06
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        sim.faults(Fault(wire="gzip_bomb", times=1))
        answer = await gate.post("/v1/messages", kit.messages(), gate.crew.agent())
        assert "Content-Encoding" not in answer.headers
        assert len(answer.body) > 2**20
        (row,) = await kit.settled(gate.home, 1)
        assert "usage_missing" in row["flags"]
        assert row["estimated"] == 1


@pytest.mark.parametrize("manner", ["bytes", "split", "crlf", "comments", "big_line"])  # N09
async def test_odd_streams_pass_byte_for_byte(tmp_path: Path, manner: str) -> None:
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        sim.faults(Fault(manner=manner, text="Grüße, 世界 🌍 " * 10, times=1))  # type: ignore[arg-type]  # one of its words
        answer = await gate.post("/v1/messages", kit.messages(), gate.crew.agent())
        assert not answer.cut
        assert sha(answer.body) == sim.provider.stats.last[-1].sent_sha256
        (row,) = await kit.settled(gate.home, 1)
        usage = sim.provider.stats.last[-1].usage
        assert usage is not None
        assert (row["end"], row["output"], row["estimated"]) == ("served", usage.output, 0)


@pytest.mark.parametrize(("usage", "flag"), [("missing", "usage_missing"), ("negative", "usage_negative"), ("larger", "usage_above_bound")])
async def test_strange_usage_is_charged_with_care_and_flagged(tmp_path: Path, usage: str, flag: str) -> None:  # N11
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        sim.faults(Fault(usage=usage, output_tokens=40, times=1))  # type: ignore[arg-type]  # one of its words
        answer = await gate.post("/v1/messages", kit.messages(max_tokens=100), gate.crew.agent())
        assert answer.status == 200
        (row,) = await kit.settled(gate.home, 1)
        assert flag in row["flags"]
        assert row["input"] > 0
        assert row["output"] > 0
        if usage == "larger":
            assert row["output"] == 400, "what the provider says is charged"


async def test_usage_that_is_said_twice_is_charged_once(tmp_path: Path) -> None:  # N11
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        sim.faults(Fault(usage="duplicated", output_tokens=40, times=1))
        await gate.post("/v1/messages", kit.messages(max_tokens=100), gate.crew.agent())
        (row,) = await kit.settled(gate.home, 1)
        assert row["output"] == 40


async def test_a_recorded_answer_is_the_answer(tmp_path: Path) -> None:
    async with running(SimSettings()) as sim:
        settings = "[gateway]\nrecord = true\n" + kit.upstream(home(tmp_path), sim.url)
        async with kit.gateway(tmp_path, settings) as gate:
            token = gate.crew.agent()
            whole = await gate.post("/v1/messages?beta=true", kit.messages(), token)
            sim.faults(Fault(then="cut", after=4, times=1))
            cut = await gate.post("/v1/messages", kit.messages(token), token)
            await kit.settled(gate.home, 2)
        tapes = [replay.read(path) for path in sorted(gate.home.recordings.rglob("*.tape"))]
        assert [tape.endpoint for tape in tapes] == ["POST /v1/messages?beta=true", "POST /v1/messages"]
        assert [b"".join(data for _, data in tape.pieces) for tape in tapes] == [whole.body, cut.body]
        assert [tape.end for tape in tapes] == ["served", "cut"]
        assert tapes[0].body == kit.messages()
        assert token.encode() not in tapes[1].body
