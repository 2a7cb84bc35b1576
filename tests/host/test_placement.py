from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.host.placement import is_spread, spread


def test_a_directory_is_marked_and_what_lies_in_it_is_not(tmp_path: Path) -> None:
    if is_spread(tmp_path) is None:
        pytest.skip("this file system has no such mark")
    inside = tmp_path / "inside"
    spread(tmp_path)
    inside.mkdir()
    if not is_spread(tmp_path):
        pytest.skip("this file system does not take the mark")
    assert not is_spread(inside)


def test_where_there_is_no_such_mark_nothing_happens() -> None:
    assert is_spread(Path("/proc")) is None
    spread(Path("/proc"))
    spread(Path("/nowhere"))
