"""The built-in agent before an engine whose slots are small, through a gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from agents.conversation import Conversation
from supervisor.kernel import kind
from supervisor.kernel.engines import Engine, EngineKind
from supervisor.kernel.gateway_settings import Api, GatewaySettings, Route, Upstream
from tests.agents.builtin.kit import Bench
from tests.engines.gate import gate_of, say
from tests.engines.scripted import Answer, Served
from tests.gateway import kit

CONTEXT = 8192
LONG = tuple(f" word{n}" for n in range(9000))
BASH = (("bash", (json.dumps({"command": "yes word | head -c 60000"}),)),)


def send_to(bench: Bench, gate: kit.Gate) -> None:
    bench.env |= {
        "ANTHROPIC_BASE_URL": gate.url,
        "ANTHROPIC_AUTH_TOKEN": gate.crew.agent(),
        "NIGHTCREW_MODEL": "local",
        kind.CONTEXTS_VARIABLE: json.dumps({"local": CONTEXT}),
    }


@pytest.mark.asyncio
async def test_it_trims_to_the_context_of_a_slot_and_asks_for_no_more_than_fits(bench: Bench, tmp_path: Path) -> None:
    async with gate_of(tmp_path / "gate", 1, context=CONTEXT) as (engine, gate):

        def answer(served: Served) -> Answer:
            turn = engine.requests.index(served)
            return Answer(LONG) if turn in (0, 3) else Answer((), calls=BASH) if turn < 7 else Answer(("Done.",))

        engine.answer = answer
        send_to(bench, gate)
        ran = await asyncio.to_thread(bench.run)
        assert (ran.code, ran.result["result"]) == (0, "Done."), ran.pane
        assert len(engine.requests) == 8
        assert all(len(served.prompt) + served.body["max_tokens"] <= CONTEXT for served in engine.requests)
        assert kit.turned_away(gate.home) == [], "nothing was refused on the way"


@pytest.mark.asyncio
async def test_it_says_that_the_engine_takes_no_tools(bench: Bench, tmp_path: Path) -> None:
    async with gate_of(tmp_path / "gate", 1, context=CONTEXT) as (engine, gate):
        say(gate, url=engine.url, tools=False)
        send_to(bench, gate)
        ran = await asyncio.to_thread(bench.run)
        assert ran.code != 0
        assert "the engine local serves a model whose chat template has no place for tools" in json.dumps(ran.result)


def test_what_is_no_message_counts_as_well() -> None:
    conversation = Conversation(4000, fixed=6000)
    conversation.add("user", [{"type": "text", "text": "x" * 3000}])
    assert 3000 <= conversation.input_tokens <= 3030
    conversation.learn(4500)
    assert 4490 <= conversation.input_tokens <= 4510
    conversation.learn(1500)
    assert conversation.input_tokens <= 3030, "what follows may be unlike what came before"


def test_agents_are_told_the_context_of_the_models_that_engines_serve() -> None:
    engine = Engine("e", EngineKind.LLAMACPP, "m.gguf", models=("m", "n"), context=4096)
    local = Upstream("e.anthropic", Api.ANTHROPIC, "", account="e", engine=engine)
    settings = GatewaySettings((local,), (Route("haiku*", "e"), Route("opus*", "p")))
    found = kind.block(settings, 1, "t", patient=False)
    assert json.loads(found[kind.CONTEXTS_VARIABLE]) == {"haiku*": 4096, "m": 4096, "n": 4096}
    assert found["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "1024"
    provider = Upstream("p", Api.ANTHROPIC, "")
    assert "CLAUDE_CODE_MAX_OUTPUT_TOKENS" not in kind.block(GatewaySettings((local, provider)), 1, "t", patient=False)
    assert kind.CONTEXTS_VARIABLE not in kind.block(GatewaySettings((provider,)), 1, "t", patient=False)
