"""The stream of events, and the requests that reach no page: by a real server in this process, and clients that are no browser."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from supervisor.features.api.rules import Scope
from supervisor.kernel.errors import NotFound
from supervisor.views.web import events
from supervisor.views.web.events import Feature, Route, State
from supervisor.views.web.server import HUB, Server, application
from supervisor.views.web.sessions import Access, Names, Sessions, Who

pytestmark = pytest.mark.asyncio


class Told:
    """A topic that the test changes; it is looked at when it says so."""

    pause_s = 0.0

    def __init__(self) -> None:
        self.state: dict[str, Any] = {"a": 1}
        self.looks = 0
        self._anew = threading.Semaphore(1)
        self.closed = threading.Event()

    def look(self) -> State | None:
        if not self._anew.acquire(timeout=0.2):
            return None
        self.looks += 1
        return dict(self.state)

    def close(self) -> None:
        self.closed.set()

    def change(self, **state: Any) -> None:
        self.state.update(state)
        self._anew.release()


class Phone:
    """Tokens of which one is a reader's, until it is revoked."""

    revoked = False

    async def verify(self, token: str) -> Who | None:
        return await self.holder("phone") if token == "the-phone" else None

    async def holder(self, token_id: str) -> Who | None:
        return None if self.revoked else Who(token_id, "me", frozenset({Scope.READ}))


class Place:
    """The server, a topic, and clients."""

    def __init__(self, port: int, topic: Told, phone: Phone, app: web.Application, http: aiohttp.ClientSession, done: list[str]) -> None:
        self.base, self.topic, self.phone, self.app, self.http, self.done = f"http://127.0.0.1:{port}", topic, phone, app, http, done
        self.sessions = Sessions(b"s" * 32, phone, user="me")
        self.cookie = f"nightcrew-{port}"

    async def entered(self, token: str = "") -> dict[str, str]:
        session = await self.sessions.open(token or self.sessions.token)
        assert session is not None
        return {"Cookie": f"{self.cookie}={session.cookie}", "X-Nightcrew-Key": session.key}

    async def status(self, method: str, path: str, headers: dict[str, str], data: bytes | AsyncIterator[bytes] | None = None) -> int:
        async with self.http.request(method, self.base + path, headers=headers, data=data) as answer:
            await answer.read()
            return answer.status

    @contextlib.asynccontextmanager
    async def stream(self) -> AsyncIterator[Stream]:
        async with self.http.get(
            f"{self.base}/events?topic=told", headers=await self.entered(), timeout=aiohttp.ClientTimeout(total=30)
        ) as answer:
            assert answer.status == 200
            yield Stream(answer)


