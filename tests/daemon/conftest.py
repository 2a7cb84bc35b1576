"""What the tests of limits and of suspending leave of the kernel's: nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from supervisor.core import records
from supervisor.host import cgroups
from tests.support import House


@pytest.fixture
def no_groups_left(house: House) -> Iterator[None]:
    """End and remove the control groups of this house's attempts: its daemon is killed as the test ends, and cannot."""
    yield
    for group in cgroups.left(cgroups.probe(), records.tag(str(house.home.root), "", 0).partition(":")[0]):
        group.kill()
        group.remove()
