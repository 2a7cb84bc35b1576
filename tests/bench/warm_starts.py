"""Supervisors and servers of a benchmark, forked from the process that has imported everything (`tests.warm`).

What they do is the same; what a new interpreter takes for its imports is paid once. A benchmark that a test starts as a program of its own
starts them cold, as for a person.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from nightcrew.plugins.bench import crews
from nightcrew.plugins.bench import queue as measure
from nightcrew.plugins.bench.crews import SupervisedRun
from supervisor.client import protocol
from supervisor.gateway.lifecycle import PASSED
from supervisor.host import processes
from supervisor.host.paths import Home
from supervisor.kernel.errors import NotRunning
from supervisor.server import prices
from tests import warm
from tests.gateway.kit import know_prices
from tests.support import wait_until

_GATEWAY = "supervisor.gateway"
_TRUSTED = "SSL_CERT_FILE"


@contextlib.contextmanager
def everywhere() -> Iterator[None]:
    """Within the block, in this process."""
    warm.ready()  # before a benchmark keeps this process on one core
    began: list[tuple[Home, subprocess.Popen[bytes]]] = []
    end_cold_server = crews.end_server

    def start(run: SupervisedRun) -> int:
        with contextlib.suppress(NotRunning):
            return int(protocol.call(run.home.daemon_socket, "ping", {})["pid"])
        process = _supervisor(run)
        began.append((run.home, process))
        wait_until(lambda: process.poll() is not None or _is_ready(run.home), "the supervisor of a benchmark")
        return process.pid

    def end_server(home: Home) -> None:
        for one, process in began:
            if one == home:
                _end(process)
        end_cold_server(home)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SupervisedRun, "start", start)
        patch.setattr(crews, "end_server", end_server)
        patch.setattr(psutil, "Popen", _server(psutil.Popen))
        patch.setattr(measure, "_started", _fake_supervisor)
        patch.setattr(prices, "refresh", lambda path: know_prices(Home(path.parent)))
        try:
            yield
        finally:
            for _, process in began:
                _end(process)


def _supervisor(run: SupervisedRun) -> subprocess.Popen[bytes]:
    words = ("up", "--home", str(run.home.root), "--config", str(run.settings))
    env = {**os.environ, **({"PATH": run.path} if run.path else {})}
    run.home.root.mkdir(mode=0o700, exist_ok=True)
    with (run.home.root / "said").open("ab") as said:
        return warm.start(words, run.home.root, env, said.fileno(), said.fileno(), session=True)


def _server(cold: type[psutil.Popen]) -> Callable[..., psutil.Process]:
    """aiohttp reads which certificates it trusts when it is imported: with others, a server starts cold."""
    known = os.environ.get(_TRUSTED)
    return lambda argv, *, env, **more: (Forked if env.get(_TRUSTED) == known else cold)(argv, env=env, **more)


def _fake_supervisor(argv: list[str]) -> subprocess.Popen[bytes]:
    with open(os.devnull, "wb") as nowhere:
        return warm.start_program(argv, Path.cwd(), os.environ, nowhere.fileno(), nowhere.fileno())


def _end(supervisor: subprocess.Popen[bytes]) -> None:
    """With all below it, as it ends with its pane."""
    who = processes.identity(supervisor.pid) if supervisor.poll() is None else None
    if who is not None:
        crews._end(who)
    supervisor.wait()


def _is_ready(home: Home) -> bool:
    with contextlib.suppress(NotRunning):
        return bool(protocol.call(home.daemon_socket, "ping", {})["ready"])
    return False


class Forked(psutil.Process):
    """As much of `psutil.Popen` as a benchmark needs: a server of ours, which is forked."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], stdin: int, stdout: int, stderr: int | None) -> None:
        assert stdin == subprocess.DEVNULL
        passed = {name: env[name] for name in PASSED if name in env} if _GATEWAY in argv else env
        reader, writer = os.pipe()
        with open(os.devnull, "wb") as nowhere:
            said = writer if stdout == subprocess.PIPE else nowhere.fileno()
            self._forked = warm.start_program(list(argv), Path.cwd(), passed, said, nowhere.fileno() if stderr is not None else 2)
        os.close(writer)
        self.stdout = open(reader, "rb", buffering=0)  # noqa: SIM115 - whoever starts it closes it
        super().__init__(self._forked.pid)

    def poll(self) -> int | None:
        return self._forked.poll()

    def wait(self, timeout: float | None = None) -> Any:
        try:
            return self._forked.wait(timeout)
        except subprocess.TimeoutExpired:
            raise psutil.TimeoutExpired(timeout or 0, self.pid) from None
