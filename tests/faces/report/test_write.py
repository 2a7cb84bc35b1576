"""The three files on disk."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from supervisor.kernel.errors import NightcrewError
from supervisor.views.report.pages import write
from tests.faces.report.kit import hostile, sample


def test_three_private_files_that_can_be_written_again(tmp_path: Path) -> None:
    where = tmp_path / "new" / "report"
    write(hostile(), where)
    paths = write(sample("large"), where)
    assert sorted(where.iterdir()) == sorted((paths.html, paths.json, paths.markdown))
    for path in where.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(paths.json.read_text()) == sample("large")
    assert paths.html.read_text().startswith("<!doctype html>")
    assert paths.markdown.read_text().startswith("# Analysis of django\n")


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("in the way")
    with pytest.raises(NightcrewError):
        write(sample("ordinary"), tmp_path / "report")
