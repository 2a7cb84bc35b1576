"""Who was refused stands in the audit log (battery X02), without their tokens."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sqlite3
from pathlib import Path

from supervisor.features.audit import views as audit_views
from supervisor.features.audit.service import Anchoring
from supervisor.gateway import replay
from supervisor.host import attempt_tokens, audit_log
from supervisor.host.clock import SystemClock
from supervisor.host.paths import Home
from supervisor.kernel.audit import Verdict
from supervisor.kernel.names import trace_id
from tests.gateway import kit
from tests.gateway.simulator import SimSettings, running


def test_refusals_are_audited_once_and_without_tokens(tmp_path: Path) -> None:
    async def ask() -> None:
        home = Home(tmp_path / "home")
        async with kit.gateway(tmp_path, kit.upstream(home, "http://127.0.0.1:9")) as gate:
            token = gate.crew.agent("run/a")
            gate.crew.end("run/a")
            for _ in range(5):
                assert (await gate.post("/v1/messages", kit.messages(), token)).status == 403
            stranger = attempt_tokens.derive(b"t" * 32, "run/a", 1)
            assert (await gate.post("/v1/messages", kit.messages(), stranger)).status == 401
            assert (await gate.get("/nightcrew/status", {"Authorization": f"Bearer {token}"})).status == 403
            assert (await gate.get("/nightcrew/status", {"Origin": "http://evil.example"})).status == 403
            text = home.audit.read_text()
            records = [json.loads(line) for line in text.splitlines()]
            assert [record["event"] for record in records] == ["keys read", *["refused"] * 4]
            assert token not in text
            assert stranger not in text
            assert audit_log.verify(home.audit, gate.crew.secret) == Verdict(5)

    asyncio.run(ask())


def test_a_call_is_proven_by_digests_of_what_was_sent_and_got_and_has_its_tasks_trace(tmp_path: Path) -> None:
    async def ask() -> None:
        home = Home(tmp_path / "home")
        async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home, sim.url) + "[gateway]\nrecord = true\n") as gate:
            token, body = gate.crew.agent("run/a"), kit.messages()
            got = (await gate.post("/v1/messages", body, token)).body
            (row,) = await kit.settled(home, 1)
            digests = hashlib.sha256(body).hexdigest(), hashlib.sha256(got).hexdigest()
            assert (row["input_sha256"], row["output_sha256"], row["trace"]) == (*digests, trace_id("run/a"))
            Anchoring(home, gate.crew.secret, SystemClock()).step()
            secret = gate.crew.secret
        (call,) = [entry for entry in audit_views.entries(home, secret, most=9, task="run/a") if entry["in"] == "account"]
        assert (call["data"]["output_sha256"], call["trace"]) == (digests[1], trace_id("run/a"))
        assert replay.read(home.recordings / call["data"]["recording"]).body == body
        with contextlib.closing(sqlite3.connect(home.gateway_account)) as db, db:
            db.execute("UPDATE request SET output_sha256 = ?", (digests[0],))
        assert audit_views.verify(home, secret, SystemClock().wall()).row == row["id"]

    asyncio.run(ask())


def test_which_keys_were_read_is_noted(tmp_path: Path) -> None:
    async def ask() -> None:
        home = Home(tmp_path / "home")
        both = kit.upstream(home, "http://127.0.0.1:9") + kit.upstream(home, "http://127.0.0.1:9", name="other", key=None)
        async with kit.gateway(tmp_path, both) as gate:
            (record,) = [json.loads(line) for line in home.audit.read_text().splitlines()]
            assert (record["event"], record["data"]) == ("keys read", {"of": "sim", "not usable": "other"})
            await gate.gateway.reload()
            assert home.audit.read_text().count("keys read") == 2
            assert kit.KEY not in home.audit.read_text()

    asyncio.run(ask())
