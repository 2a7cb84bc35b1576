"""A terminal to type into, and one crew that several tests only look at."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.support import House, make_repository, plan_of, shell_task


@pytest.fixture
def terminal(house: House) -> Iterator[Callable[..., Terminal]]:
    """Opens a terminal in the house; all are closed afterwards."""
    opened: list[Terminal] = []
    short = Path(tempfile.mkdtemp(prefix="nc-"))  # a socket's path has little room

    def open_one(columns: int = 110, rows: int = 30) -> Terminal:
        opened.append(Terminal(short / f"{len(opened)}", house, columns, rows))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()
    shutil.rmtree(short)


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A finished run: `good` and `agent` did work, `bad` failed, `behind` was skipped; and a run in which `agent` and `agent-1` go on.

    For tests that only look: what they change, others see.
    """
    root = tmp_path_factory.mktemp("crew")
    made = House(root, make_repository(root / "repo"))
    try:
        made.start_daemon()
        finished = [
            shell_task("good", "echo one; echo two >&2; echo '{\"answer\": 42}'; echo new > file", title="Make a file"),
            shell_task("bad", "echo first; exit 7"),
            shell_task("behind", "true", after=["bad"]),
            shell_task("agent", "echo older"),
        ]
        assert made.run("run", made.plan(plan_of(finished))).returncode == 1
        going = [shell_task(name, "while :; do echo at work; sleep 1; done") for name in ("agent", "agent-1")]
        made.ok("run", "-d", made.plan(plan_of(going), "going.toml"))
        yield made
    finally:
        made.reap()
