"""Recording and replay: the recorded answers to the same requests, with nothing in them that opens a door."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import aiohttp
import anthropic
import pytest
import zstandard

from supervisor.gateway import replay
from supervisor.gateway.account import schema
from supervisor.gateway.account.charges import RecordingRow
from supervisor.gateway.account.writer import Account
from supervisor.gateway.replay import Recorder, Request
from supervisor.kernel.errors import NotFound, Refused, ToolFailed
from tests import support
from tests.gateway.account.kit import Wall, unpriced

RUN = "1121-k3f9"
MESSAGES = "POST /v1/messages?beta=true"


class Clock(Wall):
    """Both clocks, moved by hand."""

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def boottime(self) -> float:
        return self.now


def request(body: bytes, row_id: int = 1, endpoint: str = MESSAGES) -> Request:
    return Request(row_id, RUN, endpoint, body)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def index() -> list[RecordingRow]:
    return []


@pytest.fixture
def recorder(tmp_path: Path, clock: Clock, index: list[RecordingRow]) -> Recorder:
    return Recorder(tmp_path / "recordings", index.append, clock, ["the-provider-key-1234"])


def tapes(tmp_path: Path) -> list[Path]:
    return sorted(path for path in (tmp_path / "recordings").rglob("*") if path.is_file())


# Tapes --------------------------------------------------------------------------------------------------------------------------------


def test_a_tape_gives_back_every_piece_and_when_it_came(
    tmp_path: Path, recorder: Recorder, clock: Clock, index: list[RecordingRow], seed: int
) -> None:
    draw = random.Random(seed)
    body, pieces = draw.randbytes(70_000), [draw.randbytes(draw.randrange(0, 5000)) for _ in range(50)]
    tape = recorder.begin(request(body), 200, {"Content-Type": "text/event-stream"})
    for piece in pieces:
        clock.now += 0.25
        tape.piece(piece)
    assert index == [], "it is not whole yet"
    tape.end("served")
    (path,) = tapes(tmp_path)
    (row,) = index
    assert (tmp_path / "recordings" / row.file, row.row_id, row.status, row.endpoint) == (path, 1, 200, MESSAGES)
    played = replay.read(path)
    assert (played.body, [piece for _, piece in played.pieces]) == (body, pieces)
    assert [after for after, _ in played.pieces][:3] == [0.25, 0.5, 0.75]
    assert (played.status, played.end, played.headers) == (200, "served", {"content-type": "text/event-stream"})


def test_files_are_private(tmp_path: Path, recorder: Recorder) -> None:
    old = os.umask(0)
    try:
        recorder.begin(request(b"{}"), 200, {}).end("served")
    finally:
        os.umask(old)
    (path,) = tapes(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert {place.stat().st_mode & 0o777 for place in (path.parent, path.parent.parent)} == {0o700}


def test_no_login_gets_onto_a_tape(tmp_path: Path, recorder: Recorder) -> None:
    secrets = [
        "the-provider-key-1234",
        "sk-ant-api03-abcdefghijklmnop",
        "nct_MTEyMS1rM2Y5_0123456789abcdef",
        "AIzaSyA-0123456789abcdefghijkl",
    ]
    text = " ".join(secrets)
    headers = {"Authorization": text, "Set-Cookie": text, "x-api-key": text, "anthropic-organization-id": text, "request-id": "req_1"}
    tape = recorder.begin(request(f'{{"content": "{text}", "metadata": {{"user_id": "u-77"}}}}'.encode()), 200, headers)
    tape.piece(f"data: {text}\n\n".encode())
    tape.end("served")
    (path,) = tapes(tmp_path)
    unpacked = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read().decode()
    for secret in secrets:
        assert secret not in unpacked
    assert "u-77" in unpacked and "req_1" in unpacked and unpacked.count("[hidden]") == 8


def test_an_answer_that_was_not_finished_is_no_tape(tmp_path: Path, recorder: Recorder, index: list[RecordingRow]) -> None:
    tape = recorder.begin(request(b"{}"), 200, {})
    tape.piece(b"half")
    assert [path.suffix for path in tapes(tmp_path)] == [".part"]
    assert index == []
    tape.end("cut")
    tape.end("served")
    assert len(index) == 1 and replay.read(tapes(tmp_path)[0]).end == "cut"


@pytest.mark.parametrize("how", ["empty", "text", "half", "the end is missing", "a byte changed"])
def test_a_spoilt_tape_is_refused(tmp_path: Path, recorder: Recorder, how: str) -> None:
    tape = recorder.begin(request(os.urandom(5000)), 200, {})
    tape.piece(os.urandom(5000))
    tape.end("served")
    (path,) = tapes(tmp_path)
    data = path.read_bytes()
    spoilt = {"empty": b"", "text": b"text", "half": data[: len(data) // 2], "the end is missing": data[:-40]}
    path.write_bytes(spoilt.get(how, data[:3000] + bytes([data[3000] ^ 1]) + data[3001:]))
    with pytest.raises(Refused, match="it is not a whole one"):
        replay.read(path)


def test_what_cannot_be_written_is_given_up_and_said(tmp_path: Path, recorder: Recorder, index: list[RecordingRow]) -> None:
    (tmp_path / "recordings").write_text("a file in its place")
    tape = recorder.begin(request(b"{}"), 200, {})
    tape.piece(b"data")
    tape.end("served")
    assert index == [] and "recordings" in recorder.trouble


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Half a megabyte, mounted."""
    with support.small_disk(tmp_path / "small", "size=512k") as place:
        yield place


