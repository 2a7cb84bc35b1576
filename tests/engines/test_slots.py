"""Which slot of an engine gets a request, and what is shared between slots."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from supervisor.gateway.proxy import engine_slots
from supervisor.gateway.proxy.engine_slots import Block, File, Slot, blocks_of, choose, shared
from tests.engines.gateway_kit import CHAT, MESSAGES, ask, at, engine_gate, message, saved_at
from tests.engines.scripted import Answer, ScriptedEngine, Served
from tests.gateway import kit

SYSTEM = "You are an agent. " * 200
OTHER = "Quite another crew. " * 200


def reused(served: Served) -> bool:
    """It computed little more than its own end."""
    return len(served.prompt) - served.cached < 100


def blocks(*words: str, size: int = 3000) -> tuple[Block, ...]:
    """A prompt of blocks of `size` characters, each of which is told apart by what stands before it too."""
    return tuple(Block("/".join(words[: place + 1]).encode(), size * (place + 1)) for place in range(len(words)))


# The decision -------------------------------------------------------------------------------------------------------------------------


def test_a_prompt_goes_to_the_free_slot_with_its_longest_beginning() -> None:
    slots = [Slot(blocks("s", "a"), used=1), Slot(blocks("s", "a", "b"), used=2), Slot(blocks("s", "a", "b", "c"), busy=True, used=3)]
    assert choose(slots, [], blocks("s", "a", "b", "c"), named=True) == (1, None)


def test_a_new_conversation_takes_the_empty_slot_and_leaves_the_others_prompts_alone() -> None:
    slots = [Slot(blocks("s", "a", "b"), used=1), Slot(used=0)]
    assert choose(slots, [], blocks("s", "x"), named=True) == (1, None)
    assert choose(slots, [], blocks("s", "x"), named=False) == (0, None), "the server takes the longest beginning, whatever is lost"


def test_a_file_is_restored_where_it_is_longer_than_what_a_slot_holds() -> None:
    file, short = File("p1.bin", blocks("s", "a")), File("p2.bin", blocks("x"))
    slots = [Slot(blocks("s"), busy=True), Slot(blocks("q"), used=2), Slot(used=1)]
    assert choose(slots, [short, file], blocks("s", "a", "b"), named=True) == (2, file)
    assert choose([Slot(blocks("s", "a"))], [file], blocks("s", "a", "b"), named=True) == (0, None)
    assert choose([Slot(blocks("s", size=100))], [File("p", blocks("s", size=100))], blocks("s", size=100), named=True) == (0, None)


def test_no_slot_is_chosen_that_is_busy() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    for _ in range(500):
        slots = [Slot(blocks(*dice.choices("ab", k=dice.randrange(4))), dice.random() < 0.5, n) for n in range(dice.randrange(1, 5))]
        files = [File(str(n), blocks(*dice.choices("ab", k=3))) for n in range(dice.randrange(3))]
        wanted = blocks(*dice.choices("ab", k=3))
        number, file = choose(slots, files, wanted, named=dice.random() < 0.5)
        assert (number is None) == all(slot.busy for slot in slots)
        if number is not None:
            assert not slots[number].busy
            assert file is None or shared(file.held, wanted) > shared(slots[number].held, wanted)


def test_blocks_stand_in_the_order_of_a_prompt_and_leave_out_cache_marks() -> None:
    one = blocks_of({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "system": "s", "tools": [{"name": "t"}]})
    marked = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    assert blocks_of({"tools": [{"name": "t"}], "system": "s", "messages": [{"role": "user", "content": [marked]}]}) == one
    assert shared(one, blocks_of({"tools": [{"name": "t"}], "system": "z"})) == one[0].end


# Through the gateway ------------------------------------------------------------------------------------------------------------------


async def say(gate: kit.Gate, token: str, *turns: str, system: str = SYSTEM) -> None:
    answer = await gate.post(CHAT, ask(system, *turns), token)
    assert answer.status == 200, answer.body


@pytest.mark.asyncio
async def test_no_slot_is_named_that_the_engine_has_not(tmp_path: Path) -> None:
    """It serves fewer than the settings ask for; the real server would wait for the slot without end."""
    async with engine_gate(tmp_path, slots=2) as (engine, gate):
        at(gate, engine.url, 1)
        token = gate.crew.agent()
        for system in (SYSTEM, OTHER):
            assert (await gate.post(CHAT, ask(system, "one"), token)).status == 200
        assert [served.body["id_slot"] for served in engine.requests] == [0, 0]


@pytest.mark.asyncio
async def test_each_conversation_goes_on_in_its_slot(tmp_path: Path) -> None:
    async with engine_gate(tmp_path, slots=3) as (engine, gate):
        token = gate.crew.agent()
        for turns in (("a",), ("b",), ("c",), ("b", "Hello there.", "b2"), ("a", "Hello there.", "a2"), ("c", "Hello there.", "c2")):
            await say(gate, token, *turns, system=SYSTEM + turns[0])
        assert [served.slot for served in engine.requests] == [0, 1, 2, 1, 0, 2]
        assert [reused(served) for served in engine.requests] == [False] * 3 + [True] * 3
        assert not any("action" in call for call in engine.calls), "nothing was shared"


async def burst(engine: ScriptedEngine, gate: kit.Gate, names: str) -> list[Served]:
    """Conversations that begin at once with the same system prompt, each held until all are served."""
    before = len(engine.requests)
    engine.tokens.close()
    asking = [asyncio.create_task(say(gate, gate.crew.agent(f"run/{name}"), name)) for name in names]
    served = [await engine.arrived(before + 1 + place) for place in range(len(names))]
    await engine.tokens.open()
    await asyncio.gather(*asking)
    return served


@pytest.mark.asyncio
async def test_a_beginning_in_one_slot_is_shared_with_all_that_start_at_once(tmp_path: Path) -> None:
    async with engine_gate(tmp_path, slots=4) as (engine, gate):
        await say(gate, gate.crew.agent("run/first"), "first")
        served = await burst(engine, gate, "abcd")
        assert [reused(one) for one in served] == [True] * 4
        assert sorted(one.slot or 0 for one in served) == [0, 1, 2, 3]
        assert sorted(call.partition("=")[2] for call in engine.calls if "action" in call) == ["restore"] * 3 + ["save"]


@pytest.mark.asyncio
async def test_a_beginning_that_only_a_busy_slot_holds_is_computed_once_more_and_then_shared(tmp_path: Path) -> None:
    async with engine_gate(tmp_path, slots=4) as (engine, gate):
        engine.answer = lambda served: Answer(("x",)) if served.body["max_tokens"] == 1 else Answer()
        engine.prompts.close()
        asking = [asyncio.create_task(say(gate, gate.crew.agent(f"run/{name}"), name)) for name in "abcd"]
        await engine.arrived(2)
        assert [served.body["max_tokens"] for served in engine.requests] == [50, 1], "the first, and one that is computed alone"
        await engine.prompts.open()
        await asyncio.gather(*asking)
        cold = [served for served in engine.requests if not reused(served)]
        assert len(cold) == 2
        assert len(engine.requests) == 5
        assert (await kit.settled(gate.home, 4))[3]["end"] == "served"


@pytest.mark.asyncio
async def test_messages_name_no_slot_and_are_shared_by_restoring(tmp_path: Path) -> None:
    async with engine_gate(tmp_path, slots=3) as (engine, gate):
        token = gate.crew.agent()
        for turn in ("a", "b"):
            await gate.post(MESSAGES, message(SYSTEM, turn), token)
        engine.tokens.close()
        asking = [asyncio.create_task(gate.post(MESSAGES, message(SYSTEM, turn), token)) for turn in "cde"]
        served = [await engine.arrived(3 + place) for place in range(3)]
        await engine.tokens.open()
        await asyncio.gather(*asking)
        assert [reused(one) for one in served] == [True] * 3
        assert not any("id_slot" in one.body for one in engine.requests)


@pytest.mark.asyncio
async def test_no_slot_is_named_while_the_engine_chose_one(tmp_path: Path) -> None:
    """It could be that one, and the request would wait for it beside a free slot."""
    async with engine_gate(tmp_path) as (engine, gate):
        token = gate.crew.agent()
        engine.tokens.close()
        first = asyncio.create_task(gate.post(MESSAGES, message(OTHER, "a"), token))
        await engine.arrived(1)
        second = asyncio.create_task(say(gate, token, "b"))
        assert "id_slot" not in (await engine.arrived(2)).body
        await engine.tokens.open()
        await asyncio.gather(first, second)
        await say(gate, token, "b", "Hello there.", "c")
        assert "id_slot" in engine.requests[2].body


@pytest.mark.asyncio
async def test_saved_slots_are_bounded_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_slots, "FILES_MAX", 2)
    place = saved_at(tmp_path)
    async with engine_gate(tmp_path) as (engine, gate):
        token = gate.crew.agent()
        for system in "pqr":
            for turn in "ab":
                await say(gate, token, turn, system=SYSTEM + system)
        assert len(engine.saved) == 3
        assert len(list(place.iterdir())) == 2
    assert list(place.iterdir()) == []


@pytest.mark.asyncio
async def test_an_engine_that_saves_nothing_is_used_all_the_same(tmp_path: Path) -> None:
    async with engine_gate(tmp_path) as (engine, gate):
        engine.save_path = None
        token = gate.crew.agent()
        for turn in "abc":
            await say(gate, token, turn)
        assert len(engine.requests) >= 3


@pytest.mark.asyncio
async def test_a_request_that_is_cut_gives_its_slot_back(tmp_path: Path) -> None:
    async with engine_gate(tmp_path, slots=1) as (engine, gate):
        token = gate.crew.agent()
        engine.tokens.close()
        asking = asyncio.create_task(say(gate, token, "a"))
        await engine.arrived(1)
        asking.cancel()
        await engine.tokens.open()
        await engine.ended(1)
        await say(gate, token, "a")
        assert engine.requests[1].body["id_slot"] == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_other_engines_share_by_themselves(tmp_path: Path, kind: str) -> None:
    async with engine_gate(tmp_path, kind=kind) as (engine, gate):
        token = gate.crew.agent()
        for turn in "abc":
            await say(gate, token, turn)
        assert [("id_slot" in served.body, served.body["stream"]) for served in engine.requests] == [(False, True)] * 3
        assert not any("action" in call for call in engine.calls)
