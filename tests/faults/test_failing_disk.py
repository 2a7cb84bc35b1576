"""A disk that fails or writes half, at every call: no half-written record is read as valid, and nothing acknowledged is gone (S07)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import on_a_failing_disk

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def quick() -> Iterator[str]:
    """A directory on a disk that has nothing to sync: it is the calls that fail here."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        yield name


def test_no_half_written_record_is_read_as_valid(tmp_path: Path, quick: str) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    library = tmp_path / "failing_disk.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, Path(__file__).with_name("failing_disk.c"), "-ldl"], check=True)
    done = subprocess.run(
        [sys.executable, on_a_failing_disk.__file__, quick],
        env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    faults = {one["of"]: one["faults"] for one in map(json.loads, done.stdout.splitlines())}
    print(faults)
    assert len(faults) == 5 and min(faults.values()) >= 3, faults
