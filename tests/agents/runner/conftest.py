from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.runner.kit import Lab, Server, tmux_server


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.close()


@pytest.fixture
def server() -> Iterator[Server]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    with tmux_server() as made:
        yield made
