"""A house with models, and what the tests of limits and of pausing leave of the kernel's: nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.host import cgroups
from supervisor.kernel import names
from tests.gateway.kit import know_prices
from tests.gateway.simulator import Simulator
from tests.server.models_kit import ASK, Models
from tests.support import House, make_repository


@pytest.fixture
def no_groups_left(house: House) -> Iterator[None]:
    """End and remove the control groups of this house's attempts: its daemon is killed as the test ends, and cannot."""
    yield
    for group in cgroups.left(cgroups.probe(), names.tag(str(house.home.root), "", 0).partition(":")[0]):
        group.kill()
        group.remove()


@pytest.fixture(scope="module")
def _lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    root = tmp_path_factory.mktemp("lasting")
    house = House(root, make_repository(root / "repo"))
    yield house
    house.reap()


@pytest.fixture
def lasting(_lasting: House) -> Iterator[House]:
    """One house and supervisor for all tests of a module, none of which leaves more than tasks: those that live are ended after it."""
    if not _lasting.ready():
        _lasting.start_daemon()
    yield _lasting
    _lasting.run("kill", "--all")
    _lasting.wait_final()


@pytest.fixture
def models(house: House, tmp_path: Path) -> Iterator[Models]:
    """With settings that name the simulator."""
    script = tmp_path / "ask.py"
    script.write_text(ASK)
    with Simulator() as sim:
        made = Models(house, sim, script)
        made.settings()
        know_prices(house.home)
        yield made
