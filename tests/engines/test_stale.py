"""A connection that a server closed although it keeps connections alive."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.host.paths import Home
from tests.engines.gateway_kit import CHAT, ask, engine_gate
from tests.gateway import kit
from tests.gateway.proxy import raw

pytestmark = pytest.mark.asyncio
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


async def test_a_request_that_crosses_the_close_of_a_kept_connection_is_sent_once_more(tmp_path: Path) -> None:
    async with engine_gate(tmp_path) as (engine, gate):
        engine.closes_late = True
        token = gate.crew.agent()
        answers = [await gate.post(CHAT, ask("s", "hi", stream=stream), token) for stream in (True, True, False)]
        assert [answer.status for answer in answers] == [200] * 3
        assert [served.connection for served in engine.requests] == [0, 1, 2]
        assert [(row["end"], row["retries"]) for row in await kit.settled(gate.home, 3)] == [("served", 0)] * 3


async def closed(tmp_path: Path, script: list[bytes | None]) -> tuple[kit.Answer, list[int], list[dict[str, object]]]:
    """What becomes of a request after a first one was answered on its connection. Of `script` each request takes the next item: its
    answer, or None to close the connection; with the connections of all requests, and their rows."""
    seen, connections = list[int](), list[object]()

    async def answer(_: raw.Received, to: raw.Connection) -> None:
        if to.writer not in connections:
            connections.append(to.writer)
        seen.append(connections.index(to.writer))
        said = script.pop(0)
        if said:
            await to.send(said)
        if said != OK:
            to.writer.close()

    home = Home(tmp_path / "home")
    async with raw.upstream(answer) as up, kit.gateway(tmp_path, kit.upstream(home, up.url)) as gate:
        token = gate.crew.agent()
        await gate.post("/v1/messages", kit.messages(stream=False), token)
        found = await gate.post("/v1/messages", kit.messages(stream=False), token)
        return found, seen, await kit.settled(home, 2)


async def test_of_any_upstream(tmp_path: Path) -> None:
    answer, seen, rows = await closed(tmp_path, [OK, None, OK])
    assert answer.status == 200
    assert seen == [0, 0, 1]
    assert len(rows) == 2


@pytest.mark.parametrize("said", [None, b"HTTP/1.1 200 OK\r\nContent-Le"], ids=["closed twice", "a head began"])
async def test_only_once_and_only_when_nothing_came(tmp_path: Path, said: bytes | None) -> None:
    """Else the queue sends it again, as a request of its own in the account."""
    script: list[bytes | None] = [OK, None, None, OK] if said is None else [OK, said, OK]
    answer, seen, rows = await closed(tmp_path, script)
    assert answer.status == 200
    assert seen == ([0, 0, 1, 2] if said is None else [0, 0, 1])
    assert [row["attempt_no"] for row in rows] == [1, 1, 2]


async def test_not_on_a_new_connection(tmp_path: Path) -> None:
    """What a server does with the first request of a connection is no crossing."""
    async with engine_gate(tmp_path) as (engine, gate):
        engine.hang_up_next = 1
        answer = await gate.post(CHAT, ask("s", "hi"), gate.crew.agent())
        assert answer.status == 200
        assert [row["attempt_no"] for row in await kit.settled(gate.home, 2)] == [1, 2]
