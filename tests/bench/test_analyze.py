"""`nightcrew bench analyze`: the pool gets the very commands that the crew had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nightcrew.plugins.bench import analyze, crews
from supervisor.host import cgroups
from supervisor.kernel.errors import ToolFailed
from tests.host.cgroup_kit import group_of
from tests.support import make_repository


def report(**alone_s: float) -> dict[str, Any]:
    """Of a run whose analysts took so many seconds alone."""
    agents = [{"name": name, "alone_s": seconds} for name, seconds in alone_s.items()]
    figures = {"sequential": {"elapsed_s": 9.0}, "per_agent": agents}
    return {"figures": figures, "repository": {"name": "shop"}, "summary": {"parallel": "tests failed or ran more than once."}}


def outcome(name: str, **params: str) -> dict[str, Any]:
    return {"name": name, "params": params}


def test_the_pool_gets_what_the_crew_was_asked_for_longest_first() -> None:
    ran = [
        outcome("alone-tests", ANALYST="tests", ANALYST_PHASE="baseline"),
        outcome("tests", ANALYST="tests", ANALYST_EXCLUDE="vendor/*"),
        outcome("security-1", ANALYST="security", ANALYST_SHARD="1/2"),
        outcome("security-2", ANALYST="security", ANALYST_SHARD="2/2"),
        outcome("lead"),
    ]
    assert analyze.orders(report(**{"tests": 0.5, "security-1": 2.0, "security-2": 3.0}), ran) == [
        {"ANALYST": "security", "ANALYST_SHARD": "2/2"},
        {"ANALYST": "security", "ANALYST_SHARD": "1/2"},
        {"ANALYST": "tests", "ANALYST_EXCLUDE": "vendor/*"},
    ]


@pytest.mark.parametrize("figures", [None, {"sequential": None, "per_agent": []}])
def test_where_nothing_can_be_compared_there_is_no_figure(figures: dict[str, Any] | None) -> None:
    with pytest.raises(ToolFailed, match="nothing to compare shop: tests failed or ran more than once"):
        analyze.orders({**report(), "figures": figures}, [])


def test_a_round_measures_all_three(tmp_path: Path) -> None:
    source = make_repository(
        tmp_path / "shop", {"a.py": "x = 1\n", "vendor/b.py": "x = 1\n", "nightcrew.toml": '[analyze]\nexclude = ["vendor"]\n'}
    )
    said: list[str] = []
    found = crews.report(analyze, analyze.Options(str(source), 1), tmp_path, said.append)
    assert (found["repo"], found["files"], found["agents"], found["spoilt"]) == ("shop", 1, 5, [])
    assert found["pool_s"] > 0 and found["sequential_s"] > 0 and found["ratio_to_pool"] > 0
    assert len(found["rounds"]) == 1 and "plain pool" in analyze.table(found)
    assert [path.name for path in tmp_path.iterdir()] == ["shop"], "it works in a place of its own and removes it"


def test_the_pool_has_the_share_of_the_processor_that_a_crew_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    support = cgroups.probe()
    if not (support.shares and support.cpu):
        pytest.skip("this host has no control groups that share the processor and count its time")
    source = make_repository(tmp_path / "shop", {"a.py": "x = 1\n"})
    with group_of(support) as group:  # in place of the class's group, which counts nothing and has others' agents in it

        def of_class(_: cgroups.Support, word: str, weight: int) -> cgroups.Group:
            assert (word, weight) == ("normal", 50)
            return group

        monkeypatch.setattr(cgroups, "of_class", of_class)
        took, cpu = analyze.of_analysts(source, [{"ANALYST": "tests"}], 1)
        assert took > 0 and cpu > 0 and group.cpu_s() > 0, "it ran in the group of the crew's class"
