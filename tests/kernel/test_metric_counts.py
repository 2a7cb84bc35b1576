"""Counters that outlive processes: bounded labels, growing values, and the form in which they are kept."""

from __future__ import annotations

import json

import pytest

from supervisor.features.metrics import catalog
from supervisor.features.metrics.catalog import Counts, Entry, MetricType
from supervisor.kernel.account import Measured
from supervisor.kernel.states import TaskState


def values(found: Counts, metric: catalog.Metric) -> dict[tuple[str, ...], float]:
    return found.values.get(metric.name, {})


def test_names_and_labels_are_such_as_prometheus_wants_them() -> None:
    metrics = list(catalog.every())
    assert len({metric.name for metric in metrics} | {metric.old for metric in metrics if metric.old}) == len(metrics) + sum(
        bool(metric.old) for metric in metrics
    )
    for metric in metrics:
        assert metric.name.startswith("nightcrew_") and metric.name.endswith("_total") == (metric.type is MetricType.COUNTER)
        assert (metric.type is MetricType.HISTOGRAM) == bool(metric.buckets) and list(metric.buckets) == sorted(metric.buckets)
        assert not {"task", "run", "session", "epoch", "attempt"} & set(metric.labels)
        assert all(len(fixed) == len(metric.labels) for fixed in metric.fixed)
        assert metric.help.endswith(".") and metric.help[0].isupper() | metric.help[0].isdigit()


def test_counted_things_are_kept_and_read_again() -> None:
    found = Counts()
    found.add(catalog.COST, "lint", "opus", by=0.5)
    found.add(catalog.COST, "lint", "opus", by=-3.0)
    found.observe(catalog.QUEUE_WAIT, value=0.1)
    found.observe(catalog.QUEUE_WAIT, value=0.11)
    found.observe(catalog.QUEUE_WAIT, value=9999.0)
    found.observe(catalog.WAIT_SECONDS, "lease", value=-1.0)
    found.read.journal, found.read.requests.open = 7, {3, 1}
    found.ratchet(catalog.CPU, "lint", of="r/lint:1", what="cpu", to=4.0)
    spread = found.spreads[catalog.QUEUE_WAIT.name][()]
    assert spread.buckets[:3] == [1, 1, 0] and spread.buckets[-1] == 1 and spread.total == pytest.approx(9999.21)
    again = Counts.from_json(found.to_json())
    assert again.to_json() == found.to_json()
    assert values(again, catalog.COST) == {("lint", "opus"): 0.5}
    again.ratchet(catalog.CPU, "lint", of="r/lint:1", what="cpu", to=5.0)
    assert values(again, catalog.CPU) == {("lint",): 5.0} and values(found, catalog.CPU) == {("lint",): 4.0}


def test_what_another_version_kept_is_read_as_far_as_it_fits() -> None:
    found = Counts()
    found.add(catalog.DEADLOCKS, "refused")
    found.observe(catalog.SLOT_WAIT, value=1.0)
    shape = json.loads(found.to_json())
    shape["values"] |= {"nightcrew_gone_total": [[1]], catalog.TASKS_ENDED.name: [["done", "more", 3]], catalog.SLOTS.name: [[3]]}
    shape["spreads"] |= {"nightcrew_gone_seconds": [], catalog.QUEUE_WAIT.name: [[[1, 2], 3.0]]}
    again = Counts.from_json(json.dumps(shape))
    assert again.values == {catalog.DEADLOCKS.name: {("refused",): 1.0}, catalog.TASKS_ENDED.name: {}}
    assert set(again.spreads) == {catalog.SLOT_WAIT.name, catalog.QUEUE_WAIT.name} and not again.spreads[catalog.QUEUE_WAIT.name]


