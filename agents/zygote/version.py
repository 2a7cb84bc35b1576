"""Which program a zygote has in memory: after an upgrade, one of the older program must not start attempts of the newer."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from supervisor import __version__

_ROOT = Path(__file__).parents[2]
_LOADED = ("agents/runner", "agents/zygote", "supervisor/core", "supervisor/host")
"""What a forked runner runs, and the process that forks it."""


def program(root: Path = _ROOT) -> str:
    """A digest of this Python and of our files below `root` as they are now, which is what an attempt that starts cold would run.

    Files count by name, size and time of change; one that is removed meanwhile does not. Takes 1 ms.
    """
    what = (__version__, sys.version, os.path.realpath(sys.executable), sorted(_files(os.fspath(root))))
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def _files(root: str) -> Iterator[tuple[str, int, int]]:
    for part in _LOADED:
        for folder, _, names in os.walk(f"{root}/{part}"):
            for name in names:
                if name.endswith(".py"):
                    with contextlib.suppress(FileNotFoundError):
                        seen = os.stat(f"{folder}/{name}")  # noqa: PTH116 - for every warm start; a Path of each costs more than the look
                        yield f"{folder}/{name}".removeprefix(root), seen.st_size, seen.st_mtime_ns
