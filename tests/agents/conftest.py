"""A private tmux server for each test, and its end: by process id, then the socket is unlinked."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from agents.tmux import Tmux
from agents.tmux_control import server_pid
from tests import support


class WaitUntil(Protocol):
    def __call__(self, condition: Callable[[], object], what: str, seconds: float = 60.0) -> None: ...


def lives(tmux: Tmux, session_id: str) -> bool:
    """Whether the session is there."""
    return session_id in {pane.session_id for pane in tmux.panes()}


class AskTmux(Protocol):
    def __call__(self, *words: str) -> str: ...


@pytest.fixture(scope="session")
def wait_until() -> WaitUntil:
    """Poll a condition; fail with `what` when it does not come true in time."""
    return _wait_until


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose path leaves room for a socket: `tmp_path` may not."""
    yield from _short_dir()


@pytest.fixture
def socket(short_dir: Path) -> Iterator[Path]:
    """Where a tmux server may listen; whatever listens there at the end is ended."""
    path = short_dir / "tmux.sock"
    yield path
    _reap(path)


@pytest.fixture
def tmux(socket: Path) -> Iterator[Tmux]:
    with Tmux(socket) as door:
        yield door


@pytest.fixture
def ask_tmux(socket: Path) -> AskTmux:
    """Run a tmux command by its own process, as a user would by hand, and return its stdout."""

    def ask(*words: str) -> str:
        return subprocess.run(["tmux", "-u", "-S", str(socket), *words], check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout

    return ask


@pytest.fixture(scope="module")
def shared_tmux() -> Iterator[Tmux]:
    """One server for all the examples of a property."""
    directory = _short_dir()
    path = next(directory) / "tmux.sock"
    with Tmux(path) as door:
        door.ensure_server()
        yield door
    _reap(path)
    next(directory, None)


def _short_dir() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="nc-"))
    yield path
    shutil.rmtree(path)


def _wait_until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    support.wait_until(condition, what, seconds, every_s=0.01)


def _reap(path: Path) -> None:
    pid = server_pid(path)
    if pid is not None:
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGTERM)  # the server closes its panes, which hang up on their programs
        try:
            _wait_until(lambda: server_pid(path) != pid, f"end of tmux server {pid}")
        except AssertionError:
            os.kill(pid, signal.SIGKILL)  # a failing test leaves no server behind, and is still told
            raise
    path.unlink(missing_ok=True)
