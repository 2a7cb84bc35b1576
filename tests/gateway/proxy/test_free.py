"""Requests that take no tokens: counting, lists of models. They are tried again as the others are, without a queue."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from supervisor.host.paths import Home
from tests.gateway import kit
from tests.gateway.proxy import raw
from tests.gateway.simulator import Fault, SimSettings, running

pytestmark = pytest.mark.asyncio

COUNT = "/v1/messages/count_tokens"
BODY = kit.messages(stream=False)


def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.mark.parametrize("status", [429, 500, 529])
async def test_what_fails_for_a_while_is_tried_again(tmp_path: Path, status: int) -> None:
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        sim.faults(Fault(status=status, retry_after="0.05", times=2))
        answer = await gate.post(COUNT, BODY, gate.crew.agent())
        assert answer.status == 200
        assert "input_tokens" in answer.json
        assert kit.rows(gate.home) == [], "nothing is charged"


@pytest.mark.parametrize(("status", "retry_after", "asked", "told"), [(429, "0.02", 4, "5"), (503, "0.02", 4, "5"), (429, "40", 1, "40")])
async def test_what_goes_on_failing_is_said_with_the_time_to_wait(
    tmp_path: Path, status: int, retry_after: str, asked: int, told: str
) -> None:
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        sim.faults(Fault(status=status, retry_after=retry_after))
        answer = await gate.post(COUNT, BODY, gate.crew.agent())
        assert (answer.status, answer.headers["Retry-After"]) == (status, told)
        assert answer.json["type"] == "error"
        assert sim.provider.stats.number() == asked + 1


@pytest.mark.parametrize("status", [401, 500])
async def test_another_upstream_serves_what_the_first_one_does_not(tmp_path: Path, status: int) -> None:
    async def script(_request: raw.Received, to: raw.Connection) -> None:
        await to.send(raw.whole(status, b'{"type":"error","error":{"type":"authentication_error","message":"x"}}'))

    async with raw.upstream(script) as bad, running(SimSettings()) as sim:
        made = home(tmp_path)
        settings = kit.upstream(made, bad.url, name="bad") + kit.upstream(made, sim.url, name="good")
        async with kit.gateway(tmp_path, settings) as gate:
            assert (await gate.post(COUNT, BODY, gate.crew.agent())).status == 200
            assert len(bad.received) == 1


async def test_a_refused_key_is_no_affair_of_the_client(tmp_path: Path) -> None:
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        sim.faults(Fault(status=401))
        answer = await gate.post(COUNT, BODY, gate.crew.agent())
        assert (answer.status, answer.headers["x-should-retry"]) == (503, "false")
        assert "the upstream sim did not serve this: key refused" in answer.json["error"]["message"]
        assert sim.provider.stats.number() == 3, "once more to be sure; no other try would help"


async def test_a_key_that_is_refused_once_is_tried_again(tmp_path: Path) -> None:
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        sim.faults(Fault(status=401, times=1))
        assert (await gate.post(COUNT, BODY, gate.crew.agent())).status == 200


async def test_the_clients_own_mistake_is_passed_on(tmp_path: Path) -> None:
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        for status in (400, 403, 404):
            sim.faults(Fault(status=status, message="such words", times=1))
            answer = await gate.post(COUNT, BODY, gate.crew.agent(f"run/{status}"))
            assert answer.status == status
            assert "such words" in answer.json["error"]["message"]


async def test_an_upstream_that_is_gone_is_said(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    settings = '[gateway]\nhold = "1s"\n' + kit.upstream(home(tmp_path), f"http://127.0.0.1:{port}")
    async with kit.gateway(tmp_path, settings) as gate:
        answer = await gate.post(COUNT, BODY, gate.crew.agent())
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        assert "connection refused" in answer.json["error"]["message"]
