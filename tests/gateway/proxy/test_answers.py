"""Answers that are kept, and requests that are the same at one moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.host.paths import Home
from tests.gateway import kit
from tests.gateway.simulator import SimSettings, running

pytestmark = pytest.mark.asyncio


async def test_walk(tmp_path: Path) -> None:
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, "[cache]\n" + kit.upstream(Home(tmp_path / "home"), sim.url)) as gate:
        token = gate.crew.agent("run/a")
        body = kit.messages(temperature=0)
        first = await gate.post("/v1/messages", body, token)
        second = await gate.post("/v1/messages", body, token)
        print(list((tmp_path / "home").rglob("answers/*")), gate.log(), await gate.status())
        assert sim.provider.stats.number() == 1
        assert first.body == second.body
        print(second.headers, await gate.status())
        print(await kit.settled(gate.home, 2))
