"""The front door on real sockets: what is refused before anybody asks who sends it, and who is refused."""

from __future__ import annotations

import asyncio
import base64
import gzip
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from supervisor.features.metrics import commands
from supervisor.gateway.proxy import front
from supervisor.host import attempt_tokens
from supervisor.host.paths import Home
from tests.gateway import kit
from tests.gateway.proxy import raw
from tests.gateway.simulator import Running, SimSettings, running

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def sim() -> AsyncIterator[Running]:
    async with running(SimSettings()) as made:
        yield made


@pytest_asyncio.fixture
async def gate(tmp_path: Path, sim: Running) -> AsyncIterator[kit.Gate]:
    """One with all three APIs, and one agent, `run/a`."""
    async with kit.gateway(tmp_path, kit.all_apis(Home(tmp_path / "home"), sim.url)) as made:
        yield made


def post(gate: kit.Gate, *, host: str | None = None, path: str = "/v1/messages", body: bytes | None = None, extra: str = "") -> bytes:
    """A good request with a good token, changed at one place."""
    data = kit.messages() if body is None else body
    token = attempt_tokens.derive(gate.crew.secret, "run/a", 1)
    lines = [
        f"POST {path} HTTP/1.1",
        *([f"Host: {host if host is not None else f'127.0.0.1:{gate.port}'}"] if host != "" else []),
        f"Authorization: Bearer {token}",
        *([] if "Content-Type" in extra else ["Content-Type: application/json"]),
        *([] if "Content-Length" in extra else [f"Content-Length: {len(data)}"]),
        "Connection: close",
        *([extra] if extra else []),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def test_a_good_request_passes(gate: kit.Gate) -> None:
    gate.crew.agent()
    for host in (f"127.0.0.1:{gate.port}", f"localhost:{gate.port}"):
        assert status(await raw.exchange(gate.port, post(gate, host=host))) == 200


async def test_a_header_that_is_no_text_is_left_out(gate: kit.Gate, sim: Running) -> None:
    gate.crew.agent()
    request = post(gate, extra="X-Odd: ODD\r\nX-Good: g").replace(b"ODD", b"gr\xfc\xdfe")
    assert status(await raw.exchange(gate.port, request)) == 200
    names = [name for name, _ in sim.provider.stats.last[-1].headers]
    assert "x-good" in names
    assert "x-odd" not in names


@pytest.mark.parametrize(
    "host", ["evil.com", "127.0.0.1.evil.com", "", "localhost:1", "localhost", "127.0.0.1", "[::1]", "127.0.0.1:{port}.evil.com"]
)
async def test_any_other_host_is_refused(gate: kit.Gate, sim: Running, host: str) -> None:  # X03
    gate.crew.agent()
    host = host.replace("{port}", str(gate.port))
    assert status(await raw.exchange(gate.port, post(gate, host=host))) in (400, 421)
    assert sim.provider.stats.number() == 1, "the provider was not asked"


@pytest.mark.parametrize(
    "extra",
    [
        "Origin: https://evil.com",
        "Origin: null",
        "Origin: http://127.0.0.1",
        "Content-Type: text/plain",
        "Content-Type: application/x-www-form-urlencoded",
    ],
)
async def test_what_a_web_page_could_send_is_refused(gate: kit.Gate, sim: Running, extra: str) -> None:  # X03
    gate.crew.agent()
    assert status(await raw.exchange(gate.port, post(gate, extra=extra))) in (403, 415)
    assert sim.provider.stats.number() == 1


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT"])
async def test_other_methods_are_refused(gate: kit.Gate, method: str) -> None:  # X03, X17
    request = f"{method} /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:{gate.port}\r\nConnection: close\r\n\r\n"
    if method == "CONNECT":
        request = request.replace("/v1/messages", "evil.com:443")
    assert status(await raw.exchange(gate.port, request.encode(), until_closed=False)) in (400, 405)


@pytest.mark.parametrize(
    "path",
    [
        "http://evil.com/v1/messages",
        "//evil.com/v1/messages", "/v1/messages/../../admin", "/v1/..%2fadmin", "/v1/%6dessages", "/v1/files",
        "/v1/messages/batches", "/sim/stats", "/v1/messages#x", "/v1/organizations/usage_report", "/a/x/../v1/messages",
    ],
)  # fmt: skip
async def test_only_the_known_addresses_lead_to_the_upstream(gate: kit.Gate, sim: Running, path: str) -> None:  # X17
    gate.crew.agent()
    assert status(await raw.exchange(gate.port, post(gate, path=path))) in (400, 404)
    assert sim.provider.stats.number() == 1


@pytest.mark.parametrize(("extra", "code"), [("Content-Length: 0", 200), ("Content-Length: 1", 400), ("Transfer-Encoding: chunked", 400)])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_get_may_say_that_its_body_is_empty(gate: kit.Gate, sim: Running, method: str, extra: str, code: int) -> None:
    gate.crew.agent()
    path = {"GET": "/v1/models", "HEAD": "/"}[method]
    request = (
        post(gate, path=path, body=b"", extra=extra)
        .replace(b"POST", method.encode(), 1)
        .replace(b"Content-Type: application/json\r\n", b"")
    )
    answer = await raw.exchange(gate.port, request)
    assert status(answer) == code, answer
    sent = [name for one in sim.provider.stats.last for name, _ in one.headers if one.path.startswith(("/v1/models", "/?"))]
    assert "content-length" not in sent


async def test_a_get_changes_nothing(gate: kit.Gate) -> None:  # X03
    for page in ("/nightcrew/stop", "/nightcrew/reload"):
        assert (await gate.get(page, gate.crew.admin)).status == 405
    assert not gate.gateway.stop_asked.is_set()


@pytest.mark.parametrize(
    "extra",
    [
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "X-A: b\r\n continued",
        "X A: b",
        "X-A: b\rX-B: c",
    ],
    ids=["length and chunked", "two lengths", "folded", "blank in a name", "bare CR"],
)
async def test_what_could_be_smuggled_is_refused(gate: kit.Gate, sim: Running, extra: str) -> None:  # N16
    gate.crew.agent()
    request = post(
        gate, extra=extra if "Content-Length" in extra else f"{extra}\r\nContent-Length: 0", body=b"0\r\n\r\nGET /x HTTP/1.1\r\n\r\n"
    )
    answer = await raw.exchange(gate.port, request)
    assert status(answer) == 400
    assert answer.count(b"HTTP/1.") == 1, "the rest is no second request"
    assert sim.provider.stats.number() == 1


async def test_ten_thousand_headers_are_refused(gate: kit.Gate) -> None:  # N16
    many = "\r\n".join(f"X-{number}: {number}" for number in range(10_000))
    assert status(await raw.exchange(gate.port, post(gate, extra=many))) in (400, 431)
    assert status(await raw.exchange(gate.port, post(gate, extra="X-Long: " + "x" * 100_000))) in (400, 431)


async def test_a_body_of_a_hundred_megabytes_is_refused(gate: kit.Gate, sim: Running) -> None:  # N16
    gate.crew.agent()
    size = 100 * 2**20
    head = post(gate, extra=f"Content-Length: {size}", body=b"")
    answer = await raw.exchange(gate.port, head, until_closed=False)
    assert status(answer) == 413, "it is told before it sends"
    piece, count = b"%x\r\n%s\r\n" % (2**20, b"x" * 2**20), 70
    chunked = post(gate, extra="Transfer-Encoding: chunked", body=b"").replace(b"Content-Length: 0\r\n", b"")
    answer = await raw.exchange(gate.port, chunked + piece * count + b"0\r\n\r\n")
    assert status(answer) == 413, "and when it does not say how much will come"
    assert b"32 MiB" in answer
    assert sim.provider.stats.number() == 1


async def test_all_bodies_together_have_a_bound_and_each_agent_a_part_of_it(gate: kit.Gate, monkeypatch: pytest.MonkeyPatch) -> None:  # N16
    monkeypatch.setattr(front, "ALL_MAX", 4 * 100_000)
    gate.crew.agent("run/a")
    other = gate.crew.agent("run/b")
    large = kit.messages("x" * 50_000)

    async def answers(wanted: int) -> bytes:
        """The answer to a request of `run/a`, once its status is this one."""
        async with asyncio.timeout(20):
            while status(answer := await raw.exchange(gate.port, post(gate, body=large))) != wanted:
                await asyncio.sleep(0.01)
        return answer

    _, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    writer.write(post(gate, extra="Content-Length: 90000", body=b"{"))
    assert b"retry-after: 2\r\n" in (await answers(429)).lower()
    unsent = await raw.exchange(gate.port, post(gate, extra="Content-Length: 50000", body=b""), until_closed=False)
    assert status(unsent) == 429, "it is told before it sends"
    chunked = post(gate, extra="Transfer-Encoding: chunked", body=b"").replace(b"Content-Length: 0\r\n", b"")
    assert status(await raw.exchange(gate.port, chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (len(large), large))) == 429
    assert (await gate.post("/v1/messages", large, other)).status == 200, "nobody else is held up"
    writer.close()
    await answers(200)


async def test_a_body_that_is_packed_is_refused_and_not_unpacked(gate: kit.Gate, sim: Running) -> None:  # N06
    gate.crew.agent()
    answer = await raw.exchange(gate.port, post(gate, extra="Content-Encoding: gzip", body=gzip.compress(kit.messages())))
    assert status(answer) in (400, 415)
    assert sim.provider.stats.number() == 1


async def test_slow_headers_and_bodies_are_cut_off(gate: kit.Gate, monkeypatch: pytest.MonkeyPatch) -> None:  # N07
    monkeypatch.setattr(front, "BODY_S", 0.3)
    gate.crew.agent()
    body = await raw.exchange(gate.port, post(gate, extra="Content-Length: 1000", body=b'{"model"'))
    assert status(body) == 408
    with socket.create_connection(("127.0.0.1", gate.port)) as half:  # a head that never ends holds nobody up
        half.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: 127")
        assert (await gate.post("/v1/messages", kit.messages(), attempt_tokens.derive(gate.crew.secret, "run/a", 1))).status == 200


async def test_a_head_that_never_ends_is_closed(tmp_path: Path, sim: Running, monkeypatch: pytest.MonkeyPatch) -> None:  # N07
    monkeypatch.setattr("supervisor.gateway.proxy.gateway._IDLE_S", 0.3)
    async with kit.gateway(tmp_path, kit.upstream(Home(tmp_path / "home"), sim.url)) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
        writer.write(b"POST /v1/messages HTTP/1.1\r\n")
        async with asyncio.timeout(20):
            while not reader.at_eof():
                try:
                    writer.write(b"X")
                    async with asyncio.timeout(0.05):
                        await reader.read(100)
                except TimeoutError:
                    continue
                except ConnectionError:
                    break
        writer.close()


async def test_a_client_that_asks_before_it_sends_is_told_to(gate: kit.Gate) -> None:
    gate.crew.agent()
    answer = await raw.exchange(gate.port, post(gate, extra="Expect: 100-continue"))
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")
    stranger = post(gate, extra="Expect: 100-continue").replace(b"Bearer nct_", b"Bearer nct_x")
    assert (await raw.exchange(gate.port, stranger)).startswith(b"HTTP/1.1 401 "), "a stranger need not send at all"


async def test_a_websocket_is_answered_at_once(gate: kit.Gate) -> None:
    lines = [
        "GET /v1/responses HTTP/1.1",
        f"Host: 127.0.0.1:{gate.port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
    ]
    request = "\r\n".join([*lines, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", ""]).encode()
    assert status(await raw.exchange(gate.port, request)) == 426
    evil = request.replace(f"Host: 127.0.0.1:{gate.port}".encode(), b"Host: evil.com")
    assert status(await raw.exchange(gate.port, evil)) == 421


async def test_the_probe_needs_no_token(gate: kit.Gate, sim: Running) -> None:
    for path in ("/", "/api/hello"):
        assert (await gate.get(path, method="HEAD")).status == 200
    assert sim.provider.stats.number() == 1


async def test_the_unix_socket_is_the_same_door(gate: kit.Gate) -> None:
    token = gate.crew.agent()
    assert gate.home.gateway_socket.stat().st_mode & 0o777 == 0o600
    connector = aiohttp.UnixConnector(str(gate.home.gateway_socket))
    async with aiohttp.ClientSession(connector=connector) as session:
        headers = {"x-api-key": token, "Content-Type": "application/json"}
        for host, wanted in (("localhost", 200), (f"127.0.0.1:{gate.port}", 200), ("evil.com", 421)):
            async with session.post("http://x/v1/messages", data=kit.messages(), headers={**headers, "Host": host}) as response:
                assert response.status == wanted


# Who --------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["bearer", "x-api-key", "x-goog-api-key", "basic", "path", "query", "beside another"])
async def test_the_token_is_found_wherever_a_client_puts_it(gate: kit.Gate, sim: Running, where: str) -> None:
    token = gate.crew.agent()
    basic = base64.b64encode(f"user:{token}".encode()).decode()
    headers = {
        "bearer": {"Authorization": f"Bearer {token}"},
        "basic": {"Authorization": f"Basic {basic}"},
        "beside another": {"Authorization": "Bearer sk-ant-old-login", "x-api-key": token},
    }.get(where, {where: token})
    path, body = "/v1/messages", kit.messages()
    if where in ("path", "query"):
        headers = {}
        path = f"/a/{token}/v1/messages"
    if where == "query":
        path, body = (
            f"/v1beta/models/gemini-2.5-flash:generateContent?key={token}",
            b'{"contents": [{"role": "user", "parts": [{"text": "x"}]}]}',
        )
    async with gate.session.post(gate.url + path, data=body, headers={"Content-Type": "application/json", **headers}) as response:
        assert response.status == 200, await response.read()
    entry = sim.provider.stats.last[-1]
    assert token not in repr(entry)
    (row,) = await kit.settled(gate.home, 1)
    assert row["agent"] == "run/a"


async def test_whoever_has_no_living_attempt_is_refused_and_noted(gate: kit.Gate, sim: Running) -> None:  # X02
    dead, living = gate.crew.agent("run/dead"), gate.crew.agent("run/a")
    gate.crew.end("run/dead")
    old = gate.crew.agent("run/again", epoch=1)
    gate.crew.agent("run/again", epoch=2)
    forged = living[:-1] + ("0" if living[-1] != "0" else "1")
    foreign, never = attempt_tokens.derive(b"another secret", "run/a", 1), attempt_tokens.derive(gate.crew.secret, "run/never", 1)
    for spoken in (dead, old, forged, foreign, "sk-ant-whatever", "", never):
        answer = await gate.post("/v1/messages", kit.messages(), spoken)
        assert answer.status == (403 if spoken in (dead, old, never) else 401), spoken
        assert answer.json["type"] == "error"
        assert not spoken or spoken not in answer.body.decode()
    both = await gate.post("/v1/messages", kit.messages(), living, x_api_key=gate.crew.agent("run/b"))
    assert both.status == 401, "nobody has two tokens by right"
    assert sim.provider.stats.number() == 1
    for said in ("run/dead:1", "run/again:1", "its attempt token is wrong", "there is no attempt token in it", "two attempts"):
        assert said in gate.log()
    for spoken in (dead, old, forged, living):
        assert spoken not in gate.log()


async def test_a_token_dies_with_its_attempt(gate: kit.Gate) -> None:  # X02
    token = gate.crew.agent()
    assert (await gate.post("/v1/messages", kit.messages(), token)).status == 200
    gate.crew.end("run/a")
    for _ in range(1000):
        if (await gate.post("/v1/messages/count_tokens", kit.messages(stream=False), token)).status == 403:
            break
        await asyncio.sleep(0.02)
    else:
        pytest.fail("it lived on")


async def test_no_agent_sees_the_gateways_own_pages(gate: kit.Gate) -> None:  # X02
    token = gate.crew.agent()
    for page in ("/nightcrew/ping", "/nightcrew/status", "/nightcrew/now", "/metrics"):
        assert (await gate.get(page, {"Authorization": f"Bearer {token}"})).status == 403
        assert (await gate.get(page)).status == 401
        assert (await gate.get(page, {"Authorization": "Bearer nca_" + "0" * 40})).status == 401
        assert (await gate.get(page, gate.crew.admin)).status == 200
    assert (await gate.post("/v1/messages", kit.messages(), attempt_tokens.admin(gate.crew.secret))).status == 401, (
        "and the admin is no agent"
    )


async def test_a_scrapers_token_opens_the_metrics_and_nothing_else(gate: kit.Gate) -> None:  # X02
    file = gate.home.metrics_token
    commands.ensure(file)
    scraper = {"Authorization": f"Bearer {file.read_text().strip()}"}
    answer = await gate.get("/metrics", scraper)
    assert answer.status == 200 and b"nightcrew_build_info" in answer.body
    for page in ("/nightcrew/ping", "/nightcrew/status", "/nightcrew/now"):
        assert (await gate.get(page, scraper)).status == 401
    for page in ("/nightcrew/stop", "/nightcrew/crew", "/nightcrew/reload", "/metrics"):
        assert (await gate.post(page, b"{}", file.read_text().strip())).status in (401, 405)
    assert (await gate.post("/v1/messages", kit.messages(), file.read_text().strip())).status == 401
    assert (await gate.get("/metrics", {**scraper, "Host": "metrics.example"})).status == 421
    assert (await gate.get("/metrics", {**scraper, "Origin": "http://metrics.example"})).status == 403
    file.chmod(0o644)
    assert (await gate.get("/metrics", scraper)).status == 401, "others can read it"
    commands.ensure(file, new=True)
    assert (await gate.get("/metrics", scraper)).status == 401, "there is another one"
    file.unlink()
    assert (await gate.get("/metrics", scraper)).status == 401
    assert (await gate.get("/metrics", {"Authorization": "Bearer "})).status == 401


async def test_models_nobody_serves(gate: kit.Gate, sim: Running) -> None:
    gate.config.write_text(gate.config.read_text().replace('api = "openai"', 'api = "openai"\nmodels = ["gpt-*"]'))
    await gate.gateway.reload()
    answer = await gate.post("/v1/chat/completions", b'{"model": "llama", "messages": []}', gate.crew.agent())
    assert answer.status == 404
    assert "no upstream in the settings serves llama over the openai API" in answer.json["error"]["message"]
    (gate.home.keys / "anthropic.key").unlink()
    await gate.gateway.reload()
    answer = await gate.post("/v1/messages", kit.messages(), gate.crew.agent("run/b"))
    assert answer.status == 503
    assert "there is no key for it" in answer.json["error"]["message"]
    assert "anthropic cannot be used" in gate.log()
