from __future__ import annotations

import pytest

from nightcrew.plugins.bench.crews import in_turns
from nightcrew.plugins.bench.figures import Aim, missed, quantile, rows
from nightcrew.plugins.bench.spawn import summary, table


def test_quantile_is_the_nearest_rank() -> None:
    values = [4.0, 1.0, 3.0, 2.0]
    assert [quantile(values, share) for share in (0.0, 0.25, 0.5, 0.51, 0.99, 1.0)] == [1.0, 1.0, 2.0, 3.0, 4.0, 4.0]
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


def test_summary_counts_agents_over_all_bursts_and_bursts_by_their_last_agent() -> None:
    found = summary([(0.1, 0.2), (0.1, 0.6), (0.1, 0.4)])
    assert (found["ms_p50"], found["ms_p99"], found["all_up_s"], found["rounds"]) == (150.0, 600.0, 0.4, 3)


def test_the_table_marks_an_aim_that_is_missed_and_leaves_out_what_was_not_measured() -> None:
    slow = {"ms_p50": 300.0, "ms_p99": 300.0, "all_up_s": 0.3}
    idle = {"cpu_percent": 1.0, "rss_mb": 50.0, "runner_unshared_mb": 3.0}
    report = {"spawn": {"1": slow}, "plain": {"1": slow}, "ratio": 1.0, "idle": idle, "adopt_s": 1.0, "status_ms": 90.0}
    lines = table(report).splitlines()
    assert [line.split("  ")[0] for line in lines if line.endswith("MISSED")] == ["one agent to its first byte, p50"]
    assert not any(line.startswith("50 agents up") for line in lines)


def test_an_aim_is_missed_on_its_own_side_and_never_by_what_was_not_measured() -> None:
    aims = (Aim("a.few", 2, name="few"), Aim("a.many", 2, at_least=True, name="many"), Aim("shown", name="shown"))
    assert missed(aims, {"a": {"few": 3, "many": 3}, "shown": 9}) == ["a.few"]
    assert missed(aims, {"a": {"few": 1, "many": 1}, "shown": 9}) == ["a.many"]
    assert missed(aims, {"a": None}) == []
    few, many, shown = rows(aims, {"a": {"few": 3, "many": 2.5}}, {"a": {"few": 1}})
    assert few.split() == ["few", "3", "1", "aim", "<=", "2", "MISSED"]
    assert many.split() == ["many", "2.50", "not", "measured", "aim", ">=", "2"]
    assert shown.split() == ["shown", "not", "measured", "not", "measured"]


def test_ways_take_turns_forwards_and_backwards() -> None:
    order: list[str] = []
    found = in_turns({name: lambda name=name: order.append(name) for name in "ab"}, 3, lambda number: order.append(str(number)))  # type: ignore[misc]
    assert "".join(order) == "1ab2ba3ab"
    assert {name: len(results) for name, results in found.items()} == {"a": 3, "b": 3}
