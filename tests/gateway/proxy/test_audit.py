"""Who was refused stands in the audit log (battery X02), without their tokens."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from supervisor.core import tokens
from supervisor.core.audit import Verdict
from supervisor.host import audit
from supervisor.host.paths import Home
from tests.gateway import kit


def test_refusals_are_audited_once_and_without_tokens(tmp_path: Path) -> None:
    async def ask() -> None:
        home = Home(tmp_path / "home")
        async with kit.gateway(tmp_path, kit.upstream(home, "http://127.0.0.1:9")) as gate:
            token = gate.crew.agent("run/a")
            gate.crew.end("run/a")
            for _ in range(5):
                assert (await gate.post("/v1/messages", kit.messages(), token)).status == 403
            stranger = tokens.derive(b"t" * 32, "run/a", 1)
            assert (await gate.post("/v1/messages", kit.messages(), stranger)).status == 401
            assert (await gate.get("/nightcrew/status", {"Authorization": f"Bearer {token}"})).status == 403
            assert (await gate.get("/nightcrew/status", {"Origin": "http://evil.example"})).status == 403
            text = home.audit.read_text()
            records = [json.loads(line) for line in text.splitlines()]
            assert [record["event"] for record in records] == ["refused"] * 4
            assert token not in text
            assert stranger not in text
            assert audit.verify(home.audit, gate.crew.secret) == Verdict(4)

    asyncio.run(ask())
