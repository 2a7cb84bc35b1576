"""`/metrics`: the page, parsed as Prometheus parses it, and counters that never go back, whoever is killed."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from supervisor.features.metrics import catalog
from supervisor.features.metrics import page as metrics_page
from supervisor.features.metrics.catalog import MOST, Counts
from supervisor.features.metrics.page import Found, Looks
from supervisor.features.metrics.rows import Living, Moment
from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission.types import AgentView, BreakerState, DimensionView, PoolKey, PoolView, TrafficView
from supervisor.kernel.account import Measured
from supervisor.kernel.errors import DiskFull, LedgerError
from supervisor.kernel.states import TaskClass
from supervisor.store import sqlite
from tests.gateway.account.kit import LANE, Wall, account, away, opened, price, served

POOL = PoolKey("work", LANE)
EMPTY = TrafficView((), (), {}, {})
Key = tuple[str, frozenset[tuple[str, str]]]
SAID: dict[str, Any] = {
    "pid": 7, "since": 1.0, "overflows": 0, "asks": [], "states": {}, "slots": 8, "slots_used": 2, "carries": {"cores": 4.0},
    "predicted_wait_s": None, "pressure": {"load": 0.5}, "tick_s": 0.001, "alerts": 1,
}  # fmt: skip


def agent(name: str, **facts: object) -> AgentView:
    shape = {
        "task_class": TaskClass.NORMAL, "used_tpm": 100.0, "share_tpm": 500.0, "cap_tpm": None, "cost_usd": None, "in_flight": 1,
        "queued": 2, "place": 1, "waiting_s": 3.0,
    }  # fmt: skip
    return AgentView(name, **{**shape, **facts})  # type: ignore[arg-type]  # by keyword


def key(name: str, **labels: str) -> Key:
    return name, frozenset(labels.items())


def samples(text: bytes) -> dict[Key, float]:
    families = text_string_to_metric_families(text.decode())
    return {key(sample.name, **sample.labels): sample.value for family in families for sample in family.samples}


def shown(found: Found, view: TrafficView = EMPTY, said: metrics_page.Said | None = None, **caps: object) -> dict[Key, float]:
    return samples(metrics_page.render(found.counts, metrics_page.of_page(found, said, view, caps, 1000.0)))


# The page -------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "value"), [(BreakerState.CLOSED, 0), (BreakerState.HALF_OPEN, 1), (BreakerState.OPEN, 2)])
def test_the_gauges_are_of_the_moment(state: BreakerState, value: int) -> None:
    dimension = DimensionView("input", 80_000.0, 20_000.0, 80_000.0, 5000.0, 100.0, 0.75)
    unknown = DimensionView("output", None, 0.0, 0.0, 0.0, 0.0, 0.0)
    view = TrafficView(
        pools=(PoolView(POOL, state, "", 12.5, None, 3, (dimension, unknown), ()),),
        agents=(agent("1121-k3f9/lint"), agent("1122-aaaa/lint", task_class=TaskClass.BATCH, share_tpm=None), agent("1121-k3f9/docs")),
        queued={LANE: 6},
        delay_s={LANE: 9.0},
    )
    assert not [name for name, _ in shown(Found(Counts())) if name == "nightcrew_breaker_state"]
    found = shown(Found(Counts()), view)
    assert found[key("nightcrew_breaker_state", scope=str(POOL))] == value
    assert found[key("nightcrew_limit_saturation", scope=str(POOL), limit="input")] == 0.75
    assert found[key("nightcrew_limit_per_minute", scope=str(POOL), limit="input")] == 80_000.0
    assert key("nightcrew_limit_per_minute", scope=str(POOL), limit="output") not in found
    assert found[key("nightcrew_limit_exhausted_in_seconds", scope=str(POOL))] == 12.5
    assert found[key("nightcrew_llm_requests_in_flight", scope=str(POOL))] == 3
    assert found[key("nightcrew_queue_delay_seconds", lane=str(LANE))] == 9.0
    assert found[key("nightcrew_llm_tokens_per_minute", agent="lint")] == 200.0, "two runs of one task are one agent"
    assert found[key("nightcrew_budget_tokens_per_minute", agent="lint")] == 500.0
    assert [found[key("nightcrew_queue_depth", priority=name)] for name in ("interactive", "normal", "batch")] == [0, 4, 2]
    assert any(name == "nightcrew_build_info" for name, _ in found)


def test_agents_are_shown_by_what_they_do() -> None:
    living = (
        Living("r/a", 1, "running", False, Measured(samples=1, memory=10, processes=2, peak_gpu_memory=5, gpu_utilisation=0.5)),
        Living("s/a", 1, "running", False, Measured(samples=1, memory=1, processes=1)),
        Living("r/b", 1, "launching", False, Measured()),
        Living("r/c", 1, "running", True, Measured()),
        Living("r/d", 1, "collecting", False, Measured()),
        Living("r/e", 2, "running", False, Measured()),
    )
    said = {**SAID, "asks": [{"task": "r/a", "state": "waiting_permission", "since": 940.0}], "states": {"s/a": "thinking"}}
    moment = Moment(living, {"waiting": 3, "ready": 1}, {"shared": 2}, {"human": 1}, 1)
    found = shown(Found(Counts(), moment, {"ledger": True, "account": False}, (10, 40)), said=said)
    states = {dict(labels)["state"]: value for (name, labels), value in found.items() if name == "nightcrew_agents"}
    assert states == {"waiting_permission": 1, "thinking": 1, "starting": 1, "paused": 1, "ending": 1, "running": 1}
    assert found[key("nightcrew_agent_state", agent="a", state="thinking")] == 1
    assert found[key("nightcrew_agent_resident_memory_bytes", agent="a")] == 11 and found[key("nightcrew_agent_processes", agent="a")] == 3
    assert key("nightcrew_agent_resident_memory_bytes", agent="b") not in found, "nobody has measured it"
    assert found[key("nightcrew_agent_gpu_memory_peak_bytes", agent="a")] == 5
    assert found[key("nightcrew_agent_gpu_utilization_ratio", agent="a")] == 0.5
    assert (found[key("nightcrew_needs_human")], found[key("nightcrew_needs_human_oldest_seconds")]) == (1, 60)
    assert found[key("nightcrew_tasks_open", state="waiting")] == 3 and found[key("nightcrew_tasks_open", state="parked")] == 0
    assert found[key("nightcrew_source_up", source="account")] == 0 and found[key("nightcrew_disk_free_bytes")] == 10
    assert found[key("nightcrew_supervisor_up")] == 1 and found[key("nightcrew_slots")] == 8


def test_without_a_supervisor_nothing_is_claimed_of_it() -> None:
    found = shown(Found(Counts()))
    assert found[key("nightcrew_supervisor_up")] == 0
    assert not {"nightcrew_slots", "nightcrew_needs_human", "nightcrew_alerts"} & {name for name, _ in found}


def test_caps_on_dollars() -> None:
    nights = {"r": {"cap": 10.0, "usd": 4.0, "reserved": 1.0}, "s": {"cap": None, "usd": 9.0, "reserved": 0.0}}
    found = shown(Found(Counts()), cost_per_night=40.0, night_usd=12.0, nights=nights)
    assert found[key("nightcrew_budget_cap_usd", budget="crew")] == 40 and found[key("nightcrew_budget_spent_usd", budget="crew")] == 12
    assert found[key("nightcrew_budget_cap_usd", budget="night")] == 10 and found[key("nightcrew_budget_reserved_usd", budget="night")] == 1
    assert found[key("nightcrew_budget_spent_usd", budget="night")] == 4


def test_old_names_are_served_beside_the_new_ones_and_say_so() -> None:
    counts = Counts()
    counts.add(catalog.COST, "lint", "opus", by=0.25)
    counts.observe(catalog.QUEUE_WAIT, value=3.0)
    text = metrics_page.render(counts, metrics_page.of_page(Found(counts), None, EMPTY, {}, 0.0))
    found = samples(text)
    assert (
        found[key("sup_cost_usd_total", agent="lint", model="opus")] == found[key("nightcrew_cost_usd_total", agent="lint", model="opus")]
    )
    assert found[key("sup_queue_wait_seconds_bucket", le="5.0")] == 1 and found[key("sup_queue_depth", priority="batch")] == 0
    helps = {line.split()[2]: line for line in text.decode().splitlines() if line.startswith("# HELP sup_")}
    assert "sup_cost_usd_total" in helps and all("Deprecated: the name is nightcrew_" in line for line in helps.values())
    old = {metric.old for metric in catalog.every() if metric.old}
    assert old == {
        "sup_llm_requests_total", "sup_llm_tokens_total", "sup_cost_usd_total", "sup_unpriced_requests_total",
        "sup_budget_throttled_seconds_total",
        "sup_queue_wait_seconds", "sup_llm_time_to_first_token_seconds", "sup_llm_request_duration_seconds", "sup_llm_tokens_per_minute",
        "sup_budget_tokens_per_minute", "sup_queue_depth", "sup_breaker_state", "sup_breaker_transitions_total", "sup_limit_saturation",
        "sup_limit_exhausted_in_seconds", "sup_build_info",
    }, "every name of the release before"  # fmt: skip


def test_hostile_names_stay_in_their_labels() -> None:
    counts = Counts()
    evil = 'r/x"} 1\nnightcrew_forged{agent="y\\'
    counts.add(catalog.COST, evil.partition("/")[2], "m\\", by=1.0)
    found = Found(counts, Moment((Living(evil, 1, "running", False, Measured(samples=1, memory=1)),)))
    text = metrics_page.render(counts, metrics_page.of_page(found, None, EMPTY, {}, 0.0))
    names = {name for name, _ in samples(text)}
    assert "nightcrew_forged" not in names and b"\nnightcrew_forged" not in text
    assert 'x"} 1�nightcrew_forged{agent="y\\' in {dict(labels).get("agent") for _, labels in samples(text)}


def test_labels_are_bounded_and_name_no_run() -> None:
    living = tuple(Living(f"1121-k3f9/a{number}", 1, "running", False, Measured(samples=1, memory=1)) for number in range(500))
    view = TrafficView((), tuple(agent(f"1121-k3f9/a{number}") for number in range(500)), {}, {})
    found = shown(Found(Counts(), Moment(living)), view)
    agents = {dict(labels)["agent"] for name, labels in found if name == "nightcrew_agent_resident_memory_bytes"}
    assert len(agents) == MOST["agent"] + 1 and found[key("nightcrew_agent_resident_memory_bytes", agent="other")] == 400
    assert found[key("nightcrew_llm_tokens_per_minute", agent="other")] == 100.0 * 400
    assert not [labels for _, labels in found if any("k3f9" in value for _, value in labels)]


# The looks ------------------------------------------------------------------------------------------------------------------------------


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def counters(found: Found) -> dict[tuple[str, tuple[str, ...]], float]:
    flat = {(name, labels): value for name, family in found.counts.values.items() for labels, value in family.items()}
    spread = {(name, labels): float(sum(one.buckets)) for name, family in found.counts.spreads.items() for labels, one in family.items()}
    return flat | spread


@pytest.mark.asyncio
async def test_who_scrapes_often_makes_nobody_look_more_often(tmp_path: Path) -> None:
    clock = Clock()
    async with account(tmp_path / "gateway.db") as book:
        made = Looks(tmp_path, tmp_path / "ledger.db", book, clock)
        first, second = await asyncio.gather(made.fresh(), made.fresh())
        assert first is second and first.sources == {"ledger": True, "account": True}
        clock.now += metrics_page.EVERY_S - 1
        assert await made.fresh() is first
        clock.now += 1
        assert await made.fresh() is not first
        await made.close()


@pytest.mark.asyncio
async def test_what_the_supervisor_says_is_believed_for_a_while(tmp_path: Path) -> None:
    clock = Clock()
    async with account(tmp_path / "gateway.db") as book:
        made = Looks(tmp_path, tmp_path / "ledger.db", book, clock)
        made.told({**SAID, "overflows": 3})
        found = await made.fresh()
        assert found.counts.values[catalog.FS_OVERFLOWS.name] == {(): 3}
        made.told({**SAID, "overflows": 4})
        clock.now += metrics_page.EVERY_S
        await made.fresh()
        made.told({**SAID, "pid": 8, "overflows": 1})
        clock.now += metrics_page.EVERY_S
        assert (await made.fresh()).counts.values[catalog.FS_OVERFLOWS.name] == {(): 5}, "the next supervisor counts from nothing"
        said = [made.said]
        clock.now += metrics_page.TOLD_S
        assert said != [None] and [made.said, Looks(tmp_path, tmp_path / "ledger.db", book, clock).said] == [None, None]


@pytest.mark.asyncio
async def test_what_cannot_be_read_leaves_what_was_counted(tmp_path: Path) -> None:
    clock, ledger = Clock(), tmp_path / "ledger.db"
    async with account(tmp_path / "gateway.db") as book:
        made = Looks(tmp_path, ledger, book, clock)
        book.settle(await book.open(opened()), served())
        await book.keep("flushed", "")
        before = counters(await made.fresh())
        assert before
        ledger.write_bytes(b"no ledger at all")
        clock.now += metrics_page.EVERY_S
        found = await made.fresh()
        assert found.sources == {"ledger": False, "account": True} and counters(found) == before


@pytest.mark.asyncio
async def test_a_line_that_cannot_be_read_makes_nothing_count_twice(tmp_path: Path) -> None:
    clock, ledger = Clock(), tmp_path / "ledger.db"
    with contextlib.closing(sqlite.connect(ledger)) as db:
        db.execute("INSERT INTO journal (at, task, epoch, event) VALUES (0, 'r/a', 1, 'start')")
        db.execute("INSERT INTO journal (at, task, epoch, event, data) VALUES (0, 'r/a', 1, 'end done', '{half')")
        async with account(tmp_path / "gateway.db") as book:
            made = Looks(tmp_path, ledger, book, clock)
            found = await made.fresh()
            assert counters(found) == {} and found.sources["ledger"] is False
            db.execute("UPDATE journal SET data = '{}' WHERE event = 'end done'")
            clock.now += metrics_page.EVERY_S
            found = await made.fresh()
            assert found.counts.values[catalog.ATTEMPTS_STARTED.name] == {(): 1} and found.sources["ledger"] is True


@pytest.mark.asyncio
async def test_what_could_not_be_written_down_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    async def full(*_: object) -> None:
        raise DiskFull("cannot write the account")

    async with account(tmp_path / "gateway.db") as book:
        made = Looks(tmp_path, tmp_path / "ledger.db", book, clock)
        with monkeypatch.context() as patched:
            patched.setattr(book, "keep", full)
            with pytest.raises(DiskFull):
                await made.fresh()
        clock.now += metrics_page.EVERY_S
        before = counters(await made.fresh())
        book.turned_away(away())
        await book.keep("flushed", "")
        monkeypatch.setattr(book, "keep", full)
        clock.now += metrics_page.EVERY_S
        found = await made.fresh()
        assert counters(found) == before and found.sources["account"] is False


@pytest.mark.asyncio
async def test_counters_that_nobody_can_read_begin_anew(tmp_path: Path) -> None:
    async with account(tmp_path / "gateway.db") as book:
        await book.keep(metrics_page.NAME, '{"half": ')
        assert counters(await Looks(tmp_path, tmp_path / "ledger.db", book, Clock()).fresh()) == {}


def goes_back(before: dict[Any, float], after: dict[Any, float]) -> Iterable[Any]:
    return [name for name, value in before.items() if after.get(name, 0.0) < value]


@pytest.mark.asyncio
async def test_no_counter_goes_back_whenever_a_gateway_dies(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gateways come and go: some die between the look and its writing, some with requests open. Each is followed by another."""
    clock, path, requests, turned, chance = Clock(), tmp_path / "gateway.db", 0, 0, random.Random(seed)
    before: dict[Any, float] = {}
    for _ in range(12):
        book = Account(path, Wall())
        book.start(price)
        made, ids = Looks(tmp_path, tmp_path / "ledger.db", book, clock), list[int]()
        for _ in range(chance.randrange(1, 6)):
            ids.append(await book.open(opened()))
            requests += 1
            if chance.random() < 0.5:
                book.settle(ids.pop(), served())
            if chance.random() < 0.3:
                book.turned_away(away())
                turned += 1
            if chance.random() < 0.5:
                clock.now += metrics_page.EVERY_S
                after = counters(await made.fresh())
                assert not goes_back(before, after)
                before = after
        if chance.random() < 0.5:  # it dies before what it looked at is written down
            with monkeypatch.context() as patched:

                async def lost(*_: object) -> None:
                    raise LedgerError("it was killed")

                patched.setattr(book, "keep", lost)
                clock.now += metrics_page.EVERY_S
                with contextlib.suppress(LedgerError):  # it has shown nothing by now, and shows nothing
                    assert not goes_back(before, counters(await made.fresh()))
        await book.close()  # what is open stays open: the next one charges it
    last = Account(path, Wall())
    last.start(price)
    found = counters(await Looks(tmp_path, tmp_path / "ledger.db", last, clock).fresh())
    await last.close()
    assert not goes_back(before, found)
    assert sum(value for (name, _), value in found.items() if name == catalog.LLM_REQUESTS.name) == requests + turned
