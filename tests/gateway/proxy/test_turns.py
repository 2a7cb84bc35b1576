"""Requests that wait for their turn: held open, told to come back, and gone again."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from supervisor.gateway import pages
from supervisor.gateway.admission.types import Tick
from supervisor.host.paths import Home
from supervisor.kernel.states import TaskClass
from tests.gateway import kit
from tests.gateway.simulator import Fault, Running, SimSettings, running

pytestmark = pytest.mark.asyncio

ONE_AT_A_TIME = 'learn = false\nrpm = 60\nburst = "1s"'
"""One request a second, and no more than one at once."""


def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@asynccontextmanager
async def throttled(
    tmp_path: Path, clock: kit.StandingClock, more: str = ONE_AT_A_TIME, settings: str = ""
) -> AsyncIterator[tuple[kit.Gate, Running]]:
    """A gateway by that clock, in front of a provider to which it sends one request a second."""
    made = home(tmp_path)
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, settings + kit.upstream(made, sim.url, more=more), clock=clock) as gate:
        yield gate, sim


async def queued(gate: kit.Gate, number: int) -> None:
    """Until so many wait."""
    await kit.until(lambda: gate.gateway.context.admission.traffic.waiting == number, f"{number} requests to wait")


async def move(gate: kit.Gate, clock: kit.StandingClock, seconds: float) -> None:
    """Let time pass, and the queue notice."""
    clock.now += seconds
    gate.gateway.context.admission.tell(Tick())


async def test_a_request_is_held_until_its_turn_and_served(tmp_path: Path) -> None:
    clock = kit.StandingClock()
    async with throttled(tmp_path, clock) as (gate, sim):
        first = await gate.post("/v1/messages", kit.messages(), gate.crew.agent("run/a"))
        waiting = asyncio.create_task(gate.post("/v1/messages", kit.messages(), gate.crew.agent("run/b")))
        await queued(gate, 1)
        assert sim.provider.stats.number() == 2, "the provider has seen one request (and this question is the second)"
        shown = await gate.status()
        assert [(agent["name"], agent["place"]) for agent in shown["agents"] if agent["queued"]] == [("run/b", 1)]
        assert shown["lanes"][0]["queued"] == 1
        await move(gate, clock, 1.5)
        second = await waiting
        assert (first.status, second.status) == (200, 200)
        assert (first.headers["x-gw-queue-ms"], second.headers["x-gw-queue-ms"]) == ("0", "1500")
        rows = await kit.settled(gate.home, 2)
        assert [row["queued_ms"] for row in rows] == [0.0, 1500.0]


async def test_a_cap_below_max_tokens_is_used_in_one_minute(tmp_path: Path) -> None:  # T04
    """Time stands still: all that is served is in the same minute."""
    clock = kit.StandingClock()
    async with throttled(tmp_path, clock, more="learn = false") as (gate, sim):
        token = gate.crew.agent(tpm_max=10_000)
        streams = [asyncio.create_task(_turns(gate, token)) for _ in range(3)]
        await queued(gate, 3)
        used = _used(sim)
        print(f"used {used} of 10,000")
        assert 9_000 <= used <= 11_500, "the last three answers may be longer than expected"
        await move(gate, clock, 62.0)
        await kit.until(lambda: _used(sim) > 18_000, "the next minute to be used")
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)


async def _turns(gate: kit.Gate, token: str) -> None:
    while True:
        answer = await gate.post("/v1/messages", kit.messages(max_tokens=128_000), token)
        assert answer.status == 200


def _used(sim: Running) -> int:
    return sum(sum(tally.used.values()) for tally in sim.provider.stats.tallies.values())


async def test_the_supervisors_page_reads_the_account_at_most_every_fifteen_seconds(tmp_path: Path) -> None:
    clock = kit.StandingClock()

    async def served(path: str) -> int:
        return int((await gate.get(path, gate.crew.admin)).json["figures"]["requests"])

    async with throttled(tmp_path, clock, more="learn = false\nrpm = 6000\n") as (gate, _):
        token = gate.crew.agent("run/a")
        for number in (1, 2):
            await gate.post("/v1/messages", kit.messages(), token)
            await kit.settled(gate.home, number)
            assert await served(pages.NOW) == 1
        clock.now += 15.0
        assert await served(pages.NOW) == 2
        await gate.post("/v1/messages", kit.messages(), token)
        await kit.settled(gate.home, 3)
        assert await served(pages.STATUS) == 3, "and a person sees what is so now"


async def test_whoever_waited_too_long_is_told_to_come_back_and_keeps_its_place(tmp_path: Path) -> None:
    clock = kit.StandingClock()
    settings = '[gateway]\nhold = "10s"\npatient_hold = "10s"\n'
    slow = ONE_AT_A_TIME.replace("60", "4").replace("1s", "15s")
    async with throttled(tmp_path, clock, more=slow, settings=settings) as (gate, _):
        token = gate.crew.agent()
        await gate.post("/v1/messages", kit.messages(), gate.crew.agent("run/first"))
        waiting = asyncio.create_task(gate.post("/v1/messages", kit.messages("early"), token))
        await queued(gate, 1)
        await move(gate, clock, 10.5)
        answer = await waiting
        assert answer.status == 429
        assert 1 <= int(answer.headers["Retry-After"]) <= 60
        assert answer.json["error"]["type"] == "rate_limit_error"
        assert "nightcrew gateway" in answer.json["error"]["message"]
        later = asyncio.create_task(gate.post("/v1/messages", kit.messages("late"), token))
        await queued(gate, 1)
        again = asyncio.create_task(gate.post("/v1/messages", kit.messages("early"), token))
        await queued(gate, 2)
        await move(gate, clock, 5.0)
        assert (await again).status == 200, "it came first, so it goes first"
        assert not later.done()
        later.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await later
        await queued(gate, 0)


async def test_a_full_queue_answers_at_once(tmp_path: Path) -> None:  # N17
    clock = kit.StandingClock()
    async with throttled(tmp_path, clock, settings="[gateway]\nqueue_max = 1\n") as (gate, _):
        await gate.post("/v1/messages", kit.messages(), gate.crew.agent("run/a"))
        agent = gate.crew.agent("run/b")
        waiting = asyncio.create_task(gate.post("/v1/messages", kit.messages(), agent))
        await queued(gate, 1)
        answer = await gate.post("/v1/messages", kit.messages("one more"), agent)
        assert answer.status == 429
        assert 1 <= int(answer.headers["Retry-After"]) <= 60
        await kit.until(lambda: kit.turned_away(gate.home) == [("run/b", 429)], "the refusal to be written down")
        await move(gate, clock, 2.0)
        assert (await waiting).status == 200


async def test_a_client_that_leaves_the_queue_costs_nothing(tmp_path: Path) -> None:
    clock = kit.StandingClock()
    async with throttled(tmp_path, clock) as (gate, _):
        await gate.post("/v1/messages", kit.messages(), gate.crew.agent("run/a"))
        waiting = asyncio.create_task(gate.post("/v1/messages", kit.messages(), gate.crew.agent("run/b")))
        await queued(gate, 1)
        waiting.cancel()
        await queued(gate, 0)
        await move(gate, clock, 2.0)
        assert (await gate.post("/v1/messages", kit.messages(), gate.crew.agent("run/c"))).status == 200
        rows = await kit.settled(gate.home, 2)
        assert [row["agent"] for row in rows] == ["run/a", "run/c"]


@pytest.mark.parametrize("cap", [{"cost_max": 1.6}, {"tokens_max": 1600}], ids=str)
async def test_a_cap_counts_what_was_spent_before(tmp_path: Path, cap: dict[str, Any]) -> None:
    prices = '[prices."claude-opus-4-8"]\ninput = 1000.0\noutput = 1000.0\n'
    async with running(SimSettings()) as sim:
        settings = kit.upstream(home(tmp_path), sim.url) + prices
        async with kit.gateway(tmp_path, settings) as gate:
            sim.faults(Fault(output_tokens=900))
            token = gate.crew.agent(**cap)
            assert (await gate.post("/v1/messages", kit.messages(), token)).status == 200
            (row,) = await kit.settled(gate.home, 1)
            assert row["cost_usd"] > 0.9
        async with kit.gateway(tmp_path, settings) as gate:
            answer = await gate.post("/v1/messages", kit.messages(), gate.crew.agent(epoch=2, **cap))
            assert answer.status == 402 and next(iter(cap)) in answer.json["error"]["message"], (
                "the gateway of now knows what the one of before paid"
            )
            assert answer.headers["x-should-retry"] == "false"
            assert len(kit.rows(gate.home)) == 1


async def test_settings_are_read_again_while_streams_go_on(tmp_path: Path) -> None:
    clock = kit.StandingClock()
    async with running(SimSettings()) as other, throttled(tmp_path, clock) as (gate, sim):
        sim.faults(Fault(hold="gate", times=1))
        streaming = asyncio.create_task(gate.post("/v1/messages", kit.messages(), gate.crew.agent("run/a")))
        await kit.until(lambda: sim.provider.stats.held["gate"], "the stream to be held")
        waiting = asyncio.create_task(gate.post("/v1/messages", kit.messages(), gate.crew.agent("run/b")))
        await queued(gate, 1)
        gate.config.write_text("[gateway]\nno_such_key = 1\n")
        refused = await gate.session.post(gate.url + pages.RELOAD, headers=gate.crew.admin)
        assert refused.status == 400
        assert "no_such_key" in (await refused.json())["error"]
        gate.config.write_text(kit.upstream(gate.home, other.url, more=ONE_AT_A_TIME))
        done = await gate.session.post(gate.url + pages.RELOAD, headers=gate.crew.admin)
        assert (done.status, await done.json()) == (200, {"reloaded": True})
        await move(gate, clock, 1.5)
        assert (await waiting).status == 200
        assert other.provider.stats.number() == 2, "it went to where the settings say now"
        sim.release("gate")
        assert (await streaming).status == 200
        ends = {row["agent"]: row["end"] for row in await kit.settled(gate.home, 2)}
        assert ends == {"run/a": "served", "run/b": "served"}
        assert gate.gateway.context.admission.traffic.tickets == {}
        gate.config.write_text(kit.upstream(gate.home, other.url, name="second", more=ONE_AT_A_TIME))
        await gate.gateway.reload()
        assert (await gate.post("/v1/messages", kit.messages(), gate.crew.agent("run/c"))).status == 200, "the queue knows it too"


async def test_limits_that_become_less_than_what_was_used_hold_and_break_nothing(tmp_path: Path) -> None:  # I12
    clock, dear = kit.StandingClock(), '[prices."claude-opus-4-8"]\ninput = 5.0\noutput = 25.0\n'
    async with throttled(tmp_path, clock, "learn = false\ntpm = 100000", f"[gateway]\ncost_per_night = 100.0\n{dear}") as (gate, sim):

        async def edited(cap: float, tpm: int) -> None:
            settings = f"[gateway]\ncost_per_night = {cap}\n{dear}"
            gate.config.write_text(settings + kit.upstream(gate.home, sim.url, more=f"learn = false\ntpm = {tpm}"))
            await gate.gateway.reload()

        tokens = [gate.crew.agent(f"run/{name}") for name in "abcd"]
        for token in tokens[:2]:
            assert (await gate.post("/v1/messages", kit.messages("x" * 8000), token)).status == 200
        await edited(1e-6, 100_000)
        refused = await gate.post("/v1/messages", kit.messages(), tokens[2])
        assert (refused.status, "cost_per_night" in refused.json["error"]["message"]) == (402, True)
        caps = (await gate.status())["caps"]
        assert caps["cost_per_night"] == 1e-6 < caps["night_usd"], "who starts agents is told"
        await edited(100.0, 60)
        waiting = [asyncio.create_task(gate.post("/v1/messages", kit.messages("x" * 8000), token)) for token in tokens[1:]]
        await kit.until(lambda: gate.gateway.context.admission.traffic.waiting > 0, "one to wait")
        assert not [one for one in numbers(await gate.status()) if one[1] < 0 or not math.isfinite(one[1])]
        await edited(100.0, 100_000)
        for _ in range(100):
            await move(gate, clock, 2.0)
            await asyncio.sleep(0)
        assert [(await one).status for one in waiting] == [200] * 3


def numbers(shape: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a shape that says how long or how much: levels and what is left of a limit may be below nothing."""
    if isinstance(shape, dict):
        for key, value in shape.items():
            yield from numbers(value, f"{name}.{key}")
    elif isinstance(shape, list):
        for value in shape:
            yield from numbers(value, name)
    elif isinstance(shape, int | float) and not name.endswith((".level", ".remaining", ".outside")):
        yield name, float(shape)