@pytest.mark.root
def test_a_full_disk_ends_the_tape_and_not_the_answer(small_disk: Path, clock: Clock, index: list[RecordingRow]) -> None:
    recorder = Recorder(small_disk / "recordings", index.append, clock)
    tape = recorder.begin(request(b"{}"), 200, {})
    for _ in range(100):
        tape.piece(os.urandom(10_000))
    tape.end("served")
    assert index == [] and "No space left" in recorder.trouble
    assert [path for path in (small_disk / "recordings").rglob("*") if path.is_file()] == []


# Replay -------------------------------------------------------------------------------------------------------------------------------

EVENTS = [
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"claude-opus-4-8"'
    b',"content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":1}}}\n\n',
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n',
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"recorded"}}\n\n',
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n',
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}\n\n',
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
]


async def recorded(path: Path, answers: list[tuple[Request, int, list[bytes], str]], headers: Mapping[str, str]) -> None:
    """An account and its recordings below `path`."""
    book = Account(path / "gateway.db", Wall())
    book.start(unpriced)
    clock = Clock()
    recorder = Recorder(path / "recordings", book.recorded, clock)
    for asked, status, pieces, end in answers:
        tape = recorder.begin(asked, status, headers)
        for piece in pieces:
            clock.now += 0.2
            tape.piece(piece)
        tape.end(end)
    await book.close()


@contextlib.asynccontextmanager
async def replaying(path: Path, run: str = RUN, *, paced: bool = False) -> AsyncIterator[str]:
    """A replay server; its URL."""
    with contextlib.closing(schema.connect_readonly(path / "gateway.db")) as db:
        shelf = replay.Shelf(db, path / "recordings", run)
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    server = asyncio.create_task(replay.serve(shelf, 0, listening.set_result, paced=paced))
    try:
        yield f"http://127.0.0.1:{await listening}"
    finally:
        server.cancel()
        await asyncio.wait([server])


SSE = {"content-type": "text/event-stream; charset=utf-8"}


@pytest.mark.asyncio
async def test_the_same_request_gets_the_recorded_bytes_whatever_its_key(tmp_path: Path) -> None:
    body = b'{"model": "m", "stream": true}'
    await recorded(tmp_path, [(request(body), 200, EVENTS, "served")], SSE)
    async with replaying(tmp_path) as url, aiohttp.ClientSession() as client:
        for prefix in ("", "/a/nct_some_token"):
            async with client.post(f"{url}{prefix}/v1/messages?beta=true", data=body, headers={"x-api-key": "any"}) as answer:
                assert (answer.status, await answer.read()) == (200, b"".join(EVENTS))
                assert (answer.headers["x-nightcrew-replay"], answer.headers["content-type"]) == (RUN, SSE["content-type"])
        async with client.head(f"{url}/") as answer:
            assert answer.status == 200


@pytest.mark.asyncio
async def test_another_request_gets_a_plain_404(tmp_path: Path) -> None:
    body = b'{"model": "m"}'
    await recorded(tmp_path, [(request(body), 200, EVENTS, "served")], SSE)
    async with replaying(tmp_path) as url, aiohttp.ClientSession() as client:
        for path, data in (("/v1/messages?beta=true", body + b" "), ("/v1/messages", body), ("/v1/responses", body), ("/etc/passwd", body)):
            async with client.post(url + path, data=data) as answer:
                assert answer.status == 404
                assert f"run {RUN} recorded no such request: POST {path.partition('?')[0]}" in await answer.text()


