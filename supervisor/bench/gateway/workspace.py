"""A state directory with running attempts in its ledger, and the processes of one measurement."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import psutil

from supervisor.bench.workspace import busy_s
from supervisor.core import tokens
from supervisor.core.commands import MarkRunning, SetState, Start
from supervisor.core.errors import ToolFailed
from supervisor.core.spec import RunSpec, Submission, TaskSpec
from supervisor.core.states import TaskState
from supervisor.daemon import gateway_process
from supervisor.host import files, secrets
from supervisor.host.paths import Home
from supervisor.ledger.ledger import Ledger

START_S = 60.0
STOP_S = 15.0
RUN = "0101-bench"


@dataclass(frozen=True, slots=True)
class Server:
    """A process that listens."""

    process: psutil.Popen
    port: int

    def cpu_s(self) -> float:
        """User and system time so far."""
        return busy_s(self.process)

    def rss_mb(self) -> float:
        """Resident memory, in 10^6 bytes, of it and whatever it started."""
        return sum(one.memory_info().rss for one in [self.process, *self.process.children(recursive=True)]) / 1e6


def agents(home: Home, count: int) -> list[str]:
    """Tokens of `count` attempts that the ledger calls running."""
    files.private_dir(home.root)
    tasks = tuple(TaskSpec(f"a{number}", f"agent {number}", "shell", ("true",)) for number in range(count))
    submission = Submission("bench", "p", "/nowhere", "/nowhere/.git", "0" * 40, RunSpec("bench", tasks), {})
    with contextlib.closing(Ledger(home.ledger, time.time)) as ledger:
        ledger.submit(submission, RUN)
        names = [f"{RUN}/a{number}" for number in range(count)]
        ledger.commit([SetState(name, TaskState.READY, "") for name in names])
        ledger.commit([Start(name, 1, "") for name in names])
        ledger.commit([MarkRunning(name, 1) for name in names])
    secret = secrets.own(home.secret)
    return [tokens.derive(secret, name, 1) for name in names]


@contextlib.contextmanager
def own(name: str, *options: str) -> Iterator[Server]:
    """A server of this package: `upstream`, the provider, or `bare_proxy`, the proxy that does nothing else, before the url given."""
    with running([sys.executable, "-I", "-m", f"supervisor.bench.gateway.{name}", *options], dict(os.environ)) as process:
        line = process.stdout.readline()
        if not line.strip().isdigit():
            raise ToolFailed("a server of the benchmark did not start", on=name, why=repr(line))
        yield Server(process, int(line))


UNLIMITED = "itpm = 1e12\notpm = 1e12\nrpm = 1e9\nlearn = false"
"""Lines of an upstream's settings: limits that never bind."""


@contextlib.contextmanager
def gateway(home: Home, url: str, env: Mapping[str, str], *, limits: str = UNLIMITED) -> Iterator[Server]:
    """The gateway before a provider at `url`, with the account and a price table. `limits`: lines of the upstream's settings."""
    from supervisor.daemon import prices

    config = home.root / "config.toml"
    config.write_text(f'[upstream.bench]\napi = "anthropic"\nurl = "{url}"\n{limits}\n', encoding="utf-8")
    secrets.store(home.keys / "bench.key", "sk-bench")
    prices.refresh(home.prices)
    argv = [sys.executable, "-I", "-m", "supervisor.gateway", "--home", str(home.root), "--config", str(config)]
    with running(argv, {**os.environ, **env}) as process:
        yield Server(process, _port(home, process))


def _port(home: Home, process: psutil.Popen) -> int:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        found = gateway_process.running(home)
        if found is not None and found.identity.pid == process.pid:
            return found.port
        time.sleep(0.02)
    raise ToolFailed("the gateway did not start", on=str(home.gateway_log), why=gateway_process.last_words(home) or "it said nothing")


@contextlib.contextmanager
def running(argv: Sequence[str], env: Mapping[str, str], *, quiet: bool = False) -> Iterator[psutil.Popen]:
    """A process for as long as the block lasts, with whatever it started. `quiet`: nobody reads what it says."""
    said = subprocess.DEVNULL if quiet else subprocess.PIPE
    process = psutil.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.DEVNULL if quiet else None)
    children: list[psutil.Process] = []
    try:
        yield process
        children = process.children(recursive=True)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        if process.stdout is not None:
            process.stdout.close()


def pin(server: Server | None, core: int) -> None:
    """Keep a process (None: this one) on one core, where there are two and the system can."""
    process = server.process if server is not None else psutil.Process()
    if hasattr(process, "cpu_affinity") and (psutil.cpu_count() or 1) > 1:
        process.cpu_affinity([core])