async def test_classes_weights_and_caps_come_from_the_ledger(tmp_path: Path) -> None:
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url)) as gate:
        token = gate.crew.agent("run/a", task_class=TaskClass.BATCH, weight=3.0, tpm_max=5000)
        await gate.post("/v1/messages", kit.messages(), token)
        await kit.settled(gate.home, 1)
        (agent,) = [agent for agent in (await gate.status())["agents"] if agent["name"] == "run/a"]
        assert (agent["task_class"], agent["cap_tpm"]) == ("batch", 5000)
        assert agent["figures"]["requests"] == 1


async def test_when_it_stops_those_who_wait_come_back_and_what_does_not_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.gateway.proxy.gateway.DRAIN_S", 0.3)
    clock = kit.StandingClock()
    async with running(SimSettings()) as sim, kit.client(0) as outside:
        sim.faults(Fault(then="silence", after=3))
        async with kit.gateway(tmp_path, kit.upstream(home(tmp_path), sim.url, more=ONE_AT_A_TIME), clock=clock) as gate:
            outside.port = gate.port
            streaming = asyncio.create_task(outside.post("/v1/messages", kit.messages(), gate.crew.agent("run/a")))
            await kit.until(lambda: sim.provider.stats.streams == 1, "the stream to run")
            waiting = asyncio.create_task(outside.post("/v1/messages", kit.messages(), gate.crew.agent("run/b")))
            await queued(gate, 1)
        cut, turned = await streaming, await waiting
        assert (cut.status, cut.cut) == (200, True)
        assert (turned.status, turned.headers["Retry-After"]) == (503, "2")
        (row,) = await kit.settled(gate.home, 1)
        assert (row["end"], row["estimated"]) == ("cut", 1)
        assert "gateway_stopped" in row["flags"]


async def test_a_spent_window_that_opens_while_the_machine_sleeps_is_tried_on_waking(tmp_path: Path) -> None:
    clock = kit.StandingClock()
    said = {"anthropic-ratelimit-unified-status": "rejected", "date": "Tue, 14 Nov 2023 22:13:20 GMT"}
    spent = {**said, "anthropic-ratelimit-unified-5h-status": "rejected", "anthropic-ratelimit-unified-5h-reset": "2023-11-15T03:13:20Z"}
    async with throttled(tmp_path, clock, "") as (gate, sim):
        sim.faults(Fault(status=429, headers=spent, times=1))
        waiting = asyncio.create_task(gate.post("/v1/messages", kit.messages(), gate.crew.agent("run/a")))
        await queued(gate, 1)
        assert [window["resets_in_s"] for pool in (await gate.status())["pools"] for window in pool["windows"]] == [18_000.0]
        clock.slept += 18_001.0
        assert (await waiting).status == 200
        assert "the machine slept for 5h" in gate.log()
