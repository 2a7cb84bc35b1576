"""`/metrics`, parsed as Prometheus parses it."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from supervisor.core.gateway import commands
from supervisor.core.gateway.types import AgentView, BreakerState, DimensionView, PoolKey, PoolView, TrafficView, Usage
from supervisor.core.states import TaskClass
from supervisor.gateway.account.rows import NEVER_SENT, REFUSED
from supervisor.gateway.metrics import AGENTS_MAX, Metrics
from tests.gateway.account.kit import LANE, away, opened, served

POOL = PoolKey("work", LANE)
EMPTY = TrafficView((), (), {}, {})
Key = tuple[str, frozenset[tuple[str, str]]]


def agent(name: str, **facts: object) -> AgentView:
    shape = {
        "task_class": TaskClass.NORMAL, "used_tpm": 100.0, "share_tpm": 500.0, "cap_tpm": None, "cost_usd": None, "in_flight": 1,
        "queued": 2, "place": 1, "waiting_s": 3.0,
    }  # fmt: skip
    return AgentView(name, **{**shape, **facts})  # type: ignore[arg-type]  # by keyword


def key(name: str, **labels: str) -> Key:
    return name, frozenset(labels.items())


def samples(metrics: Metrics) -> dict[Key, float]:
    families = text_string_to_metric_families(metrics.render().decode())
    return {key(sample.name, **sample.labels): sample.value for family in families for sample in family.samples}


def test_what_was_served_is_counted() -> None:
    metrics = Metrics(lambda: EMPTY)
    metrics.settled(opened(queued_ms=3000.0), served(usage=Usage(1000, 50, 4000, 0), cost_usd=0.25, first_byte_ms=4000.0, total_ms=9000.0))
    metrics.settled(opened(), served(cost_usd=None))
    found = samples(metrics)
    of = {"agent": "lint", "model": "claude-opus-4-8"}
    assert found[key("sup_llm_requests_total", **of, code="200")] == 2
    assert found[key("sup_llm_tokens_total", **of, type="input")] == 2000
    assert found[key("sup_llm_tokens_total", **of, type="cache_read")] == 8000
    assert found[key("sup_cost_usd_total", **of)] == 0.25
    assert found[key("sup_unpriced_requests_total", **of)] == 1
    assert found[key("sup_budget_throttled_seconds_total", agent="lint")] == 4.5
    assert found[key("sup_queue_wait_seconds_count")] == 2 and found[key("sup_queue_wait_seconds_sum")] == 4.5
    assert found[key("sup_queue_wait_seconds_bucket", le="2.5")] == 1
    assert found[key("sup_llm_time_to_first_token_seconds_sum")] == 6.5
    assert found[key("sup_llm_request_duration_seconds_count")] == 2


def test_what_was_refused_is_no_turn_and_what_was_never_sent_is_nothing() -> None:
    metrics = Metrics(lambda: EMPTY)
    metrics.settled(opened(), served(end=REFUSED, status=429, usage=Usage(), cost_usd=0.0))
    metrics.settled(opened(), served(end=REFUSED, status=None, usage=Usage(), cost_usd=None))
    metrics.settled(opened(), served(end=NEVER_SENT, status=None, usage=Usage(), cost_usd=0.0))
    metrics.turned_away(away(waited_ms=2000.0))
    found = samples(metrics)
    assert {labels: value for labels, value in found.items() if labels[0] == "sup_llm_requests_total"} == {
        key("sup_llm_requests_total", agent="lint", model="claude-opus-4-8", code="429"): 1,
        key("sup_llm_requests_total", agent="lint", model="claude-opus-4-8", code="none"): 1,
        key("sup_llm_requests_total", agent="lint", model="opus-4", code="own_429"): 1,
    }
    assert found[key("sup_queue_wait_seconds_count")] == 1 and found[key("sup_llm_request_duration_seconds_count")] == 0
    assert not [name for name, _ in found if name.startswith("sup_unpriced") and name.endswith("_total")]


@pytest.mark.parametrize(("state", "value"), [(BreakerState.CLOSED, 0), (BreakerState.HALF_OPEN, 1), (BreakerState.OPEN, 2)])
def test_the_gauges_are_of_the_moment(state: BreakerState, value: int) -> None:
    dimension = DimensionView("input", 80_000.0, 20_000.0, 80_000.0, 5000.0, 100.0, 0.75)
    view = TrafficView(
        pools=(PoolView(POOL, state, "", 12.5, None, 3, (dimension,), ()),),
        agents=(agent("1121-k3f9/lint"), agent("1122-aaaa/lint", task_class=TaskClass.BATCH, share_tpm=None), agent("1121-k3f9/docs")),
        queued={LANE: 6},
        delay_s={LANE: 9.0},
    )
    shown = EMPTY
    metrics = Metrics(lambda: shown)
    assert not [name for name, _ in samples(metrics) if name == "sup_breaker_state"]
    shown = view
    found = samples(metrics)
    assert found[key("sup_breaker_state", scope=str(POOL))] == value
    assert found[key("sup_limit_saturation", scope=str(POOL), limit="input")] == 0.75
    assert found[key("sup_limit_exhausted_in_seconds", scope=str(POOL))] == 12.5
    assert found[key("sup_llm_tokens_per_minute", agent="lint")] == 200.0, "two runs of one task are one agent"
    assert found[key("sup_budget_tokens_per_minute", agent="lint")] == 500.0
    assert [found[key("sup_queue_depth", priority=name)] for name in ("interactive", "normal", "batch")] == [0, 4, 2]
    assert any(name == "sup_build_info" for name, _ in found)


def test_changes_of_breakers_are_counted() -> None:
    metrics = Metrics(lambda: EMPTY)
    for after in (BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.OPEN):
        metrics.changed(commands.Journal(POOL, "limit", BreakerState.CLOSED, after, "429", {}))
    found = samples(metrics)
    assert found[key("sup_breaker_transitions_total", scope=f"{POOL}/limit", to="open")] == 2
    assert found[key("sup_breaker_transitions_total", scope=f"{POOL}/limit", to="half-open")] == 1


def test_labels_are_bounded_and_name_no_run() -> None:
    metrics = Metrics(lambda: TrafficView((), tuple(agent(f"1121-k3f9/a{number}") for number in range(500)), {}, {}))
    for number in range(500):
        metrics.settled(opened(agent=f"1121-k3f9/a{number}", model=f"m{number}", session="s-secret"), served())
    text = metrics.render().decode()
    found = samples(metrics)
    agents = {dict(labels)["agent"] for name, labels in found if name == "sup_llm_requests_total"}
    assert agents == {f"a{number}" for number in range(AGENTS_MAX)} | {"other"}
    assert found[key("sup_llm_tokens_per_minute", agent="other")] == 100.0 * (500 - AGENTS_MAX)
    assert len(found) < 4000 and "k3f9" not in text and "s-secret" not in text
    assert sum(value for (name, _), value in found.items() if name == "sup_llm_requests_total") == 500


def test_two_gateways_of_one_process_do_not_meet() -> None:
    first, second = Metrics(lambda: EMPTY), Metrics(lambda: EMPTY)
    first.turned_away(away())
    assert samples(second)[key("sup_queue_wait_seconds_count")] == 0
