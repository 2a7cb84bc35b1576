"""`nightcrew bench queue`: as small as it gets every figure is there, and nothing stays behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nightcrew.plugins.bench import crews
from nightcrew.plugins.bench import queue as measure
from nightcrew.plugins.bench.crews import until
from nightcrew.plugins.bench.figures import rows
from nightcrew.plugins.bench.queue import Crowd, Options, Size
from tests.bench.test_spawn import users_of

TINY = Size(waiting=40, starts=4, attempts=10, rounds=1)
ENGINE = {"enqueue_10k_s", "start_ms", "attempts_per_s"}


def test_the_queue_itself(tmp_path: Path) -> None:
    report: dict[str, Any] = json.loads(json.dumps(measure.measure_engine(tmp_path, TINY)))
    assert report.keys() == ENGINE
    assert 0 < report["start_ms"]["p50"] <= report["start_ms"]["p99"]
    assert min(report["enqueue_10k_s"], report["attempts_per_s"]) > 0
    assert users_of(tmp_path) == []


def test_attempts_with_fake_doors_are_attempts(tmp_path: Path) -> None:
    """Each has its start, its end and its release in the ledger, and dies with its supervisor: the next one runs it again."""
    with measure.supervised(tmp_path / "home", 2) as one:
        one.submit(measure.tasks(3, 0.0))
        until(lambda: one.ended() == 3, "three attempts")
        one.submit(measure.tasks(1, 3600.0))
        until(lambda: one.query("SELECT count(*) FROM attempt WHERE worktree IS NOT NULL") == 4, "the last one to begin")
    again = measure.FakeSupervisor(tmp_path / "home", 2)
    try:
        again.until_ready()
        until(lambda: one.query("SELECT count(*) FROM attempt WHERE end = 'lost'") == 1, "what died to be seen")
        assert one.query("SELECT count(*) FROM attempt WHERE end = 'done'") == 3
    finally:
        again.end()


@pytest.mark.soak
def test_the_whole_report(tmp_path: Path) -> None:
    options = Options(engine=TINY, crowd=Crowd(agents=2, rounds=1, samples=1, window_s=0.3))
    report = json.loads(json.dumps(crews.report(measure, options, tmp_path, print)))
    assert report.keys() == {*ENGINE, "crowd", "options", "machine"}
    assert "10,000 tasks accepted" in next(rows(measure.AIMS, report))
    assert list(tmp_path.iterdir()) == [] and users_of(tmp_path) == []
