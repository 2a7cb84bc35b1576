"""A ledger of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.store.ledger import Ledger
from tests.store.kit import Wall


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the ledger is, or will be."""
    return tmp_path / "ledger.db"


@pytest.fixture
def wall() -> Wall:
    """A wall clock that the test moves."""
    return Wall()


@pytest.fixture
def ledger(path: Path, wall: Wall) -> Iterator[Ledger]:
    """An empty ledger."""
    made = Ledger(path, wall)
    yield made
    made.close()
