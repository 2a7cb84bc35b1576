"""What tells a zygote of another program apart."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agents import zygote
from tests.agents.runner.kit import ROOT


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Our packages somewhere else."""
    for part in ("agents", "supervisor"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def longer(file: Path) -> None:
    seen = file.stat()
    file.write_text(file.read_text() + "\n")
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def newer(file: Path) -> None:
    seen = file.stat()
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns + 1))


def renamed(file: Path) -> None:
    file.rename(file.with_name("other.py"))


def test_it_is_the_same_wherever_the_same_files_lie(copy: Path) -> None:
    assert zygote.program(copy) == zygote.program() == zygote.program()


@pytest.mark.parametrize("change", [longer, newer, renamed, Path.unlink])
@pytest.mark.parametrize(
    "name", ["agents/runner/loop.py", "agents/zygote/server.py", "supervisor/kernel/records.py", "supervisor/host/procfs.py"]
)
def test_a_change_of_what_is_loaded_is_seen(copy: Path, name: str, change: Callable[[Path], None]) -> None:
    before = zygote.program(copy)
    change(copy / name)
    assert zygote.program(copy) != before


def test_other_files_are_none_of_its_business(copy: Path) -> None:
    before = zygote.program(copy)
    longer(copy / "supervisor/server/attempts/zygotes.py")
    (copy / "agents/runner/notes.txt").write_text("")
    assert zygote.program(copy) == before
