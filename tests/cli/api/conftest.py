"""One supervisor and one server for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.api.kit import Served
from tests.support import House, make_repository


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("api")
    made = Served(House(root, make_repository(root / "shop")))
    try:
        made.house.start_daemon()
        made.start("--port", "0")
        yield made
    finally:
        made.stop()
        made.house.reap()


@pytest.fixture(scope="module")
def token(served: Served) -> str:
    """One that may everything in its repository, of the user `anna`; `--unconfined`, since not every machine has a sandbox."""
    scopes = [word for scope in ("read", "submit", "act") for word in ("--scope", scope)]
    return served.token("anna", *scopes, "--unconfined", "--rate", "1000")
