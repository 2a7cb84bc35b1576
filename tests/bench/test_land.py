"""`nightcrew bench land`: the planted conflicts are the ones that are found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nightcrew.plugins.bench import crews, land
from supervisor.kernel.errors import NightcrewError
from supervisor.results import trial_merges

SMALL = land.Options(branches=7, files=20, updates=1, rounds=1)
TRAIN = {"results": 4, "gate_s": 1.0, "wall_s": 2.0, "sequential_wall_s": 3.0, "landed": 2, "ejected": 2, "wrong": 0}


@pytest.fixture(autouse=True)
def no_train(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A train is measured by the test that is about it."""
    if "planted_results" not in request.node.name:
        monkeypatch.setattr(land, "measure_land_train", lambda *_: TRAIN)


def test_its_figures(tmp_path: Path) -> None:
    report = crews.report(land, SMALL, tmp_path, lambda _: None)
    assert (report["conflicts"], report["pairs"], report["files"]) == (2, 28, 20)
    assert report["matrix_ms"].keys() == {"7_branches"} and report["update_ms"] > 0
    assert "7 branches of 20 files" in land.table(report)


def test_a_conflict_that_is_not_found_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = trial_merges.look
    monkeypatch.setattr(trial_merges, "look", lambda *asked: replace(real(*asked), known={}))
    with pytest.raises(NightcrewError, match="planted"):
        crews.report(land, SMALL, tmp_path, lambda _: None)


def test_exactly_the_planted_results_are_left_out_of_a_train(tmp_path: Path) -> None:
    options = land.LandTrainOptions(results=4, planted=1, loops=1)
    train = land.measure_land_train(options, tmp_path, lambda _: None)
    assert (train["results"], train["landed"], train["ejected"], train["wrong"]) == (4, 2, 2, 0)
    assert train["gate_s"] > 0 and train["wall_s"] > 0 and train["sequential_wall_s"] > 0
