"""`nightcrew bench map`: as small as it gets every figure is there, the output is that of a sequential run, and nothing stays behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nightcrew.plugins.bench import crews
from nightcrew.plugins.bench import map as fixtures
from nightcrew.plugins.bench import map as measure
from nightcrew.plugins.bench.map import Options
from tests.bench.test_spawn import users_of

TINY = Options(files=60, agents=3, work_s=8.0, crashes=0.1, pools=1, seed=3)
KEYS = {"files", "agents", "wall_s", "pool_wall_s", "efficiency", "crashes_injected"}


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_every_figure_is_there(tmp_path: Path) -> None:
    said: list[str] = []
    report: dict[str, Any] = json.loads(json.dumps(crews.report(measure, TINY, tmp_path, said.append)))
    assert report.keys() >= KEYS
    assert (report["files"], report["agents"]) == (60, 3)
    assert report["crashes_injected"] > 0
    assert min(report["wall_s"], report["pool_wall_s"], report["efficiency"]) > 0
    assert "efficiency" not in measure.table(report) and "of a pool's throughput" in measure.table(report)
    assert users_of(tmp_path) == [] and list(tmp_path.iterdir()) == []


def test_what_is_expected_is_computed_from_the_files(tmp_path: Path) -> None:
    place = fixtures.make(tmp_path, 5, seed=1, rounds=1, crashes=0.5)
    names = fixtures.mapped_files(place)
    assert len(names) == 5 and [name for name, _ in fixtures.expected_results(place, names)] == names
    assert measure._differs([("a", [1])], [("a", [2])]) == "1 lines for 1, different from 0 on"
    assert fixtures.rounds_for(0.001) >= 1
