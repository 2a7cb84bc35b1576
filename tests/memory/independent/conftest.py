"""One town for all trials of a file: each uses names of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from supervisor.sandbox import executors
from tests.memory.independent.town import Agent, Town


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """With an agent that attacks, in the closest sandbox that works here, and its neighbours."""
    made = Town(
        tmp_path_factory.mktemp("town"), {"mallory": max(map(int, executors.known().tiers), default=0), "alice": 0, "flood": 0, "gone": 0}
    )
    try:
        made.start()
        yield made
    finally:
        made.house.reap()


@pytest.fixture
def mallory(town: Town) -> Agent:
    """The attacker."""
    return town.agents["mallory"]


@pytest.fixture
def alice(town: Town) -> Agent:
    """Who must come to no harm."""
    return town.agents["alice"]
