"""Fixtures of the memory's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.writing import Store
from tests.memory import kit


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "project"


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with kit.opened(root) as made:
        yield made
