from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agents import zygote
from tests.agents.runner.conftest import server  # the same fixture
from tests.agents.zygote import kit
from tests.agents.zygote.kit import PRELOAD, Warm

__all__ = ["server"]


@pytest.fixture(scope="session")
def compiled_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kit.compiled(tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def served() -> Iterator[zygote.Place]:
    """One zygote for the tests of a file that do it no harm."""
    with kit.living(zygote.Wanted(PRELOAD)) as made:
        yield made


@pytest.fixture(params=["c", "python"])
def client(request: pytest.FixtureRequest) -> Path | None:
    """Each client in turn: both keep one contract."""
    return request.getfixturevalue("compiled_client") if request.param == "c" else None


@pytest.fixture
def warm(served: zygote.Place, client: Path | None, tmp_path: Path) -> Iterator[Warm]:
    with kit.attempts(tmp_path) as lab:
        yield Warm(served, client, lab)


@pytest.fixture
def mortal(client: Path | None, tmp_path: Path) -> Iterator[Warm]:
    """A zygote of the test's own, which it may kill."""
    with kit.living(zygote.Wanted(PRELOAD)) as made, kit.attempts(tmp_path) as lab:
        yield Warm(made, client, lab)
