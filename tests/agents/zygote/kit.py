"""What the tests of the zygote share: a zygote with its place, attempts that start through a client, and the end of all of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agents import zygote
from agents.zygote.lifecycle import Request
from supervisor.host import processes
from tests.agents.runner.kit import Attempt, Lab, until

PRELOAD = ("decimal", "colorsys")
"""Modules that no bare interpreter has: whoever has them was forked."""


def write_request(request: Request) -> bytes:
    """The bytes of a request, as a client sends them."""
    entries = [b"dir=" + request.directory, *(b"env=" + name + b"=" + value for name, value in request.environment.items())]
    body = b"".join(entry + b"\0" for entry in entries)
    return struct.pack("=I", len(body)) + body


class Warm:
    """One zygote and the attempts that are started through it."""

    def __init__(self, place: zygote.Place, client: Path | None, lab: Lab) -> None:
        self.place = place
        self.client = client
        self.lab = lab

    def attempt(self, *argv: str, **changes: object) -> Attempt:
        return self.lab.attempt(*argv, **{"warm": True, **changes})

    def program(self, source: str, *words: str, **changes: object) -> Attempt:
        """An attempt that runs a script, isolated."""
        script = self.lab.folder / f"program-{len(self.lab.attempts)}.py"
        script.write_text(source)
        return self.attempt(sys.executable, "-I", str(script), *words, **changes)

    def argv(self, attempt: Attempt) -> list[str]:
        return zygote.pane_argv(self.place, attempt.directory, self.client)

    def start(self, attempt: Attempt, environ: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """The client, outside any pane."""
        quiet = subprocess.DEVNULL
        client = subprocess.Popen(self.argv(attempt), stdin=quiet, stdout=quiet, stderr=subprocess.PIPE, env=environ)
        attempt.runners.append(client)
        return client

    def run(self, attempt: Attempt, environ: Mapping[str, str] | None = None) -> tuple[int, str]:
        """To its end: the client's exit status and what it said."""
        client = self.start(attempt, environ)
        said = client.communicate(timeout=60)[1].decode()
        return client.returncode, said

    def lines(self, attempt: Attempt) -> list[str]:
        """Run it; what it printed. It must have been forked and must end well."""
        assert self.run(attempt) == (0, ""), attempt.read("stderr.log").decode()
        return attempt.read("stdout.log").decode().splitlines()

    def runner(self, attempt: Attempt) -> int:
        """The pid of its runner, once it claimed the epoch."""
        return until(attempt.started, "started.json").identity.pid

    def pid(self) -> int:
        record = zygote.find(self.place)
        assert record is not None
        return record.identity.pid


@contextlib.contextmanager
def place() -> Iterator[zygote.Place]:
    """Somewhere short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="nc-"))
    try:
        yield zygote.Place(folder / "zygote.sock")
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def living(wanted: zygote.Wanted, **started: str) -> Iterator[zygote.Place]:
    """A zygote, which is ended by its id."""
    with place() as made:
        child = zygote.start(made, wanted, {**os.environ, **started})
        try:
            yield made
        finally:
            child.process.kill()
            child.process.wait()


@contextlib.contextmanager
def attempts(folder: Path) -> Iterator[Lab]:
    """As the runner's, and runners that were forked are ended too."""
    lab = Lab(folder)
    try:
        yield lab
    finally:
        for attempt in lab.attempts:
            started = attempt.started()
            processes.stop(attempt.spec.tag, started.identity if started is not None else None, 0.0)
        lab.close()


def compiled(folder: Path) -> Path:
    client = zygote.build_client(folder)
    if client is None:
        pytest.skip("there is no C compiler")
    return client
