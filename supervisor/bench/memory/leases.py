"""Leases through the socket of the agents: how long a grant takes with eight that ask, and whether one was ever held twice."""

from __future__ import annotations

import json
import os
import random
import socket
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from supervisor.bench.supervised_run import SupervisedRun, until
from supervisor.bench.workspace import make_repository
from supervisor.core import tokens
from supervisor.core.spec import TaskSpec
from supervisor.host import secrets

AGENTS, TRIES = 8, 200
GLOBS = tuple(f"src/part{number}/**" for number in range(4))
"""Fewer than agents: half of the tries meet a holder."""
THINKS_S = 0.02
"""The longest pause between two tries. Agents ask between turns of seconds; this is far more often, and leaves the processors time."""


def measure(quick: bool) -> dict[str, Any]:
    """`lease_ms_p50`: of a request that was granted, its connection included; `lease_lost`: grants of what another process held by its own
    book, or got back under a fence that was not greater than every one before."""
    tries = TRIES // 10 if quick else TRIES
    with tempfile.TemporaryDirectory(prefix="nightcrew-leases-") as name, SupervisedRun(Path(name) / "home", AGENTS) as side:
        make_repository(Path(name) / "repo", 1, files=3)
        repo = side.repository(Path(name) / "repo")
        run = side.submit(repo, [TaskSpec(f"a{number}", f"a{number}", "shell", ("sleep", "3600")) for number in range(AGENTS)])
        until(lambda: all(view.attempt_state == "running" for view in side.views(run)), "the agents to run")
        secret = secrets.own(side.home.secret)
        book = Path(name) / "book"
        book.mkdir()
        children = []
        for seed, view in enumerate(side.views(run)):
            asking = _Asking(side.home.agents_socket, tokens.derive(secret, view.id, view.epoch), book, random.Random(seed))  # noqa: S311 - which one, not what of
            children.append(_forked(lambda asking=asking: asking.tries(tries), book / f"found{seed}"))
        for child in children:
            os.waitpid(child, 0)
        found = [json.loads((book / f"found{seed}").read_text()) for seed in range(AGENTS)]
    times = sorted(took for one in found for took in one["ms"])
    return {"lease_ms_p50": round(statistics.median(times), 3), "lease_lost": sum(one["lost"] for one in found)}


class _Asking:
    """One agent."""

    def __init__(self, door: Path, token: str, book: Path, luck: random.Random) -> None:
        self._door, self._token, self._book, self._luck = str(door), token, book, luck

    def tries(self, count: int) -> dict[str, Any]:
        ms: list[float] = []
        lost = 0
        for _ in range(count):
            glob = self._luck.choice(GLOBS)
            began = time.perf_counter()
            answer = self._ask({"op": "take", "globs": [glob]})
            if answer["ok"]:
                ms.append(1000 * (time.perf_counter() - began))
                lost += self._lost(glob, int(answer["value"]["leases"][0]["fence"]))
                self._ask({"op": "release", "globs": [glob]})
            time.sleep(self._luck.uniform(0, THINKS_S))
        return {"ms": ms, "lost": lost}

    def _lost(self, glob: str, fence: int) -> bool:
        """Whether somebody holds it by the book of the agents, while this one does. It is given back before the lease is."""
        place = self._book / glob.replace("/", "_").replace("*", "_")
        last = place.with_suffix(".fence")
        try:
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return True
        before = int(last.read_text()) if last.exists() else 0
        last.write_text(str(fence))
        time.sleep(self._luck.uniform(0, THINKS_S / 4))
        place.unlink()
        return fence <= before

    def _ask(self, args: dict[str, Any]) -> dict[str, Any]:
        line = json.dumps({"version": "", "verb": "lease", "token": self._token, "args": args}).encode() + b"\n"
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(30)
            door.connect(self._door)
            door.sendall(line)
            with door.makefile("rb") as reader:
                return dict(json.loads(reader.readline()))


def _forked(work: Any, target: Path) -> int:
    child = os.fork()
    if child:
        return child
    try:
        target.write_text(json.dumps(work()))
    finally:
        os._exit(0)
