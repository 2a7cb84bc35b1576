"""The queue that people use instead: a Redis sorted set by priority, workers that take its head, and results in a hash.

A worker is a process with one client; what it has taken is in its memory alone, as with ZPOPMAX in general. The server is Debian's, on
127.0.0.1, and writes each change to its append-only file, which is synced every second (its own default).

Run as a program it is one worker: python -I -m nightcrew.plugins.bench.queue.redis_queue PORT STARTED WORK_S
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nightcrew.plugins.bench.crews import until

if TYPE_CHECKING:
    from redis import Redis

QUEUE, RESULTS = "queue", "results"
PIPELINE = 1000
"""Commands in one round trip when a whole plan is handed over."""


def absent() -> str:
    """What is missing to measure it; empty when nothing is."""
    if shutil.which("redis-server") is None:
        return "redis-server is not installed (apt-get install redis-server)"
    return "" if importlib.util.find_spec("redis") else "the Python client is not installed (nightcrew's extra `bench`)"


def client(port: int) -> Redis:
    """A client of the server at a port."""
    from redis import Redis

    return Redis("127.0.0.1", port)


@contextlib.contextmanager
def serving(root: Path) -> Iterator[int]:
    """The port of a server of our own. `root` is an empty directory."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    words = f"--bind 127.0.0.1 --port {port} --appendonly yes --appendfsync everysec --daemonize no".split()
    argv = ["redis-server", *words, "--save", "", "--dir", str(root)]
    server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: _answers(port), "redis-server", 0.02)
        yield port
    finally:
        server.kill()
        server.wait()


def _answers(port: int) -> bool:
    from redis.exceptions import ConnectionError as NotThere

    with contextlib.suppress(NotThere):
        return bool(client(port).ping())
    return False


def enqueue_per_s(port: int, count: int) -> float:
    """Tasks that are taken in a second, with `PIPELINE` of them in one round trip."""
    with client(port) as queue:
        began = time.perf_counter()
        hand_over(queue, count)
        return count / (time.perf_counter() - began)


def hand_over(queue: Redis, count: int) -> None:
    """Put tasks `0` to `count - 1` into the queue."""
    for first in range(0, count, PIPELINE):
        pipeline = queue.pipeline(transaction=False)
        for number in range(first, min(count, first + PIPELINE)):
            pipeline.zadd(QUEUE, {str(number): number % 100})
        pipeline.execute()


def claim_per_s(port: int, count: int) -> float:
    """Tasks that one worker takes in a second, with a result for each."""
    with client(port) as queue:
        began = time.perf_counter()
        for _ in range(count):
            for task, _priority in queue.zpopmax(QUEUE):
                queue.hset(RESULTS, task, "done")
        return count / (time.perf_counter() - began)


class Worker:
    """A worker as a process; it appends each task that it begins to `started`, and ends with its queue."""

    def __init__(self, port: int, started: Path, work_s: float) -> None:
        self._started = started
        argv = [sys.executable, "-I", "-m", __name__, str(port), str(started), str(work_s)]
        self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def until_at_work(self) -> None:
        """Wait until it has begun its first task, or has found none."""
        until(lambda: not self.lives or (self._started.exists() and self._started.stat().st_size > 0), "a worker to begin", 0.01)

    def end(self) -> None:
        """`kill -9`, whatever it does."""
        self._process.kill()
        self._process.wait()


def _work(port: int, started: Path, work_s: float) -> None:
    lines = os.open(started, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with client(port) as queue:
        while popped := queue.zpopmax(QUEUE):
            task = popped[0][0]
            os.write(lines, task + b"\n")
            time.sleep(work_s)
            queue.hset(RESULTS, task, "done")


if __name__ == "__main__":
    _work(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
