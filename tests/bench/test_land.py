"""`nightcrew bench land`: the planted conflicts are the ones that are found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.bench import land
from supervisor.core.errors import NightcrewError
from supervisor.daemon import conflict_matrix

SMALL = land.Options(branches=7, files=20, updates=1, rounds=1)


def test_its_figures(tmp_path: Path) -> None:
    report = land.measure(SMALL, tmp_path, lambda _: None)
    assert (report["conflicts"], report["pairs"], report["files"]) == (2, 28, 20)
    assert report["matrix_ms"].keys() == {"7_branches"} and report["update_ms"] > 0
    assert "7 branches of 20 files" in land.table(report)


def test_a_conflict_that_is_not_found_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = conflict_matrix.look
    monkeypatch.setattr(conflict_matrix, "look", lambda *asked: replace(real(*asked), known={}))
    with pytest.raises(NightcrewError, match="planted"):
        land.measure(SMALL, tmp_path, lambda _: None)
