"""One crew for all trials of a file: what hostile agents made lies on branches before the first of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.landing.independent.victim import Victim


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A person, with a remote and a crew that wishes them ill."""
    made = Victim(tmp_path_factory.mktemp("victim"))
    try:
        made.start()
        yield made
    finally:
        made.house.reap()
