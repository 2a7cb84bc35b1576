"""The prompts of a map by batches: the real gateway, a simulated provider."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agents import model_api as api
from supervisor.features.map.prompts import PromptTerms
from supervisor.features.map.worker import economy
from supervisor.features.map.worker.economy import MISSES_MAX, Batches, Plan, Rounds
from supervisor.features.map.worker.prompt import Prompt, settings
from supervisor.features.map.worker.worker import Item, Result
from supervisor.host.paths import Home
from supervisor.kernel import codec
from supervisor.kernel.errors import NeedsHuman
from tests.gateway.kit import KEY, Gate, gateway, settled, upstream
from tests.gateway.simulator import Fault, Running, SimSettings, running

SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
TERMS = PromptTerms("Rate item {line}!", schema=SCHEMA, model="claude-haiku-4-5", max_tokens=50, asks=2)
GOOD = Fault(api="batch", text='{"score": 3}')


class Killed(BaseException):
    """Whatever ends a process between two instructions."""


@dataclass
class Kept:
    """What the map keeps of the group. `dies_at`: killed once so many plans were kept."""

    text: str = "null"
    saved: int = 0
    dies_at: int = 0

    def load(self) -> Plan:
        return codec.load(Plan, json.loads(self.text) or {})

    def save(self, plan: Plan) -> None:
        self.text = codec.dumps(plan)
        self.saved += 1
        if self.saved == self.dies_at:
            raise Killed


@dataclass
class Written:
    """A shard's file."""

    results: dict[int, Result] = field(default_factory=dict)

    def next(self) -> Item | None:
        return None

    def still(self) -> None:
        """Nobody asks."""

    def write(self, item: Item, result: Result, seconds: float) -> None:  # noqa: ARG002 - as a shard takes it
        assert item.index not in self.results, "once"
        self.results[item.index] = result


class Lost(Batches):
    """Killed when the provider has made a batch and nobody has heard of it."""

    async def make(self, key: str, requests: list[dict[str, Any]]) -> str:
        await super().make(key, requests)
        raise Killed


@dataclass
class World:
    sim: Running
    gate: Gate
    token: str
    root: Path
    run: str = "run"
    kept: Kept = field(default_factory=Kept)
    written: Written = field(default_factory=Written)

    async def work(self, count: int, batches: Callable[..., Batches] = Batches) -> dict[int, Result]:
        """As a worker that has these items and what was kept; what was written before is done."""
        return await self.work_on([Item(number, str(number)) for number in range(count) if number not in self.written.results], batches)

    async def work_on(self, items: list[Item], batches: Callable[..., Batches] = Batches) -> dict[int, Result]:
        environ = {"ANTHROPIC_BASE_URL": self.gate.url, "ANTHROPIC_AUTH_TOKEN": self.token}
        prompt = Prompt(TERMS, "line", 1, environ, self.root)
        way = batches(api.client(settings(environ)))
        try:
            await Rounds(f"map 0 {self.run}", prompt, way, self.kept, self.written).work(items)  # type: ignore[arg-type]  # it is kept in memory
        finally:
            await way.close()
        return self.written.results

    @property
    def made(self) -> list[int]:
        """How many requests each batch had that the provider made."""
        return [len(batch.requests) for batch in reversed(self.sim.batches.of_key(KEY))]


def in_world(tmp_path: Path, work: Callable[[World], Any], **sim: Any) -> None:
    async def go() -> None:
        async with running(SimSettings(**sim)) as provider, gateway(tmp_path, upstream(Home(tmp_path / "home"), provider.url)) as gate:
            await work(World(provider, gate, gate.crew.agent("run/w1", kind="map-prompt"), tmp_path))

    asyncio.run(go())


def test_all_items_are_one_batch_and_what_was_wrong_is_asked_again_in_the_next(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.sim.faults(
            Fault(api="batch", contains="item 1!", text="garbage", times=1),
            Fault(api="batch", contains="item 2!", text="garbage"),
            Fault(api="batch", contains="item 3!", batch="expired", times=1),
            Fault(api="batch", contains="item 4!", batch="expired"),
            Fault(api="batch", contains="item 5!", status=400, message="no such thing"),
            Fault(api="batch", contains="item 6!", status=529, times=1),
            GOOD,
        )
        found = await world.work(20)
        assert sorted(found) == list(range(20))
        assert {number for number, one in found.items() if not one.ok} == {2, 4, 5}
        assert found[1].text == '{"score": 3}' and "it is not JSON" in found[2].text and "no such thing" in found[5].text
        assert "expired" in found[4].text
        assert world.made == [20, 5, 1] and MISSES_MAX == 3
        assert len(await settled(world.gate.home, 3)) == 3
        world.written, world.run = Written({number: one for number, one in found.items() if one.ok}), "again"
        world.sim.provider.faults.clear()
        world.sim.faults(GOOD)
        assert all(one.ok for one in (await world.work(20)).values())
        assert world.made == [20, 5, 1, 3], "only what had failed is asked for anew"

    in_world(tmp_path, work)


@pytest.mark.parametrize("dies_at", [1, 2, 3, 4])
def test_a_worker_that_is_killed_makes_no_batch_twice(tmp_path: Path, dies_at: int) -> None:
    """After a plan was kept, before its batch is made; and after its id was kept: in the first round and in the second."""

    async def work(world: World) -> None:
        world.sim.faults(Fault(api="batch", contains="item 1!", text="garbage", times=1), GOOD)
        world.kept.dies_at = dies_at
        with pytest.raises(Killed):
            await world.work(8)
        found = await world.work(8)
        assert sorted(found) == list(range(8)) and all(one.ok for one in found.values())
        assert world.made == [8, 1]

    in_world(tmp_path, work)


def test_a_batch_whose_id_nobody_kept_is_found_by_its_key_also_from_another_task(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.sim.faults(GOOD)
        with pytest.raises(Killed):
            await world.work(8, Lost)
        world.token = world.gate.crew.agent("later/w7", kind="map-prompt")
        found = await world.work(8)
        assert len(found) == 8 and world.made == [8]
        assert len(await settled(world.gate.home, 1)) == 1, "and it is paid for once"

    in_world(tmp_path, work)


def test_an_item_that_has_changed_is_asked_for_and_the_others_are_taken_from_the_batch(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.sim.faults(GOOD)
        await world.work(5)
        world.written = Written()
        changed = [Item(number, "other" if number == 2 else str(number)) for number in range(5)]
        assert sorted(await world.work_on(changed)) == list(range(5)) and world.made == [5, 1]

    in_world(tmp_path, work)


def test_many_bytes_are_several_batches_at_once_and_a_refusal_is_no_items_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(economy, "PART_BYTES", 1500)

    async def work(world: World) -> None:
        world.sim.faults(GOOD)
        assert all(one.ok for one in (await world.work(20)).values())
        assert len(world.made) > 1 and sum(world.made) == 20
        poor = World(world.sim, world.gate, world.gate.crew.agent("run/poor", kind="map-prompt", tokens_max=10), tmp_path, "poor")
        with pytest.raises(NeedsHuman, match="tokens_max of the task run/poor is 10"):
            await poor.work(3)
        assert poor.written.results == {}, "what no item could have been answered is none's failure"

    in_world(tmp_path, work)