@pytest.mark.asyncio
async def test_the_same_request_twice_gets_its_answers_in_order(tmp_path: Path) -> None:
    body = b'{"model": "m"}'
    first, second = (request(body, 1), 529, [b"busy"], "rejected"), (request(body, 2), 200, [b"well"], "served")
    await recorded(tmp_path, [first, second], {})
    async with replaying(tmp_path) as url, aiohttp.ClientSession() as client:
        seen = []
        for _ in range(3):
            async with client.post(f"{url}/v1/messages?beta=true", data=body) as answer:
                seen.append((answer.status, await answer.read()))
    assert seen == [(529, b"busy"), (200, b"well"), (200, b"well")]


@pytest.mark.asyncio
async def test_a_stream_that_was_cut_is_cut_again(tmp_path: Path) -> None:
    body = b'{"model": "m"}'
    await recorded(tmp_path, [(request(body), 200, EVENTS[:2], "cut")], SSE)
    async with (
        replaying(tmp_path) as url,
        aiohttp.ClientSession() as client,
        client.post(f"{url}/v1/messages?beta=true", data=body) as answer,
    ):
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


@pytest.mark.asyncio
async def test_paced_answers_take_their_time(tmp_path: Path) -> None:
    body = b'{"model": "m"}'
    await recorded(tmp_path, [(request(body), 200, EVENTS[:2], "served")], SSE)
    loop = asyncio.get_running_loop()
    async with replaying(tmp_path, paced=True) as url, aiohttp.ClientSession() as client:
        began = loop.time()
        async with client.post(f"{url}/v1/messages?beta=true", data=body) as answer:
            assert await answer.read() == b"".join(EVENTS[:2])
    assert loop.time() - began >= 0.4, "as long as it took then"


@pytest.mark.asyncio
async def test_a_tape_that_is_gone_is_said(tmp_path: Path) -> None:
    body = b'{"model": "m"}'
    await recorded(tmp_path, [(request(body), 200, EVENTS, "served")], SSE)
    for tape in tapes(tmp_path):
        tape.unlink()
    async with (
        replaying(tmp_path) as url,
        aiohttp.ClientSession() as client,
        client.post(f"{url}/v1/messages?beta=true", data=body) as answer,
    ):
        assert answer.status == 404 and "will not play the recording" in await answer.text()


@pytest.mark.asyncio
async def test_the_real_sdk_takes_the_replay_for_the_provider(tmp_path: Path) -> None:
    """Its request is caught first, as the gateway would record it."""
    caught: list[tuple[str, bytes]] = []

    async def catch(request: aiohttp.web.BaseRequest) -> aiohttp.web.Response:
        caught.append((request.raw_path, await request.read()))
        return aiohttp.web.Response(status=400)

    async def ask(url: str) -> str:
        client = anthropic.AsyncAnthropic(api_key="none", base_url=url, max_retries=0)
        async with (
            client,
            client.messages.stream(model="claude-opus-4-8", max_tokens=9, messages=[{"role": "user", "content": "x"}]) as one,
        ):
            return await one.get_final_text()

    runner = aiohttp.web.ServerRunner(aiohttp.web.Server(catch))
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    with pytest.raises(anthropic.BadRequestError):
        await ask(f"http://127.0.0.1:{runner.addresses[0][1]}")
    await runner.cleanup()
    ((path, body),) = caught
    await recorded(tmp_path, [(request(body, endpoint=f"POST {path}"), 200, EVENTS, "served")], SSE)
    async with replaying(tmp_path) as url:
        assert await ask(url) == "recorded"


@pytest.mark.asyncio
async def test_a_run_without_recordings_and_a_port_that_is_taken_are_said(tmp_path: Path) -> None:
    await recorded(tmp_path, [(request(b"{}"), 200, EVENTS, "served")], SSE)
    with contextlib.closing(schema.connect_readonly(tmp_path / "gateway.db")) as db:
        with pytest.raises(NotFound, match="no recording of 9999-none"):
            replay.Shelf(db, tmp_path / "recordings", "9999-none")
        shelf = replay.Shelf(db, tmp_path / "recordings", RUN)
    assert len(shelf) == 1
    async with replaying(tmp_path) as url:
        with pytest.raises(ToolFailed, match="cannot listen"):
            await replay.serve(shelf, int(url.rpartition(":")[2]), print)
