"""What is mapped: a repository of many small files, and what is done with each of them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path

from supervisor.bench.workspace import make_repository

MODULE = "benchwork"
_SOURCE = '''"""What the benchmark does with a file. Written by nightcrew bench map."""

import hashlib
import json
import os
import signal

SETTINGS = json.loads({settings!r})


def spin(path, rounds):
    """Read the file, be busy for a while, and give what anybody can compute at once."""
    with open(path, "rb") as file:
        data = file.read()
    digest = data
    for _ in range(rounds):
        digest = hashlib.sha256(digest).digest()
    return [hashlib.sha256(data).hexdigest(), len(data)]


def work(path):
    return spin(path, SETTINGS["rounds"])


def crashing(path):
    """The same; some paths kill the process the first time."""
    name = hashlib.sha256(os.fsencode(path)).hexdigest()
    if int(name, 16) % 1000 < SETTINGS["crashes_per_1000"]:
        try:
            os.mkdir(os.path.join(SETTINGS["marks"], name))
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return work(path)


def logged(path):
    """A twentieth of the work, and a line that says so."""
    handle = os.open(SETTINGS["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, os.fsencode(path) + b"\\n")
    os.close(handle)
    return spin(path, SETTINGS["rounds"] // 20)
'''


def rounds_for(seconds: float) -> int:
    """How many turns of `spin` take one core so long, by the fastest of a few tries here."""
    count, best = 20_000, float("inf")
    for _ in range(5):
        digest, began = b"", time.thread_time()
        for _ in range(count):
            digest = hashlib.sha256(digest).digest()
        best = min(best, time.thread_time() - began)
    return max(1, round(count * seconds / best))


def make(root: Path, files: int, seed: int, rounds: int, crashes: float) -> Path:
    """The repository of `files` files and the module, at `root/repository`. `crashes`: the share of the files whose first try dies."""
    place = root / "repository"
    (root / "marks").mkdir()
    settings = {"rounds": rounds, "marks": str(root / "marks"), "log": str(root / "log"), "crashes_per_1000": round(1000 * crashes)}
    place.mkdir()
    (place / f"{MODULE}.py").write_text(_SOURCE.format(settings=json.dumps(settings)))
    make_repository(place, seed, files)
    return place


def expected(repository: Path, names: Iterable[str]) -> list[tuple[str, list[object]]]:
    """What a sequential run gives, in order."""
    return [(name, _seen((repository / name).read_bytes())) for name in names]


def _seen(data: bytes) -> list[object]:
    return [hashlib.sha256(data).hexdigest(), len(data)]


def names(repository: Path) -> list[str]:
    """The files that are mapped, in git's order."""
    found = (path for path in repository.rglob("*.txt") if path.is_file())
    return sorted((path.relative_to(repository).as_posix() for path in found), key=lambda name: name.encode())
