from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from supervisor.host.scratch import TOPDIR, _flags, _opened, spread


def test_a_directory_is_marked_and_what_lies_in_it_is_not(tmp_path: Path) -> None:
    kind = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True).stdout.strip()
    if kind != "ext2/ext3":  # what `stat` calls ext4 too
        pytest.skip(f"{kind} has no such mark")
    inside = tmp_path / "inside"
    spread(tmp_path)
    inside.mkdir()
    with _opened(tmp_path) as marked, _opened(inside) as plain:
        assert (_flags(marked) & TOPDIR, _flags(plain) & TOPDIR) == (TOPDIR, 0)


def test_where_there_is_no_such_mark_nothing_happens() -> None:
    spread(Path("/proc"))
    spread(Path("/nowhere"))