def test_no_label_grows_without_bound() -> None:
    found = Counts()
    for number in range(500):
        found.add(catalog.COST, f"a{number}", f"m{number}")
    family = values(found, catalog.COST)
    assert sum(family.values()) == 500
    assert (
        len({agent for agent, _ in family}) == catalog.MOST["agent"] + 1
        and len({model for _, model in family}) == catalog.MOST["model"] + 1
    )
    for agent in range(catalog.MOST["agent"]):
        for model in range(catalog.MOST["model"]):
            found.add(catalog.COST, f"a{agent}", f"m{model}")
    assert len(values(found, catalog.COST)) <= catalog.SERIES_MAX + 1 and sum(values(found, catalog.COST).values()) == 5500
    again = Counts.from_json(found.to_json())
    again.add(catalog.COST, "new", "m1")
    assert ("new", "m1") not in values(again, catalog.COST), "who is apart was decided once"


def test_a_label_is_printable_and_short() -> None:
    assert catalog.tidy('x"\n\x1b[31m\ud800') == 'x"��[31m�'
    assert catalog.tidy("") == "none" and len(catalog.tidy("x" * 1000)) == catalog.LABEL_MAX
    assert catalog.agent_name("1121-k3f9/lint") == "lint" and catalog.agent_name("lint") == "lint"


def test_what_an_attempt_takes_is_counted_once_while_it_lives_and_at_its_end() -> None:
    found = Counts()
    catalog.living(found, "r/a", 1, Measured(cpu_s=10.0, agent_cpu_s=4.0))
    catalog.living(found, "r/a", 1, Measured(cpu_s=9.0, agent_cpu_s=4.0))
    catalog.living(found, "r/b", 1, Measured())
    catalog.living(found, "r/c", 1, Measured(cpu_s=1.0))
    assert values(found, catalog.CPU) == {("a",): 10.0, ("c",): 1.0} and values(found, catalog.TOOL_CPU) == {("a",): 6.0}
    account = {"cpu_s": 12.0, "tool_cpu_s": 12.0, "human_s": 30.0, "slot_queue_s": 2.0, "wall_s": 100.0}
    catalog.entry(found, Entry("end done", "r/a", 1, {"task": "done"}, account))
    catalog.entry(found, Entry("end lost", "r/b", 1, {"task": "ready"}, {"cpu_s": None, "human_s": None}))
    assert values(found, catalog.CPU)[("a",)] == 12.0 and values(found, catalog.TOOL_CPU)[("a",)] == 12.0
    assert values(found, catalog.HUMAN_WAIT) == {("a",): 30.0}
    assert values(found, catalog.ATTEMPTS_ENDED) == {("done",): 1.0, ("lost",): 1.0}
    assert values(found, catalog.TASKS_ENDED) == {("done",): 1.0}, "the lost one runs again"
    assert sum(found.spreads[catalog.SLOT_WAIT.name][()].buckets) == 1 and found.spreads[catalog.ATTEMPT_SECONDS.name][()].total == 100.0
    catalog.living(found, "r/a", 2, Measured(cpu_s=1.0))
    assert values(found, catalog.CPU)[("a",)] == 13.0, "its next attempt begins at nothing"
    found.forget(["r/a:2"])
    assert set(found.seen) == {"r/a:2"}


def test_each_event_of_the_journal_that_counts() -> None:
    found = Counts()
    for event, task in (
        ("start", "r/a"),
        ("skipped", "r/b"),
        ("skipped", ""),
        ("wait refused", "r/a"),
        ("wait given up", "r/a"),
        ("mail sent", "r/a"),
    ):
        catalog.entry(found, Entry(event, task, 1, {}))
    catalog.entry(found, Entry("night refused", "", 0, {}))
    for night in ({"done": 2}, {"done": 1, "failed": 1}, {"expired": 1}, {}):
        catalog.entry(found, Entry("night ended", "", 0, {}, night=night))
    assert values(found, catalog.ATTEMPTS_STARTED) == {(): 1.0} and values(found, catalog.TASKS_ENDED) == {(TaskState.SKIPPED,): 1.0}
    assert values(found, catalog.DEADLOCKS) == {("refused",): 1.0, ("given_up",): 1.0}
    assert values(found, catalog.NIGHTS) == {("refused",): 1.0, ("done",): 1.0, ("partly",): 1.0, ("failed",): 1.0}
