"""The simulated provider as a process of its own, and its controls over HTTP.

with Simulator(limits=Limits(itpm=80_000), latency_s=0.01) as sim:
    sim.faults(status=529, times=2)                   # the next two requests; then it serves again
    sim.faults(api="anthropic", hold="gate", times=1)
    ...                                               # ask sim.url
    sim.release("gate")
    assert sim.tally("key-a", "opus-4").refused == {"fault:529": 2}
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

from nightcrew.plugins.sim.account import Tally, label
from nightcrew.plugins.sim.faults import Fault
from nightcrew.plugins.sim.settings import SimSettings
from supervisor.kernel.errors import ToolFailed


class Simulator:
    """One simulated provider as a child process. Keyword arguments are fields of `SimSettings`."""

    def __init__(self, **settings: Any) -> None:
        self.settings = SimSettings(**settings)
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        argv = [sys.executable, "-I", "-m", "nightcrew.plugins.sim", json.dumps(asdict(self.settings))]
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb") as said:
            try:
                self._process = self._start(argv, writer)
            finally:
                os.close(writer)
            line = said.readline()  # the only one
        if not line:
            self.stop()
            raise ToolFailed("the simulated provider ended at once", why="its reason is on stderr")
        self.url = json.loads(line)["url"]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _start(self, argv: list[str], stdout: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(argv, stdout=stdout)

    @property
    def pid(self) -> int:
        """Of its process; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    def stop(self) -> None:
        """End it (twice is fine)."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def faults(self, *faults: Fault | Mapping[str, Any], **fault: Any) -> None:
        """Put these behind the faults in force; keyword arguments make one."""
        made = [*faults, *([Fault(**fault)] if fault else [])]
        self._post("faults", [asdict(one) if isinstance(one, Fault) else dict(one) for one in made])

    def clear(self) -> None:
        """No faults from now on."""
        self._post("clear", None)

    def release(self, name: str) -> None:
        """Let the answers go that wait for `name`."""
        self._post("release", {"hold": name})

    def limits(self, model_class: str = "", **limits: float) -> None:
        """Cut or raise the limits (rpm, itpm, otpm, tpm) from now on."""
        self._post("limits", {"class": model_class, **limits})

    def stats(self) -> dict[str, Any]:
        """`GET /sim/stats`."""
        with urllib.request.urlopen(f"{self.url}/sim/stats", timeout=30) as answer:  # noqa: S310 - our own loopback
            told: dict[str, Any] = json.load(answer)
        return told

    def last(self) -> list[dict[str, Any]]:
        """The last requests, oldest first; see `nightcrew.plugins.sim.account.Entry`."""
        entries: list[dict[str, Any]] = self.stats()["last"]
        return entries

    def tally(self, key: str | None = None, model_class: str | None = None) -> Tally:
        """Return the sum over one key (or all) and one model class (or all)."""
        found = Tally()
        for told in self.stats()["tallies"]:
            whose, what = told.pop("key"), told.pop("model_class")
            if (key is None or whose == label(key)) and model_class in (None, what):
                found.add(Tally(**told))
        return found

    def _post(self, verb: str, body: object) -> None:
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/sim/{verb}", data, method="POST")  # noqa: S310 - our own loopback
        try:
            urllib.request.urlopen(request, timeout=30).close()  # noqa: S310 - our own loopback
        except urllib.error.HTTPError as error:
            with error:
                raise ValueError(json.load(error)["error"]) from None
