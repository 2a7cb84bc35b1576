"""A gateway before an engine over real sockets: its slots, what does not fit, and interruption."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.gateway.proxy import forward
from supervisor.kernel.engines import EngineState
from supervisor.kernel.states import TaskClass
from supervisor.views import gateway as views
from tests.engines.gate import CHAT, MESSAGES, WORDS, body, gate_of, say
from tests.engines.scripted import Answer
from tests.gateway import kit

BATCH, NORMAL, INTERACTIVE = TaskClass.BATCH, TaskClass.NORMAL, TaskClass.INTERACTIVE
pytestmark = pytest.mark.asyncio


def asking(gate: kit.Gate, path: str, token: str, *args: Any, **more: Any) -> asyncio.Task[kit.Answer]:
    return asyncio.create_task(gate.post(path, body(*args, **more), token))


async def waiting(gate: kit.Gate, number: int) -> None:
    await kit.until(lambda: gate.gateway.context.admission.traffic.waiting == number, f"{number} requests to wait")


def text_of(answer: kit.Answer) -> str:
    return "".join(word for word in WORDS if answer.body.count(json.dumps(word)[1:-1].encode() + b'"') == 1)


async def test_both_apis_share_the_slots(tmp_path: Path) -> None:
    async with gate_of(tmp_path, 2) as (engine, gate):
        engine.prompts.close()
        token = gate.crew.agent()
        tasks = [asking(gate, path, token, f"hi {n}") for n, path in enumerate([CHAT, MESSAGES, CHAT, MESSAGES])]
        await engine.arrived(2)
        await waiting(gate, 2)
        assert len(engine.requests) == 2
        await engine.prompts.let(1)
        await engine.arrived(3)
        await waiting(gate, 1)
        await engine.prompts.open()
        assert [(await task).status for task in tasks] == [200] * 4
        assert {served.end for served in engine.requests} == {"done"}


async def test_a_task_with_a_cap_on_cost_may_use_it(tmp_path: Path) -> None:
    async with gate_of(tmp_path) as (_, gate):
        token = gate.crew.agent(cost_max=0.01)
        assert (await gate.post(CHAT, body(), token)).status == 200
        assert [(row["end"], row["cost_usd"]) for row in await kit.settled(gate.home, 1)] == [("served", 0.0)]


async def test_fifty_at_once_never_find_a_busy_engine(tmp_path: Path) -> None:
    async with gate_of(tmp_path, 16) as (engine, gate):
        waited: list[int] = []

        def answer(_: object) -> Answer:
            waited.append(sum(served.slot is None and not served.end for served in engine.requests))
            return Answer(WORDS)

        engine.answer = answer
        tokens = [gate.crew.agent(f"run/a{n}") for n in range(50)]
        answers = await asyncio.gather(*(asking(gate, (CHAT, MESSAGES)[n % 2], token, f"hi {n}") for n, token in enumerate(tokens)))
        assert [answer.status for answer in answers] == [200] * 50
        assert all(text_of(answer) == "".join(WORDS) for answer in answers)
        assert max(waited) == 0, "the engine was sent more than it has slots"


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_an_interactive_request_interrupts_a_batch_request_that_decodes(tmp_path: Path, path: str) -> None:
    async with gate_of(tmp_path, 1) as (engine, gate):
        engine.tokens.close()
        batch = asking(gate, path, gate.crew.agent("run/b", task_class=BATCH), "a long job")
        await engine.arrived(1)
        await engine.tokens.let(3)
        await kit.until(lambda: engine.tokens.waiting == 1 and gate.gateway.context.admission.cuts, "it decodes")
        urgent = asking(gate, path, gate.crew.agent("run/i", task_class=INTERACTIVE), "now")
        assert (await engine.ended(1)).end == "hung up"
        await engine.arrived(2)
        await engine.tokens.open()
        assert (await urgent).status == 200
        answer = await batch
        assert (answer.status, answer.cut, text_of(answer)) == (200, False, "".join(WORDS)), "its client got the whole answer, once"
        assert [(served.body["messages"][0]["content"], served.end) for served in engine.requests] == [
            ("a long job", "hung up"), ("now", "done"), ("a long job", "done"),
        ]  # fmt: skip
        rows = await kit.settled(gate.home, 3)
        assert [row["end"] for row in rows] == ["interrupted", "served", "served"]
        assert rows[0]["input"] > 0 and rows[0]["output"] >= 1, "what it took is counted"
        assert [row["retries"] for row in rows] == [0, 0, 1]


async def test_a_batch_request_in_its_prompt_is_left_alone(tmp_path: Path) -> None:
    async with gate_of(tmp_path, 1) as (engine, gate):
        engine.prompts.close()
        batch = asking(gate, CHAT, gate.crew.agent("run/b", task_class=BATCH), "job")
        await engine.arrived(1)
        urgent = asking(gate, CHAT, gate.crew.agent("run/i", task_class=INTERACTIVE), "now")
        await waiting(gate, 1)
        await engine.prompts.open()
        assert (await urgent).status == (await batch).status == 200
        assert engine.requests[0].body["messages"][0]["content"] == "job"


async def test_what_its_client_has_seen_is_never_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "_WITHHELD_S", 0.0)
    async with gate_of(tmp_path, 1) as (engine, gate):
        engine.tokens.close()
        await engine.tokens.let(1)
        async with gate.ask(CHAT, body("job"), gate.crew.agent("run/b", task_class=BATCH)) as batch:
            seen = b""
            while b"w0" not in seen:
                seen += await batch.content.readany()
            urgent = asking(gate, CHAT, gate.crew.agent("run/i", task_class=INTERACTIVE), "now")
            await waiting(gate, 1)
            await engine.tokens.open()
            assert (await urgent).status == 200
        assert [served.end for served in engine.requests] == ["done", "done"]


async def test_a_batch_answer_that_breaks_off_unseen_is_asked_for_again(tmp_path: Path) -> None:
    async with gate_of(tmp_path, 1) as (engine, gate):
        engine.answer = lambda served: Answer(WORDS[:3], cut=True) if served is engine.requests[0] else Answer(WORDS)
        answer = await gate.post(CHAT, body(), gate.crew.agent(task_class=BATCH))
        assert (answer.status, text_of(answer)) == (200, "".join(WORDS))
        assert [served.end for served in engine.requests] == ["cut", "done"]


async def test_a_client_that_leaves_while_it_is_interrupted_is_gone(tmp_path: Path) -> None:
    async with gate_of(tmp_path, 1) as (engine, gate):
        engine.tokens.close()
        batch = asking(gate, CHAT, gate.crew.agent("run/b", task_class=BATCH), "job")
        await engine.arrived(1)
        await engine.tokens.let(1)
        await kit.until(lambda: gate.gateway.context.admission.cuts, "it decodes")
        urgent = asking(gate, CHAT, gate.crew.agent("run/i", task_class=INTERACTIVE), "now")
        await engine.arrived(2)
        batch.cancel()
        await kit.until(lambda: gate.gateway.context.admission.traffic.waiting == 0, "it is gone")
        await engine.tokens.open()
        assert (await urgent).status == 200
        assert len(engine.requests) == 2


@pytest.mark.parametrize(("path", "kind"), [(CHAT, "invalid_request_error"), (MESSAGES, "invalid_request_error")])
async def test_what_cannot_fit_is_answered_at_once_in_the_shape_of_the_api(tmp_path: Path, path: str, kind: str) -> None:
    async with gate_of(tmp_path, 1, context=512) as (engine, gate):
        answer = await gate.post(path, body("word " * 100, max_tokens=500), gate.crew.agent())
        said = answer.json["error"]
        assert (answer.status, said["type"]) == (400, kind)
        assert "512 tokens is the context length of a slot of the engine local" in said["message"]
        assert "+ 500 > 512" in said["message"]
        assert engine.requests == []


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_tools_are_refused_for_a_template_without_them(tmp_path: Path, path: str) -> None:
    async with gate_of(tmp_path) as (engine, gate):
        say(gate, url=engine.url, tools=False)
        answer = await gate.post(path, body(tools=[{"name": "look", "input_schema": {}}]), gate.crew.agent())
        assert answer.status == 400
        assert "the engine local serves a model whose chat template has no place for tools" in answer.json["error"]["message"]
        assert (await gate.post(path, body(), gate.crew.agent("run/b"))).status == 200


async def test_requests_wait_for_an_engine_that_starts_and_hear_why_it_cannot(tmp_path: Path) -> None:
    async with gate_of(tmp_path) as (engine, gate):
        say(gate, EngineState.STARTING)
        first = asking(gate, CHAT, gate.crew.agent())
        await waiting(gate, 1)
        say(gate, url=engine.url)
        assert (await first).status == 200
        say(gate, EngineState.FAILED, why="it was killed")
        second = asking(gate, CHAT, gate.crew.agent("run/b"))
        await waiting(gate, 1)
        say(gate, EngineState.STARTING)
        say(gate, EngineState.FAILED, why="it has not enough memory")
        answer = await second
        assert (answer.status, answer.headers["x-should-retry"]) == (503, "false")
        assert answer.json["error"]["message"].endswith("the engine local does not run: it has not enough memory")


@pytest.mark.parametrize(("kind", "expected"), [("vllm", [0, 20, 40]), ("sglang", [0, -20, -40]), ("llamacpp", [None] * 3)])
async def test_engines_with_an_order_of_their_own_are_told_the_class(tmp_path: Path, kind: str, expected: list[int | None]) -> None:
    async with gate_of(tmp_path, kind=kind) as (engine, gate):
        for task_class in (INTERACTIVE, NORMAL, BATCH):
            token = gate.crew.agent(f"run/{task_class}", task_class=task_class)
            assert (await gate.post(CHAT, body(priority=-99) if expected[0] is not None else body(), token)).status == 200
            assert (await gate.post(MESSAGES, body(), token)).status == 200
        chat = [served.body.get("priority") for served in engine.requests if served.path == CHAT]
        assert chat == expected, "what the client says of itself counts for nothing"
        assert all("priority" not in served.body for served in engine.requests if served.path == MESSAGES)


async def test_status_shows_slots_and_no_tokens_per_minute(tmp_path: Path) -> None:
    async with gate_of(tmp_path, 2) as (engine, gate):
        engine.prompts.close()
        tasks = [asking(gate, CHAT, gate.crew.agent(f"run/a{n}"), f"hi {n}") for n in range(3)]
        await engine.arrived(2)
        await waiting(gate, 1)
        shape = {"running": True, **await gate.status()}
        lines = list(views._pools(shape, 100))
        assert lines == ["", "engine local  ready  2 of 2 slots used, 1 waiting"]
        await engine.prompts.open()
        await asyncio.gather(*tasks)
