"""What is measured on: a generated repository, generated dependencies, and Python files of this very Python."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor.bench.workspace import commit_all
from supervisor.core.errors import NotFound

DEPENDENCIES = "node_modules"
AGENT = "agent.py"
PRELOAD = ("bandit.core.manager", "libtmux", "pydantic", "radon.complexity")
"""What the agent imports, and the memory snapshot for it."""
_CORPUS_SIZES = range(500, 16_001)
"""Bytes of a Python file that is taken: no empty ones, and none that would take a minute of the whole run by itself."""
_PIECES = 512
_PER_DIRECTORY = 40

_AGENT = f"""\
import os
import sys
import time
warm = "{PRELOAD[0]}" in sys.modules
{"".join(f"import {name}{chr(10)}" for name in PRELOAD)}
print("up", flush=True)
born = time.time()
out = os.environ["NIGHTCREW_OUT"]
os.mkfifo(f"{{out}}/go")
with open(f"{{out}}/up.part", "w") as file:
    file.write(f"{{born!r}} {{int(warm)}}")
os.rename(f"{{out}}/up.part", f"{{out}}/up")
with open(f"{{out}}/go") as file:
    file.read()
"""
"""The agent: its imports, its first line, the moment of it and whether it was warm written down; then it waits to be let go."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of generated files: the same seed gives the same ones."""

    files: int
    bytes: int


def repository(path: Path, seed: int, size: Size) -> int:
    """A repository of one commit with text files, the agent among them. Returns the bytes of its files."""
    draw = random.Random(seed)  # noqa: S311 - text to fill files with, not a secret
    words = [draw.randbytes(draw.randint(2, 5)).hex() for _ in range(2000)]
    pieces = [" ".join(draw.choices(words, k=12)) + "\n" for _ in range(_PIECES)]
    written = 0
    for number, wanted in enumerate(_sizes(draw, size)):
        text = "".join(draw.choices(pieces, k=max(1, wanted * _PIECES // sum(map(len, pieces)))))
        written += _write(path / f"part{number // _PER_DIRECTORY:03d}" / f"file{number:05d}.txt", text.encode())
    written += _write(path / AGENT, _AGENT.encode())
    written += _write(path / ".gitignore", f"{DEPENDENCIES}\n".encode())  # without a slash it holds for a link of that name too
    commit_all(path)
    return written


def dependencies(path: Path, seed: int, size: Size) -> None:
    """Files such as an installer leaves, that nobody can compress, below the new directory `path`."""
    draw = random.Random(seed)  # noqa: S311 - as above
    for number, wanted in enumerate(_sizes(draw, size)):
        _write(path / f"package{number // _PER_DIRECTORY:03d}" / f"file{number:05d}", draw.randbytes(wanted))


def corpus(path: Path, files: int) -> int:
    """A repository of one commit with `files` Python files of this Python's own library and of the packages beside it, in the order of
    their names. Returns how many bytes. Raises NotFound when there are not so many."""
    sources = list(itertools.islice(_python_files(), files))
    if len(sources) < files:
        raise NotFound("not enough Python files on this machine", on=str(files), why=f"there are {len(sources)}")
    size = 0
    for number, source in enumerate(sources):
        target = path / f"part{number // _PER_DIRECTORY:03d}" / f"file{number:05d}_{source.name}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        size += target.stat().st_size
    commit_all(path)
    return size


def _python_files() -> Iterator[Path]:
    packages = sysconfig.get_path("purelib")
    for top in (sysconfig.get_path("stdlib"), packages):
        for directory, folders, names in os.walk(top):
            folders[:] = sorted(name for name in folders if top == packages or name != "site-packages")
            paths = (Path(directory, name) for name in sorted(names) if name.endswith(".py"))
            yield from (path for path in paths if path.is_file() and path.stat().st_size in _CORPUS_SIZES)


def _sizes(draw: random.Random, size: Size) -> list[int]:
    """Most are small, some ten times that, as in a library of source code; together about `size.bytes`."""
    weights = [min(20.0, draw.lognormvariate(0.0, 1.0)) for _ in range(size.files)]
    return [max(1, int(size.bytes * weight / sum(weights))) for weight in weights]


def _write(path: Path, data: bytes) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.write_bytes(data)
