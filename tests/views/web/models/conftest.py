"""A home of the test's own, with a ledger that a test writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.host.paths import Home
from supervisor.store.ledger import Ledger
from tests.store.kit import Wall


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def ledger(home: Home, wall: Wall) -> Iterator[Ledger]:
    made = Ledger(home.ledger, wall)
    yield made
    made.close()
