"""The three files on disk."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from supervisor.kernel.errors import NightcrewError
from supervisor.views.report.pages import write
from tests.views.report.kit import hostile, sample


def test_three_private_files_that_can_be_written_again(tmp_path: Path) -> None:
    where = tmp_path / "new" / "report"
    write(hostile(), where)
    page = write(sample("large"), where)
    assert page == where / "report.html"
    assert sorted(path.name for path in where.iterdir()) == ["report.html", "report.json", "report.md"]
    for path in where.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads((where / "report.json").read_text()) == sample("large")
    assert page.read_text().startswith("<!doctype html>")
    assert (where / "report.md").read_text().startswith("# Analysis of django\n")


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("in the way")
    with pytest.raises(NightcrewError):
        write(sample("ordinary"), tmp_path / "report")