class Stream:
    """Reads one event after the other."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def next(self) -> tuple[str, dict[str, Any]]:
        kind, said = "", {}
        async for line in self._answer.content:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                said = json.loads(value)
            elif not name and kind:
                return kind, said
        raise ConnectionResetError("the stream ended")

    async def until(self, kind: str) -> dict[str, Any]:
        while True:
            found, said = await self.next()
            if found == kind:
                return said


@pytest_asyncio.fixture
async def place() -> AsyncIterator[Place]:
    topic, phone, done = Told(), Phone(), list[str]()

    def topics(rest: str) -> Told:
        if rest:
            raise NotFound("no such thing", on=rest)
        return topic

    async def act(request: web.Request, who: Who | None) -> web.Response:
        done.append((await request.read()).decode())
        return web.json_response({"said": "done"})

    listener = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    port = int(listener.sockets[0].getsockname()[1])
    listener.close()
    await listener.wait_closed()
    server = Server(Names(port), Sessions(b"s" * 32, phone, user="me"))
    app = application(server, [Feature(routes=(Route("POST", "/act/do", Access.ACT, act),), topics={"told": topics})])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http:
        yield Place(port, topic, phone, app, http, done)
    await runner.cleanup()


async def test_a_snapshot_then_what_changed_for_all_by_one_look(place: Place) -> None:
    async with place.stream() as one, place.stream() as two:
        for stream in (one, two):
            assert (await stream.until("state"))["set"] == {"a": 1}
        looks = place.topic.looks
        place.topic.change(b=2)
        for stream in (one, two):
            assert await stream.until("delta") == {"topic": "told", "set": {"b": 2}, "drop": []}
        del place.topic.state["a"]
        place.topic.change()
        for stream in (one, two):
            assert await stream.until("delta") == {"topic": "told", "set": {}, "drop": ["a"]}
        assert place.topic.looks == looks + 2 and place.app[HUB].clients == 2


async def test_who_comes_back_gets_all(place: Place) -> None:
    async with place.stream() as stays:
        await stays.until("state")
        async with place.stream() as left:
            await left.until("state")
        place.topic.change(b=2)
        await stays.until("delta")
        async with place.stream() as back:
            assert (await back.until("state"))["set"] == {"a": 1, "b": 2}


async def test_one_that_does_not_read_is_cut_off_and_holds_nobody_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with place.stream() as reads:
        await reads.until("state")
        async with place.stream():
            while place.app[HUB].clients < 2:
                await asyncio.sleep(0.01)
            big, number = "x" * 300_000, 0
            while place.app[HUB].clients == 2 and number < 500:
                number += 1
                place.topic.change(big=f"{number} {big}")
                assert (await reads.until("delta"))["set"]["big"].startswith(f"{number} ")
            assert place.app[HUB].clients == 1 and number < 500, "its queue was full"
        place.topic.change(big="", after=1)
        assert (await reads.until("delta"))["set"]["after"] == 1


async def test_nobody_looks_when_nobody_is_there(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LINGER_S", 0.0)
    async with place.stream() as one:
        await one.until("state")
        assert not place.topic.closed.is_set()
    assert await asyncio.to_thread(place.topic.closed.wait, 20)


async def test_a_look_that_fails_is_said_and_the_next_one_is_made(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with place.stream() as one:
        await one.until("state")
        right = place.topic.look

        def fails() -> State | None:
            place.topic.look = right  # type: ignore[method-assign]
            raise ValueError("no\nluck")

        place.topic.look = fails  # type: ignore[method-assign]
        assert "ValueError: no" in (await one.until("delta"))["set"]["failed"]
        place.topic.change(b=5)
        assert (await one.until("delta"))["set"] == {"b": 5}


async def test_a_revoked_token_ends_its_sessions_and_its_streams(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "BEAT_S", 0.05)
    headers = await place.entered("the-phone")
    ours = {"Origin": place.base, "Content-Type": "application/json", **headers}
    assert await place.status("POST", "/act/do", ours, b"{}") == 403, "its token may only read"
    async with place.http.get(f"{place.base}/events?topic=told", headers=headers) as answer:
        stream = Stream(answer)
        await stream.until("state")
        await stream.until("beat")
        place.phone.revoked = True
        with pytest.raises(ConnectionResetError):
            await stream.until("state")
    assert await place.status("GET", "/events?topic=told", headers) == 401


async def test_requests_of_others_get_nothing(place: Place) -> None:
    headers = await place.entered()
    good = {"Origin": place.base, "Content-Type": "application/json", **headers}
    assert await place.status("POST", "/act/do", good, b'{"x": 1}') == 200 and place.done == ['{"x": 1}']
    other = await place.entered()
    refused = [
        (401, {**good, "Cookie": ""}),
        (401, {**good, "X-Nightcrew-Key": ""}),
        (401, {**good, "X-Nightcrew-Key": other["X-Nightcrew-Key"]}),
        (403, {name: value for name, value in good.items() if name != "Origin"}),
        (403, {**good, "Origin": "null"}),
        (403, {**good, "Origin": "http://evil.example"}),
        (403, {**good, "Origin": place.base.replace("http", "https")}),
        (403, {**good, "Sec-Fetch-Site": "same-site"}),
        (421, {**good, "Host": "evil.example"}),
        (421, {**good, "Host": place.base.removeprefix("http://").replace("127.0.0.1", "127.0.0.1.evil.example")}),
        (415, {**good, "Content-Type": "text/plain"}),
        (413, {**good, "Content-Length": "100000000"}),
    ]
    for status, wrong in refused:
        assert await place.status("POST", "/act/do", wrong, b"" if "Content-Length" in wrong else b"{}") == status, wrong

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 2**16

    assert await place.status("POST", "/act/do", good, pieces()) == 413, "also one that does not say how much it is"
    assert await place.status("GET", "/act/do", headers) in (404, 405) and await place.status("OPTIONS", "/act/do", headers) == 405
    assert (
        await place.status("GET", "/events?topic=other", headers) == 404
        and await place.status("GET", "/events?topic=told:x", headers) == 404
    )
    assert await place.status("GET", "/events?topic=told", {"Cookie": headers["Cookie"]}) == 401, "a cookie that another port of ours saw"
    assert len(place.done) == 1


async def test_every_answer_has_the_policy_and_no_cors(place: Place) -> None:
    for path, headers in (
        ("/nothing", {}),
        ("/static/web.css", {}),
        ("/static/..%2fapp.py", {}),
        ("/enter?token=x", {}),
        ("/", {"Host": "x"}),
    ):
        async with place.http.get(place.base + path, headers=headers) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy and "require-trusted-types-for 'script'" in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff" and "Access-Control-Allow-Origin" not in answer.headers
            assert answer.status == {"/static/web.css": 200, "/enter?token=x": 401, "/": 421}.get(path, 404)


async def test_there_is_an_end_to_what_is_looked_at(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "FEEDS_MAX", 0)
    assert await place.status("GET", "/events?topic=told", await place.entered()) == 503
    assert await place.status("GET", "/events?topic=told", {}) == 401


async def test_looking_costs_at_most_its_share_and_is_at_once_after_a_rest() -> None:
    pace, now, used = events.Pace(0.0), 0.0, 0.0
    assert pace.rest(0.05, now) == 0.0, "what was spared"
    while now < 100.0:
        used += 0.05
        now += pace.rest(0.05, now) + 0.01
    assert used <= events.SPARE_S + 100.0 / events.SHARE + 0.1 and used > 100.0 / events.SHARE - 0.1
    assert pace.rest(0.05, now + 10.0) == 0.0
