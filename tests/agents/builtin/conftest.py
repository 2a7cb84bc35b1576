"""One warm process and one simulated provider for all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.kernel.gateway_settings import Limits
from tests.agents.builtin.kit import Bench, Forks
from tests.gateway.simulator import Simulator


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    made = Forks()
    yield made
    made.close()


@pytest.fixture(scope="session")
def _sim() -> Iterator[Simulator]:
    with Simulator(limits=Limits(rpm=100_000, itpm=100_000_000, otpm=10_000_000), cache_min_tokens=1) as simulator:
        yield simulator


@pytest.fixture
def bench(repo: Path, tmp_path: Path, forks: Forks, _sim: Simulator) -> Iterator[Bench]:
    """A repository with one commit."""
    yield Bench(repo, tmp_path / "out", _sim, forks)
    forks.end()
    _sim.clear()
