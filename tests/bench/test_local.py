"""`nightcrew bench local`: it measures real requests of a scripted engine, straight and through a gateway."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nightcrew.plugins.bench import crews, gateway
from nightcrew.plugins.bench import local as measure
from nightcrew.plugins.bench.local import Options
from supervisor.features.capacity.what_if import _measured
from supervisor.kernel.errors import ToolFailed, UsageError

SMALL = Options(streams=(1, 2), planned=(3,), seconds=0.2, rounds=1, pairs=1, burst=3, prefix=50)


@contextmanager
def engine(slots: int) -> Iterator[str]:
    port = gateway.free_port()
    argv = [sys.executable, "-m", "tests.engines.scripted", "--port", str(port), "-np", str(slots)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()  # it listens
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def test_a_small_run_has_every_figure_and_feeds_the_planner(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with engine(2) as url:
        report = crews.report(measure, replace(SMALL, url=url), place, print)
    assert report["model"] == "scripted"
    assert report["tokens_per_s"].keys() == {"1", "2"}
    assert report["prefix"]["hit_ratio"] > 0.9, "the second request finds all of its prompt but a token"
    assert all(report[name] > 0 for name in ("gain", "burst_50_ratio", "slot_freed_ms_p50", "gateway_cpu_percent_of_engine"))
    # Three agents share two slots: they are predicted to get what two streams got.
    assert report["planner"]["3"]["predicted"] == pytest.approx(report["tokens_per_s"]["2"], abs=0.2)
    assert report["cache_hit_ms_p50"] > 0
    assert report["not_measured"].keys() <= {"across_slots_cpu_ratio"}, "it computes nothing, so its processor time may be none"
    assert not list(place.iterdir()), "nothing stays"
    file = tmp_path / "local.json"
    file.write_text(json.dumps(report))
    speed, prompt_per_s = _measured(file)
    assert 2 / speed.step_s(2) == pytest.approx(report["tokens_per_s"]["2"])
    assert prompt_per_s == report["prompt_tokens_per_s"]
    assert "not_measured" in measure.table(report)


def test_an_engine_that_does_not_answer_ends_the_measurement(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="the engine did not answer"):
        crews.report(measure, Options(url=f"http://127.0.0.1:{gateway.free_port()}", burst=1), tmp_path, print)


def test_without_an_engine_it_says_what_to_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTCREW_HOME", str(tmp_path / "home"))
    with pytest.raises(UsageError, match="no engine to measure nothing"):
        measure.measure(Options(engine="nothing"), tmp_path, print)
