"""Fixtures for every room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import House, make_repository


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A small repository of one commit."""
    return make_repository(tmp_path / "repo")


@pytest.fixture
def house(tmp_path: Path, repo: Path) -> Iterator[House]:
    """A private supervisor; whatever it leaves is ended afterwards, by id."""
    made = House(tmp_path, repo)
    yield made
    made.reap()
