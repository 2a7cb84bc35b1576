"""`nightcrew bench queue`: as small as it gets every figure is there, what is not installed is said, and nothing stays behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nightcrew.plugins.bench.crews import until
from nightcrew.plugins.bench.queue import measure, redis_queue
from nightcrew.plugins.bench.queue.measure import Crowd, Options, Size
from tests.bench.test_spawn import users_of

TINY = Size(waiting=40, starts=4, attempts=10, rounds=1)
ENGINE = {"enqueue_10k_s", "start_ms", "attempts_per_s", "decide_us"}


def test_the_queue_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "DECISIONS", 20)
    report: dict[str, Any] = json.loads(json.dumps(measure.measure_engine(tmp_path, TINY)))
    assert report.keys() == ENGINE
    assert 0 < report["start_ms"]["p50"] <= report["start_ms"]["p99"]
    assert report["decide_us"].keys() == {"100", "10000"}
    assert min(report["enqueue_10k_s"], report["attempts_per_s"], *report["decide_us"].values()) > 0
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


@pytest.mark.parametrize(("many", "night_s"), [(2000, 3 * 3600.0), pytest.param(10_000, 8 * 3600.0, marks=pytest.mark.soak)])
def test_the_order_of_starts_is_as_promised(monkeypatch: pytest.MonkeyPatch, many: int, night_s: float) -> None:
    monkeypatch.setattr(measure, "MANY", many)
    monkeypatch.setattr(measure, "NIGHT_S", night_s)
    fair = measure.fair()
    assert 0.6 <= fair["share_2_to_1"] <= 0.73
    assert fair["lone_turnovers"] <= 2
    assert fair["worst_s"] <= fair["ageing_bound_s"]
    assert measure.burst()["drain_s"] <= measure.MEANS_S


def test_redis_beside_it(tmp_path: Path) -> None:
    if why := redis_queue.absent():
        pytest.skip(why)
    with redis_queue.serving(tmp_path) as port:
        assert redis_queue.enqueue_per_s(port, 50) > 0 < redis_queue.claim_per_s(port, 50)
        lost = measure.of_redis(tmp_path, port, 8, 1, seed=1)
        begun = [line for file in tmp_path.glob("started*") for line in file.read_text().split()]
        assert len(begun) == 8 and lost == 8 - int(redis_queue.client(port).hlen(redis_queue.RESULTS))
    assert users_of(tmp_path) == []


def test_without_redis_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said: list[str] = []
    assert measure.redis_beside(tmp_path, Options(), said.append) is None
    assert "redis-server is not installed" in said[0]


@pytest.mark.soak
def test_the_whole_report(tmp_path: Path) -> None:
    options = Options(engine=TINY, kills=3, killed_tasks=12, crowd=Crowd(agents=2, rounds=1, samples=1, window_s=0.3))
    report = json.loads(json.dumps(measure.measure(options, tmp_path, print)))
    assert report.keys() == {*ENGINE, "burst", "fair", "lost_after_30_kills", "redis", "crowd"}
    assert report["lost_after_30_kills"] == 0
    assert "10,000 tasks accepted" in measure.table(report)
    assert list(tmp_path.iterdir()) == [] and users_of(tmp_path) == []
