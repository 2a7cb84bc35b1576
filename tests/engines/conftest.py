"""A home with engines, and the stand-in for `llama-server` on the PATH."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.kit import Engines, Llama
from tests.engines.kit import llama as written


@pytest.fixture
def llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Llama:
    """The stand-in; processes that the test starts find it first."""
    made = written(tmp_path)
    monkeypatch.setenv("PATH", made.path)
    return made


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Engines]:
    """A home with engines; their processes are ended afterwards."""
    made = Engines(tmp_path)
    yield made
    made.close()
