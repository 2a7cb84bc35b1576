"""Clients that go away, upstreams that say nothing or cannot be reached, readers that are slow: nothing hangs and nothing leaks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.gateway.proxy.upstreams import Timeouts
from supervisor.host.paths import Home
from tests.gateway import kit
from tests.gateway.proxy import raw
from tests.gateway.simulator import Fault, SimSettings, running

pytestmark = pytest.mark.asyncio


def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


async def test_a_client_that_leaves_its_stream_ends_the_upstreams(tmp_path: Path) -> None:  # N10
    gone = asyncio.Event()

    async def script(_request: raw.Received, to: raw.Connection) -> None:
        await to.send(raw.STREAM, raw.chunk(raw.START), raw.chunk(raw.TEXT))
        await to.gone()
        gone.set()

    async with raw.upstream(script) as up, kit.gateway(tmp_path, kit.upstream(home(tmp_path), up.url)) as gate:
        async with gate.ask("/v1/messages", kit.messages(), gate.crew.agent()) as response:
            seen = await response.content.readany()
            while len(seen) < len(raw.START + raw.TEXT):
                seen += await response.content.readany()
            response.close()
        async with asyncio.timeout(1.0):  # the row's own limit
            await gone.wait()
        (row,) = await kit.settled(gate.home, 1)
        assert (row["end"], row["input"], row["estimated"]) == ("client gone", 25, 1)
        assert row["output"] > 1, "what it has read is estimated"
        assert [pool["in_flight"] for pool in (await gate.status())["pools"]] in ([], [0])


async def test_a_client_that_leaves_before_the_first_byte(tmp_path: Path) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def script(_request: raw.Received, to: raw.Connection) -> None:
        asked.set()
        await to.gone()
        gone.set()

    async with raw.upstream(script) as up, kit.gateway(tmp_path, kit.upstream(home(tmp_path), up.url)) as gate:
        task = asyncio.create_task(gate.post("/v1/messages", kit.messages(), gate.crew.agent()))
        await asked.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        async with asyncio.timeout(1.0):
            await gone.wait()
        (row,) = await kit.settled(gate.home, 1)
        assert (row["end"], row["status"], row["estimated"]) == ("client gone", None, 1)
        assert row["input"] == row["expected_input"] < row["bound_input"], "nobody said what it took, so it is what was expected"


@pytest.mark.parametrize("kind", ["first byte", "idle"])  # N08
async def test_silence_before_the_first_byte_and_after_it_have_limits_of_their_own(tmp_path: Path, kind: str) -> None:
    patient, hasty = 1000.0, 0.3
    timeouts = Timeouts(2.0, hasty, patient) if kind == "first byte" else Timeouts(2.0, patient, hasty)
    answers: list[bytes] = []

    async def script(_request: raw.Received, to: raw.Connection) -> None:
        answers.append(b"")
        if len(answers) == 1 and kind == "first byte":
            await to.gone()
        elif kind == "idle":
            await to.send(raw.STREAM, raw.chunk(raw.START))
            await to.gone()
        else:
            await to.send(raw.STREAM, raw.chunk(raw.START + raw.END), raw.LAST)

    async with raw.upstream(script) as up, kit.gateway(tmp_path, kit.upstream(home(tmp_path), up.url), timeouts=timeouts) as gate:
        answer = await gate.post("/v1/messages", kit.messages(), gate.crew.agent())
        if kind == "first byte":
            assert (answer.body, answer.cut) == (raw.START + raw.END, False), "it was asked again"
            assert "no answer within 300ms" in gate.log()
        else:
            assert (answer.body, answer.cut) == (raw.START, True)
            assert "it sent nothing for 300ms" in gate.log()


async def test_long_thinking_with_pings_lives(tmp_path: Path) -> None:  # N08
    async with running(SimSettings()) as sim:
        timeouts = Timeouts(2.0, 20.0, 0.6)
        async with kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url), timeouts=timeouts) as gate:
            sim.faults(Fault(then="pings", after=2, for_s=1.5, times=1))  # a ping each 0.2 s
            answer = await gate.post("/v1/messages", kit.messages(), gate.crew.agent())
            assert not answer.cut
            assert answer.body.count(b"event: ping") > 3


async def test_a_slow_reader_holds_its_upstream_back_and_nobody_else(tmp_path: Path) -> None:  # N07
    sent, enough = 0, 64 * 2**20
    text = raw.chunk(b"data: " + b"x" * 65_530)

    async def script(request: raw.Received, to: raw.Connection) -> None:
        nonlocal sent
        if b"quick" in request.body:
            await to.send(raw.STREAM, raw.chunk(raw.START + raw.END), raw.LAST)
            return
        await to.send(raw.STREAM)
        while sent < enough:
            await to.send(text)
            sent += len(text)
        await to.send(raw.LAST)

    async with raw.upstream(script) as up, kit.gateway(tmp_path, kit.upstream(home(tmp_path), up.url)) as gate:
        body = kit.messages("slow")
        token = gate.crew.agent("run/slow")
        head = f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:{gate.port}\r\nx-api-key: {token}\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", gate.port)) as reader:
            reader.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            before = -1
            while sent != before or not sent:  # until back-pressure has reached the upstream
                before = sent
                await asyncio.sleep(0.3)
            assert 0 < sent < enough / 4, "only sockets' own buffers are full"
            other = await gate.post("/v1/messages", kit.messages("quick"), gate.crew.agent("run/quick"))
            assert other.body == raw.START + raw.END
        ends = {row["agent"]: row["end"] for row in await kit.settled(gate.home, 2)}
        assert ends == {"run/slow": "client gone", "run/quick": "served"}


# Upstreams that cannot be reached ---------------------------------------------------------------------------------------------------


def refusing() -> str:
    """A port on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """One that nobody trusts."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert), "-days", "1"]
    subprocess.run([*argv, "-subj", "/CN=localhost"], check=True, capture_output=True)
    return cert, key


@contextlib.contextmanager
def proxies(url: str) -> Iterator[None]:
    """Variables that would turn traffic elsewhere."""
    names = [name for base in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") for name in (base, base.lower())]
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, url))
    try:
        yield
    finally:
        for name, text in before.items():
            os.environ.pop(name) if text is None else os.environ.update({name: text})


QUICKLY = '[gateway]\nhold = "1s"\n'


async def words(tmp_path: Path, url: str, *, timeouts: Timeouts = kit.QUICK) -> str:
    """What the log says of an upstream that does not answer."""
    async with kit.gateway(tmp_path, QUICKLY + kit.upstream(home(tmp_path), url), timeouts=timeouts) as gate:
        asking = asyncio.create_task(gate.post("/v1/messages", kit.messages(), gate.crew.agent()))
        await kit.until(lambda: "unreachable" in gate.log(), "the log to tell")
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        return next(line for line in gate.log().splitlines() if "unreachable" in line)


async def test_what_cannot_be_reached_is_said_in_distinct_words(tmp_path: Path, certificate: tuple[Path, Path]) -> None:  # N14
    assert "connection refused" in await words(tmp_path / "1", refusing())
    assert "does not resolve" in await words(tmp_path / "2", "https://nowhere.invalid")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    async with raw.listening(b"", server) as port:
        said = await words(tmp_path / "3", f"https://127.0.0.1:{port}")
        assert "TLS" in said
        assert "certificate" in said
    async with raw.listening(b"") as port:
        assert "closed the connection without an answer" in await words(tmp_path / "4", f"http://127.0.0.1:{port}")
    async with raw.listening(raw.whole(400, b"")) as port:
        assert "TLS: wrong version number" in await words(tmp_path / "5", f"https://127.0.0.1:{port}")


async def test_nothing_in_the_environment_turns_the_traffic_elsewhere(tmp_path: Path) -> None:  # N14, X17
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        with proxies(refusing()):
            answer = await gate.post("/v1/messages", kit.messages(), gate.crew.agent())
        assert answer.status == 200


async def test_a_refused_key_stops_everybody_once_and_is_not_shown(tmp_path: Path) -> None:  # N13
    async with running(SimSettings(keys=("another-key",))) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        first = await gate.post("/v1/messages", kit.messages(), gate.crew.agent("run/a"))
        second = await gate.post("/v1/messages", kit.messages(), gate.crew.agent("run/b"))
        assert (first.status, second.status) == (503, 503), "no client is told to log in"
        assert sim.provider.stats.number() == 3, "it was asked once, and once more to be sure"
        assert first.headers["x-should-retry"] == "false"
        assert gate.log().count("ALERT") == 1
        for text in (gate.log(), first.body.decode(), second.body.decode()):
            assert kit.KEY not in text


async def test_a_key_that_is_refused_once_stops_nobody_and_no_client_sees_it(tmp_path: Path) -> None:
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        sim.faults(Fault(status=401, times=1))
        answer = await gate.post("/v1/messages", kit.messages(), gate.crew.agent("run/a"))
        assert answer.status == 200
        assert [row["end"] for row in await kit.settled(gate.home, 2)] == ["refused", "served"]
        assert "ALERT" not in gate.log()


async def test_without_its_account_it_sends_nothing(tmp_path: Path) -> None:
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        token = gate.crew.agent()
        away = gate.home.root / "away.db"
        gate.home.gateway_account.rename(away)
        answer = await gate.post("/v1/messages", kit.messages(), token)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
        assert answer.json["error"]["type"] == "api_error"
        assert sim.provider.stats.number() == 1, "the provider was not asked"
        assert gate.gateway.context.admission.traffic.tickets == {}
        assert (await gate.status())["problems"], "and the user is told why"
        away.rename(gate.home.gateway_account)
        assert (await gate.post("/v1/messages", kit.messages(), token)).status == 200


async def test_what_takes_no_tokens_fails_soon(tmp_path: Path) -> None:
    count, body = "/v1/messages/count_tokens", kit.messages(stream=False)
    async with running(SimSettings(keys=("another-key",))) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        refused = await gate.post(count, body, gate.crew.agent())
        assert refused.status == 503, "no client is told to log in"
        assert "key refused" in refused.json["error"]["message"]
    async with kit.gateway(tmp_path, kit.upstream(home(tmp_path), refusing())) as gate:
        away = await gate.post(count, body, gate.crew.agent(epoch=2))
        assert (away.status, away.headers["Retry-After"]) == (503, "5")
        assert "connection refused" in away.json["error"]["message"]


@pytest.mark.parametrize("amid", [False, True], ids=["before the first byte", "amid the stream"])
async def test_a_fault_of_ours_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, amid: bool) -> None:
    def broken(*_: object) -> bytes:
        raise RuntimeError(f"a fault with {kit.KEY} in it")

    async def script(_request: raw.Received, to: raw.Connection) -> None:
        await to.send(raw.STREAM, raw.chunk(raw.START))
        await seen.wait()
        await to.send(raw.chunk(raw.END), raw.LAST)

    seen = asyncio.Event()
    async with raw.upstream(script) as up, kit.gateway(tmp_path, kit.upstream(home(tmp_path), up.url)) as gate:
        if not amid:
            monkeypatch.setattr("supervisor.gateway.wire.metering.Answer.feed", broken)
            seen.set()
        async with gate.ask("/v1/messages", kit.messages(), gate.crew.agent()) as response:
            if amid:
                assert await response.content.readany() == raw.START
                monkeypatch.setattr("supervisor.gateway.wire.metering.Answer.feed", broken)
                seen.set()
            answer = await kit.collected(response)
        assert (response.status, answer.cut) == ((200, True) if amid else (500, False))
        assert b"canary" not in answer.body
        (row,) = await kit.settled(gate.home, 1)
        assert (row["end"], row["estimated"]) == ("cut", 1)
        assert "our_fault" in row["flags"]
        assert gate.gateway.context.admission.traffic.tickets == {}
        assert "a request failed: RuntimeError: a fault with [hidden] in it at test_going.py" in gate.log()
