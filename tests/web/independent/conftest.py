"""One supervisor and one server for all attacks of a file, and whom they are made with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.api.kit import Served
from tests.support import House, make_repository
from tests.web.independent.attacker import Attacker


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("attacked")
    made = Served(House(root, make_repository(root / "shop")))
    try:
        made.house.start_daemon()
        made.start("--port", "0")
        yield made
    finally:
        made.stop()
        made.house.reap()


@pytest.fixture(scope="package")
def attacker(served: Served) -> Attacker:
    """With a stolen token of a program: it may everything, but its tasks are confined."""
    return Attacker(served.port, served.token("stolen", "--scope", "read", "--scope", "submit", "--scope", "act", "--rate", "1000"))
