"""Answers that no provider should give: odd statuses, headers that no header may hold, our own key said back to us."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.host.paths import Home
from tests.gateway import kit
from tests.gateway.proxy import raw

pytestmark = pytest.mark.asyncio
SERVED = json.dumps({"type": "message", "usage": {"input_tokens": 9, "output_tokens": 3}}).encode()
AGAIN = SERVED.replace(b"message", b"asked again")
KEY = kit.KEY.encode()
COUNT = "/v1/messages/count_tokens"


def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


async def answered(tmp_path: Path, *writes: bytes, path: str = "/v1/messages") -> tuple[kit.Answer, kit.Gate]:
    """What a client gets when the provider writes exactly this and closes (and serves when it is asked again), and the gateway then."""
    left = [list(writes)]

    async def script(_request: raw.Received, to: raw.Connection) -> None:
        for data in left.pop() if left else [raw.whole(200, AGAIN)]:
            await to.send(data)
        to.writer.close()

    async with raw.upstream(script) as up, kit.gateway(tmp_path, kit.upstream(home(tmp_path), up.url)) as gate:
        answer = await gate.post(path, kit.messages(), gate.crew.agent())
        if path != COUNT:
            await kit.settled(gate.home, 1)
            assert gate.gateway.context.admission.traffic.tickets == {}
        assert "a request failed" not in gate.log()
        return answer, gate


# Headers ------------------------------------------------------------------------------------------------------------------------------

ODD_HEADERS = [
    b"X-Odd: a\x1b[31mb",
    b"X-Odd: a\x01b",
    b"X-Odd: a\x7fb",
    b"X-Odd: gr\xfc\xdfe",
    b"X-Odd: " + b"x" * 30_000,
]


@pytest.mark.parametrize("odd", ODD_HEADERS, ids=["escape", "control", "delete", "no UTF-8", "huge"])
@pytest.mark.parametrize("path", ["/v1/messages", COUNT])
async def test_a_header_that_no_client_could_take_is_left_out(tmp_path: Path, odd: bytes, path: str) -> None:
    headers = b"Content-Type: application/json\r\nX-Good: g\r\n" + odd + b"\r\n"
    answer, _ = await answered(tmp_path, raw.whole(200, SERVED, headers), path=path)
    assert (answer.status, answer.body) == (200, SERVED)
    assert answer.headers["X-Good"] == "g"
    assert "X-Odd" not in answer.headers


async def test_headers_that_are_too_many_for_clients_together_lose_the_longest(tmp_path: Path) -> None:
    many = b"".join(b"X-Policy-%d: %s\r\n" % (number, b"x" * 3000) for number in range(15))
    answer, _ = await answered(tmp_path, raw.whole(200, SERVED, many + b"Content-Type: application/json\r\n"))
    assert (answer.status, answer.body) == (200, SERVED)
    assert answer.headers["Content-Type"] == "application/json"
    assert sum(len(name) + len(text) + 4 for name, text in answer.headers.items()) < 16 * 2**10, "Node reads no more"


@pytest.mark.parametrize(
    "reason", [b"gr\xfc\xdfe", b"a\x1b[31mb", b"a\x01b", b"", b"x" * 5000], ids=["latin", "escape", "control", "none", "long"]
)
async def test_an_odd_reason_is_replaced(tmp_path: Path, reason: bytes) -> None:
    answer, _ = await answered(tmp_path, raw.whole(200, SERVED).replace(b"200 X", b"200 " + reason))
    assert (answer.status, answer.body) == (200, SERVED)


async def test_what_the_provider_calls_its_connections_affair_is_not_passed_on(tmp_path: Path) -> None:
    answer, _ = await answered(tmp_path, raw.whole(200, SERVED, b"Connection: X-Hop, close\r\nX-Hop: 1\r\nX-Good: g\r\n"))
    assert answer.headers["X-Good"] == "g"
    assert "X-Hop" not in answer.headers


# Statuses -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/messages", COUNT])
async def test_a_change_of_protocol_that_nobody_asked_for_is_not_passed_on(tmp_path: Path, path: str) -> None:
    answer, gate = await answered(tmp_path, b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nanything", path=path)
    assert answer.status == 502
    assert "101" in answer.json["error"]["message"]
    assert "Upgrade" not in answer.headers
    if path != COUNT:
        (row,) = kit.rows(gate.home)
        assert (row["end"], row["status"], row["input"], row["output"]) == ("rejected", 101, 0, 0)


@pytest.mark.parametrize("between", [b"100 Continue", b"102 Processing", b"103 Early Hints"])
async def test_interim_answers_are_no_answers(tmp_path: Path, between: bytes) -> None:
    answer, _ = await answered(tmp_path, b"HTTP/1.1 " + between + b"\r\nLink: x\r\n\r\n", raw.whole(200, SERVED))
    assert (answer.status, answer.body) == (200, SERVED)
    assert "Link" not in answer.headers


@pytest.mark.parametrize("status", [204, 205])
async def test_an_answer_without_a_body_ends(tmp_path: Path, status: int) -> None:
    answer, _ = await answered(tmp_path, raw.whole(status, b""))
    assert (answer.status, answer.body, answer.cut) == (status, b"", False)


NO_ANSWERS = {
    "600": raw.whole(600, b"{}"),
    "999": raw.whole(999, b"{}"),
    "two digits": raw.whole(99, b"{}"),
    "204 with a body": raw.whole(204, SERVED),
    "304 with a body": raw.whole(304, SERVED),
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n0\r\n\r\n",
    "negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n0\r\n\r\n",
    "length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "space in a name": b"HTTP/1.1 200 OK\r\nX Odd: 1\r\nContent-Length: 0\r\n\r\n",
    "huge head": b"HTTP/1.1 200 OK\r\nX-Odd: " + b"x" * 200_000 + b"\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.in_turns
@pytest.mark.parametrize("name", NO_ANSWERS)
async def test_what_can_be_read_in_two_ways_or_in_none_is_no_answer(tmp_path: Path, name: str) -> None:
    answer, gate = await answered(tmp_path, NO_ANSWERS[name])
    assert (answer.status, answer.body) == (200, AGAIN)
    assert [row["end"] for row in kit.rows(gate.home)] == ["refused", "served"]


# Our own key ----------------------------------------------------------------------------------------------------------------------------


def lengths_kept(was: bytes, answer: kit.Answer) -> bool:
    return len(was) == len(answer.body) == int(answer.headers["Content-Length"])


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("path", ["/v1/messages", COUNT])
async def test_our_key_is_taken_out_of_an_answer_and_its_headers(tmp_path: Path, status: int, path: str) -> None:
    body = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": f"bad key {kit.KEY}, said"}}).encode()
    whole = raw.whole(status, body, b"X-Key: Bearer " + KEY + b"\r\nX-Good: g\r\n").replace(b"%d X" % status, b"%d for " % status + KEY)
    answer, gate = await answered(tmp_path, whole, path=path)
    assert answer.status == status
    assert b"bad key" in answer.body
    assert b", said" in answer.body
    assert lengths_kept(body, answer)
    assert answer.headers["X-Good"] == "g"
    for text in (answer.body.decode(), str(answer.headers), gate.log(), str(kit.rows(gate.home))):
        assert "canary" not in text


def deflated(data: bytes) -> bytes:
    return zlib.compress(data)


def bare_deflated(data: bytes) -> bytes:
    return zlib.compress(data, wbits=-15)


def in_two_members(data: bytes) -> bytes:
    return gzip.compress(data[:30]) + gzip.compress(data[30:])


@pytest.mark.parametrize(
    ("name", "encode"), [("gzip", gzip.compress), ("x-gzip", in_two_members), ("deflate", deflated), ("Deflate", bare_deflated)]
)
@pytest.mark.parametrize("path", ["/v1/messages", COUNT])
async def test_an_answer_that_is_compressed_unasked_is_read(tmp_path: Path, name: str, encode: Callable[[bytes], bytes], path: str) -> None:
    body = SERVED.replace(b"{", b'{"key": "' + KEY + b'", ', 1)
    sent = encode(body)
    headers = f"Content-Type: application/json\r\nContent-Encoding: {name}\r\n".encode()
    answer, gate = await answered(tmp_path, raw.whole(200, sent, headers), path=path)
    assert b"canary" not in answer.body and len(answer.body) == len(body) and answer.body.endswith(body[-50:])
    assert "Content-Encoding" not in answer.headers
    if path != COUNT:
        (row,) = kit.rows(gate.home)
        assert (row["end"], row["input"], row["output"], row["estimated"]) == ("served", 9, 3, 0)


async def test_a_compressed_stream_passes_piece_by_piece_without_our_key(tmp_path: Path) -> None:
    said = raw.START + raw.TEXT.replace(b"words", KEY) + raw.END
    packed = gzip.compress(said)
    head = raw.STREAM.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    answer, gate = await answered(tmp_path, head, *(raw.chunk(packed[at : at + 7]) for at in range(0, len(packed), 7)), raw.LAST)
    assert answer.body.startswith(raw.START) and answer.body.endswith(raw.END) and len(answer.body) == len(said)
    assert b"canary" not in answer.body
    assert [(row["end"], row["output"]) for row in kit.rows(gate.home)] == [("served", 15)]


@pytest.mark.parametrize("cut", [10, -9])
async def test_a_compressed_answer_that_is_not_whole_or_not_compressed_is_cut(tmp_path: Path, cut: int) -> None:
    packed = gzip.compress(SERVED)
    headers = b"Content-Type: application/json\r\nContent-Encoding: gzip\r\n"
    answer, gate = await answered(tmp_path, raw.whole(200, packed[:cut] if cut < 0 else SERVED, headers))
    assert answer.cut or answer.body == AGAIN
    assert kit.rows(gate.home)[0]["end"] in ("cut", "refused")


@pytest.mark.in_turns
@pytest.mark.parametrize("encode", [gzip.compress, deflated, bare_deflated])
@pytest.mark.parametrize("path", ["/v1/messages", COUNT])
async def test_an_answer_that_is_compressed_and_does_not_say_so_is_not_passed_on(
    tmp_path: Path, encode: Callable[[bytes], bytes], path: str
) -> None:
    sent = encode(SERVED.replace(b"{", b'{"key": "' + KEY + b'", ', 1))
    for answers in ((raw.whole(200, sent),), (raw.STREAM, raw.chunk(sent), raw.LAST)):
        answer, gate = await answered(tmp_path / str(len(answers)), *answers, path=path)
        assert answer.cut or sent[:20] not in answer.body
        assert path == COUNT or kit.rows(gate.home)[0]["end"] in ("cut", "refused")


@pytest.mark.parametrize("coded", ["gzip, chunked", "gzip,chunked", "deflate , Chunked"])
async def test_an_answer_that_is_compressed_on_its_way_is_not_passed_on(tmp_path: Path, coded: str) -> None:
    head = raw.STREAM.replace(b"chunked", coded.encode())
    answer, gate = await answered(tmp_path, head, raw.chunk(gzip.compress(SERVED.replace(b"{", b'{"key": "' + KEY + b'", ', 1))), raw.LAST)
    assert answer.status == 502 and "on its way" in answer.json["error"]["message"]
    assert kit.rows(gate.home)[0]["end"] == "cut"


@pytest.mark.parametrize("name", ["br", "zstd", "gzip, br", "x"])
async def test_an_answer_in_an_encoding_that_cannot_be_read_is_not_passed_on(tmp_path: Path, name: str) -> None:
    headers = f"Content-Type: application/json\r\nContent-Encoding: {name}\r\n".encode()
    answer, gate = await answered(tmp_path, raw.whole(200, KEY, headers))
    assert answer.status == 502 and "encoding" in answer.json["error"]["message"]
    (row,) = kit.rows(gate.home)
    assert (row["end"], row["estimated"]) == ("cut", 1) and row["input"] > 0, "the provider may charge it"


async def test_a_compressed_flood_is_read_in_pieces(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"text": "' + b"x" * 20_000_000 + b'", "usage": {"input_tokens": 9, "output_tokens": 3}, "type": "message"}')
    headers = b"Content-Type: application/json\r\nContent-Encoding: gzip\r\n"
    answer, gate = await answered(tmp_path, raw.whole(200, packed, headers))
    assert len(answer.body) > 20_000_000
    assert [(row["end"], row["output"]) for row in kit.rows(gate.home)] == [("served", 3)]


@pytest.mark.parametrize("form", ["\\u002d", "%2D", "%252d"])
async def test_our_key_is_taken_out_of_a_served_answer_in_escaped_forms(tmp_path: Path, form: str) -> None:
    written = kit.KEY.replace("-", form).encode()
    said = raw.START + raw.TEXT.replace(b"words", written) + raw.END
    middle = said.index(written) + 12
    answer, _ = await answered(tmp_path, raw.STREAM, raw.chunk(said[:middle]), raw.chunk(said[middle:]), raw.LAST)
    assert len(answer.body) == len(said) and b"canary" not in answer.body


async def test_our_key_is_taken_out_when_it_comes_in_two_pieces(tmp_path: Path) -> None:
    body = b'{"error": "' + KEY + b'"}'
    pieces = raw.chunk(body[:20]), raw.chunk(body[20:])
    answer, _ = await answered(tmp_path, raw.STREAM, *pieces, raw.LAST)
    assert (answer.body[:11], answer.body[-2:], len(answer.body)) == (body[:11], body[-2:], len(body))
    assert b"canary" not in answer.body
    assert KEY[9:] not in answer.body


@pytest.mark.parametrize(
    "disguise",
    [KEY[:-3], KEY[4:], base64.b64encode(b"x:" + KEY), KEY.hex().encode(), KEY.replace(b"-", b"%2D"), KEY.replace(b"-", b"\\u002d")],
    ids=["its begin", "its end", "base64", "hex", "quoted", "escaped"],
)
async def test_an_error_that_says_our_key_in_disguise_is_cleaned(tmp_path: Path, disguise: bytes) -> None:
    body = b'{"error": {"message": "gr\xc3\xbc\xc3\x9fe ' + disguise + b' end"}}'
    answer, _ = await answered(tmp_path, raw.whole(400, body))
    assert lengths_kept(body, answer)
    assert answer.body.startswith(b'{"error": {"message": "gr\xc3\xbc\xc3\x9fe ')
    assert answer.body.endswith(b' end"}}')
    parts = [disguise[at : at + 12] for at in range(len(disguise) - 11)]
    assert sum(part in answer.body for part in parts) <= len(parts) // 4, "what is left of it is of no use to anybody"


async def test_an_error_event_that_says_our_key_is_cleaned(tmp_path: Path) -> None:
    event = b'event: error\ndata: {"type":"error","error":{"type":"' + KEY + b'","message":"for ' + KEY + b'"}}\n\n'
    answer, gate = await answered(
        tmp_path, raw.STREAM, raw.chunk(raw.START + raw.TEXT), raw.chunk(event[:70]), raw.chunk(event[70:]), raw.LAST
    )
    assert answer.body.startswith(raw.START + raw.TEXT + b"event: error\n")
    assert len(answer.body) == len(raw.START + raw.TEXT + event)
    for text in (answer.body.decode(), gate.log(), str(kit.rows(gate.home))):
        assert "canary" not in text


async def test_a_key_that_is_an_ordinary_word_changes_no_answer(tmp_path: Path) -> None:
    async def script(_request: raw.Received, to: raw.Connection) -> None:
        await to.send(raw.whole(200, b'{"text": "ollama is a server"}'))

    async with raw.upstream(script) as up, kit.gateway(tmp_path, kit.upstream(home(tmp_path), up.url, key="ollama")) as gate:
        assert (await gate.post("/v1/messages", kit.messages(), gate.crew.agent())).body == b'{"text": "ollama is a server"}'
