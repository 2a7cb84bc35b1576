"""What a program waits for when it hands a task over by the API: to the answer that says that it is on disk.

A supervisor and a server of their own, and one slot that is taken: what is submitted waits, so that no agent's start is measured with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from nightcrew.client import AsyncClient
from supervisor.bench.figures import milli
from supervisor.bench.supervised_run import SupervisedRun, until
from supervisor.bench.workspace import nightcrew
from supervisor.core.spec import TaskSpec
from supervisor.host.paths import Home


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    alone: int = 200
    """Submissions one after the other."""
    together: int = 1000
    clients: int = 16
    """Submissions that are under way at once, of `together`."""


def measure(options: Options, root: Path, repo: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """`requests_per_s` with many clients, `submit_ms_p50` and `p99` of one, and what a request takes of the processor."""
    with SupervisedRun(root, 1) as run:
        name = run.submit(run.repository(repo), [TaskSpec(name="holds-the-slot", title="", kind="shell", argv=("sleep", "3600"))])
        until(lambda: all(view.attempt_state == "running" for view in run.views(name)), "an agent to take the slot")
        env = {**os.environ, "NIGHTCREW_HOME": str(run.home.root), "NIGHTCREW_CONFIG": str(run.settings)}
        words = ("token", "create", "bench", "--unconfined", "--rate", "10000")
        token = subprocess.run(nightcrew(*words), env=env, cwd=repo, capture_output=True, text=True, check=True).stdout.strip()
        with _server(env, repo) as (url, server):
            say(f"{options.alone} tasks one after the other, then {options.together} by {options.clients} clients")
            return asyncio.run(_measured(options, AsyncClient(url, token), (server, _supervisor(run.home))))


async def _measured(options: Options, client: AsyncClient, processes: tuple[psutil.Process, ...]) -> dict[str, Any]:
    async with client as crew:
        await _submitted(crew, "first")
        alone = sorted([await _submitted(crew, f"a{number}") for number in range(options.alone)])
        before, began = [_cpu_s(process) for process in processes], time.monotonic()
        numbers = iter(range(options.together))
        await asyncio.gather(*(_client(crew, numbers) for _ in range(options.clients)))
        took = time.monotonic() - began
    cpu = [1000 * (_cpu_s(process) - then) / options.together for process, then in zip(processes, before, strict=True)]
    return {
        "requests_per_s": round(options.together / took, 1),
        "submit_ms_p50": milli(statistics.median(alone)),
        "p99": milli(alone[min(len(alone) - 1, len(alone) * 99 // 100)]),
        "cpu_ms": {"server": round(cpu[0], 2), "supervisor": round(cpu[1], 2)},
    }


async def _client(crew: AsyncClient, numbers: Iterator[int]) -> None:
    for number in numbers:
        await _submitted(crew, f"t{number}")


async def _submitted(crew: AsyncClient, key: str) -> float:
    began = time.monotonic()
    await crew.submit(command="true", key=key)
    return time.monotonic() - began


@contextlib.contextmanager
def _server(env: Mapping[str, str], repo: Path) -> Iterator[tuple[str, psutil.Process]]:
    with subprocess.Popen(nightcrew("web", "--port", "0", "--json"), env=env, cwd=repo, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None  # noqa: S101 - a pipe was asked for
            text = ""
            while not text.rstrip().endswith("}") and (line := process.stdout.readline()):
                text += line
            yield str(json.loads(text)["url"]).partition("/enter")[0], psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)


def _supervisor(home: Home) -> psutil.Process:
    from supervisor.daemon import lock

    pid = lock.holder(home.lock)
    assert pid is not None  # noqa: S101 - it has just answered
    return psutil.Process(pid)


def _cpu_s(process: psutil.Process) -> float:
    """With those of its children that have ended."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)
