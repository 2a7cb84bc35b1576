"""Lines of one day, added by eight processes at once: four through the agents' socket, four that write the file themselves, as agents
outside a sandbox may, while the supervisor watches the file and looks at it."""

from __future__ import annotations

import fcntl
import functools
import json
import os
import random
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memory import days
from memory.layout import DAY_MAX
from supervisor.bench.supervised_run import SupervisedRun, until
from supervisor.bench.workspace import make_repository
from supervisor.core import tokens
from supervisor.core.spec import TaskSpec
from supervisor.host import secrets

AGENTS, DIRECT, EACH = 4, 4, 2000
TEXT_MAX = 1500
"""Characters of a record's text."""


def measure(quick: bool) -> dict[str, Any]:
    """`appends`: `written`, the lines that were said to be written; `corrupt`, those of them that are not there, whole, once and in the
    order of their writer, and lines that are none; `seconds` for all of them."""
    each = EACH // 20 if quick else EACH
    with tempfile.TemporaryDirectory(prefix="nightcrew-appends-") as name, SupervisedRun(Path(name) / "home", AGENTS) as side:
        make_repository(Path(name) / "repo", 1, files=3)
        repo = side.repository(Path(name) / "repo")
        run = side.submit(repo, [TaskSpec(f"a{number}", f"a{number}", "shell", ("sleep", "3600")) for number in range(AGENTS)])
        until(lambda: all(view.attempt_state == "running" for view in side.views(run)), "the agents to run")
        secret = secrets.own(side.home.secret)
        began, asking = time.perf_counter(), []
        for number, view in enumerate(side.views(run)):
            token = tokens.derive(secret, view.id, view.epoch)
            asking.append(_forked(functools.partial(_ask, side.home.agents_socket, token, number, each)))
        memory = side.home.memory(repo.project)
        until(lambda: any(memory.glob("episodic/*.jsonl")), "the first line")
        day = next(memory.glob("episodic/*.jsonl"))
        writing = [_forked(functools.partial(_write, day, number, each)) for number in range(AGENTS, AGENTS + DIRECT)]
        failed = [child for child in asking + writing if os.waitpid(child, 0)[1]]
        took = time.perf_counter() - began
        data = b"".join(path.read_bytes()[:DAY_MAX] for path in sorted(memory.glob("episodic/*.jsonl")))  # it may have been midnight
    written = each * (AGENTS + DIRECT)
    return {"appends": {"written": written, "corrupt": _corrupt(data, each) + len(failed), "seconds": round(took, 2)}}


def _corrupt(data: bytes, each: int) -> int:
    records, skipped = days.records(data)
    by_writer: dict[int, list[int]] = {number: [] for number in range(AGENTS + DIRECT)}
    for record in records:
        writer, at, text = str(record["text"]).split(" ", 2)
        if len(text) == _size(int(writer), int(at)):
            by_writer[int(writer)].append(int(at))
    wrong = [abs(len(found) - each) + (found != sorted(set(found))) for found in by_writer.values()]
    return len(skipped) + sum(wrong)


def _size(writer: int, at: int) -> int:
    return random.Random(f"{writer} {at}").randint(0, TEXT_MAX)  # noqa: S311 - how long, not what of


def _text(writer: int, at: int) -> str:
    return f"{writer} {at} {'x' * _size(writer, at)}"


def _ask(door: Path, token: str, writer: int, each: int) -> None:
    for at in range(each):
        asked = {"version": "", "verb": "mem", "token": token, "args": {"op": "append", "text": _text(writer, at)}}
        with socket.socket(socket.AF_UNIX) as there:
            there.settimeout(60)
            there.connect(str(door))
            there.sendall(json.dumps(asked).encode() + b"\n")
            with there.makefile("rb") as reader:
                answer = json.loads(reader.readline())
        if not answer["ok"]:
            raise SystemExit(answer)


def _write(day: Path, writer: int, each: int) -> None:
    """As the documents ask of whoever writes a day without us: one write a line, to a handle that only adds, under the lock."""
    handle = os.open(day, os.O_WRONLY | os.O_APPEND)
    for at in range(each):
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.write(handle, json.dumps({"v": 1, "text": _text(writer, at)}).encode() + b"\n")
        fcntl.flock(handle, fcntl.LOCK_UN)


def _forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)
