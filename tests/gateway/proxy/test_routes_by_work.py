"""Routes by the weight of work, what an engine spends on a request, and the cap on its seconds. Real sockets, a scripted engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.gateway.account import queries as reading
from supervisor.gateway.account import schema
from supervisor.host import files, processes
from supervisor.host.paths import Home
from supervisor.kernel.engines import EngineRecord, EngineState
from supervisor.kernel.spec import RAISED
from supervisor.store import sqlite
from supervisor.views import figures
from supervisor.views import gateway as view
from tests.engines.scripted import ScriptedEngine, scripted
from tests.gateway.kit import Gate, gateway, messages, rows, settled, turned_away, until, upstream
from tests.gateway.simulator import SimSettings, running

KV_BYTES = 1000.0
ROUTES = """
[[route]]
model = "*"
work = "trivial"
upstream = "box"
as = "scripted"

[[route]]
model = "*"
work = "complex"
upstream = "sim"
as = "claude-opus-4-8"

[[route]]
model = "*"
upstream = "sim"
as = "claude-haiku-4-5"
"""
TOOL = [{"name": "t", "input_schema": {"type": "object"}}]


def engine_table(engine: ScriptedEngine) -> str:
    return f'[engine.box]\nkind = "adopted"\nurl = "{engine.url}"\n'


def record(home: Home, engine: ScriptedEngine, **facts: Any) -> None:
    """What the supervisor writes of an engine that is ready."""
    shape = {"url": engine.url, "slots": len(engine.slots), "context": engine.context, "kv_bytes": KV_BYTES, **facts}
    files.private_dir(home.engines)
    files.atomic_write(home.engines / "box.json", json.dumps(asdict(EngineRecord("box", EngineState.READY, **shape))).encode())


@asynccontextmanager
async def both(root: Path, routes: str = ROUTES) -> AsyncIterator[tuple[Gate, ScriptedEngine]]:
    """A gateway before a simulated provider and a scripted engine."""
    home = Home(root / "home")
    async with running(SimSettings()) as sim, scripted() as engine:
        record(home, engine)
        async with gateway(root, upstream(home, sim.url) + engine_table(engine) + routes) as gate:
            context = gate.gateway.context
            at = tuple(replace(one, url=engine.url) if one.engine else one for one in context.settings.upstreams)
            context.settings = replace(context.settings, upstreams=at)
            yield gate, engine


def weighed(found: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(row["work"], row["account"], row["model"]) for row in found]


def fail_gate(gate: Gate, task: str) -> None:
    """Its attempt did not pass its gate, for the first time."""
    with contextlib.closing(sqlite3.connect(gate.home.ledger)) as db, db:
        db.execute("UPDATE attempt SET state = 'ended', end = 'failed', end_cause = 'gate: exit code 1' WHERE task = ?", (task,))
        db.execute("UPDATE task SET gates = 1 WHERE id = ?", (task,))


def test_each_request_goes_where_its_weight_leads_and_one_stronger_after_a_failed_gate(tmp_path: Path) -> None:
    async def asked() -> None:
        async with both(tmp_path) as (gate, engine):
            token = gate.crew.agent("run/a")
            for body in (messages("hi"), messages("hi", tools=TOOL), messages("x" * 120_000)):
                assert (await gate.post("/v1/messages", body, token)).status == 200
            said = gate.crew.agent("run/b", work="simple")
            assert (await gate.post("/v1/messages", messages("hi"), said)).status == 200
            for task in ("run/a", "run/b"):
                fail_gate(gate, task)
            token, said = gate.crew.agent("run/a", epoch=2), gate.crew.agent("run/b", epoch=2, work="simple")
            for who in (token, said):
                assert (await gate.post("/v1/messages", messages("hi"), who)).status == 200
            found = await settled(gate.home, 6)
            assert weighed(found) == [
                ("trivial", "box", "scripted"),
                ("simple", "sim", "claude-haiku-4-5"),
                ("complex", "sim", "claude-opus-4-8"),
                ("simple", "sim", "claude-haiku-4-5"),
                ("simple", "sim", "claude-haiku-4-5"),
                ("complex", "sim", "claude-opus-4-8"),
            ]
            assert [row["work_why"].endswith(RAISED) for row in found] == [False] * 4 + [True] * 2
            assert len(engine.requests) == 1
            for task in ("run/a", "run/b"):
                gate.crew.end(task)
            with contextlib.closing(sqlite3.connect(gate.home.ledger)) as db, db:
                db.execute("UPDATE attempt SET end = 'done' WHERE epoch = 2")
            with contextlib.closing(sqlite.connect_readonly(gate.home.ledger)) as ledger:
                by_work = view.by_work(gate.home, ledger, ["run/a", "run/b", "run/nobody"])
            counts = [(one["account"], one["work"], one["requests"], one["done"], one["gate_failed"], one["raised"]) for one in by_work]
            assert counts == [
                ("box", "trivial", 1, 0, 1, 0),
                ("sim", "simple", 3, 1, 2, 1),
                ("sim", "complex", 2, 1, 1, 1),
            ]
            box = by_work[0]
            assert box["engine_s"] > 0 and figures.work(box)[4].endswith("of an engine")
            assert by_work[2]["engine_s"] == 0 and by_work[2]["usd"] == pytest.approx(
                sum(row["cost_usd"] or 0 for row in (found[2], found[5]))
            )
            shape = view.look(gate.home, 0.0)
            assert shape is not None
            record(gate.home, engine, identity=processes.identity(os.getpid()))
            view.add_slow(shape, gate.home)
            text = view.text(shape, 0.0, width=200, color=False)
            assert "GATE FAILED" in text and "complex  sim claude-opus-4-8" in text
            (shown,) = shape["engines"]
            assert shown["name"] == "box" and shown["memory"] > 0 and "engine box  " in text

    asyncio.run(asked())


def test_nothing_is_weighed_where_no_route_names_a_weight(tmp_path: Path) -> None:
    async def asked() -> None:
        async with both(tmp_path, '[[route]]\nmodel = "*"\nupstream = "sim"\n') as (gate, _):
            assert (await gate.post("/v1/messages", messages("hi"), gate.crew.agent("run/a", work="trivial"))).status == 200
            assert [(row["work"], row["work_why"], row["engine_ms"]) for row in await settled(gate.home, 1)] == [("", "", 0.0)]

    asyncio.run(asked())


def test_the_account_has_what_an_engine_spent_and_a_window_shows_it(tmp_path: Path) -> None:
    async def asked() -> None:
        async with both(tmp_path) as (gate, _):
            await gate.post("/v1/messages", messages("hi"), gate.crew.agent("run/a"))
            (row,) = await settled(gate.home, 1)
            taken = sum(row[kind] for kind in ("input", "output", "cache_read", "cache_write"))
            assert 0 < row["engine_ms"] <= row["total_ms"] and row["kv_bytes"] == taken * KV_BYTES > 0
            with contextlib.closing(schema.connect_readonly(gate.home.gateway_account)) as db:
                of_agent = reading.window(db, row["at"] + 1, 60.0).agents["run/a"]
            assert of_agent.engine_s == pytest.approx(row["engine_ms"] / 1000) and of_agent.kv_bytes == row["kv_bytes"]

    asyncio.run(asked())


def test_an_engine_that_does_not_say_its_bytes_a_token_has_no_figure_of_memory(tmp_path: Path) -> None:
    async def asked() -> None:
        async with both(tmp_path) as (gate, engine):
            record(gate.home, engine, kv_bytes=0.0)
            assert gate.gateway.context.engines is not None
            gate.gateway.context.engines.look()
            await gate.post("/v1/messages", messages("hi"), gate.crew.agent("run/a"))
            (row,) = await settled(gate.home, 1)
            assert row["kv_bytes"] == 0 and row["engine_ms"] > 0

    asyncio.run(asked())


def test_a_task_that_used_up_its_engine_seconds_gets_402_from_engines_also_after_a_restart(tmp_path: Path) -> None:
    async def asked() -> None:
        async with both(tmp_path) as (gate, _):
            token = gate.crew.agent("run/a", engine_seconds_max=1e-6)
            assert (await gate.post("/v1/messages", messages("hi"), token)).status == 200
            refused = await gate.post("/v1/messages", messages("hi"), token)
            assert refused.status == 402 and "engine_seconds_max of the task run/a" in refused.body.decode()
            assert (await gate.post("/v1/messages", messages("hi", tools=TOOL), token)).status == 200, "a provider serves it still"
            await settled(gate.home, 2)
        async with both(tmp_path) as (gate, engine):
            token = gate.crew.agent("run/a", epoch=2, engine_seconds_max=1e-6)
            assert (await gate.post("/v1/messages", messages("hi"), token)).status == 402
            await until(lambda: turned_away(gate.home) == [("run/a", 402)] * 2, "both refusals in the account")
            assert engine.requests == [] and len(rows(gate.home)) == 2

    asyncio.run(asked())
