"""Where a zygote is, and what it writes down about itself when it is ready."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor import __version__
from supervisor.core.identity import Identity
from supervisor.host import files, foreign

_MAX = 64 * 1024
_ROOT = Path(__file__).parents[2]
_LOADED = ("agents/runner", "agents/zygote", "supervisor/core", "supervisor/host")
"""What a forked runner runs, and the process that forks it."""


@dataclass(frozen=True, slots=True)
class Record:
    """A zygote that was ready once."""

    identity: Identity
    preload: tuple[str, ...]
    """Modules it imported."""
    path: tuple[str, ...]
    """Directories that it looks into before our own packages."""
    rss: int
    """Bytes of resident memory when it was ready."""
    seconds: float
    """From its start until it was ready."""
    program: str = ""
    """What it runs (`program`); empty in records of before there was this."""


@dataclass(frozen=True, slots=True)
class Place:
    """One zygote's files, in a directory that only its user can enter."""

    socket: Path
    """At most 107 bytes long."""

    @property
    def record(self) -> Path:
        """JSON, schema 1; there from the moment the zygote is ready until it ends in good order."""
        return self.socket.with_name(self.socket.name + ".json")

    @property
    def lock(self) -> Path:
        """Held by the zygote of this socket for as long as it lives."""
        return self.socket.with_name(self.socket.name + ".lock")

    @property
    def log(self) -> Path:
        """What it says: why it refused, above all."""
        return self.socket.with_name(self.socket.name + ".log")

    def write(self, record: Record) -> None:
        """Raises DiskFull or ToolFailed."""
        who = record.identity
        shape = {
            "schema": 1,
            "pid": who.pid,
            "ticks": who.ticks,
            "boot_id": who.boot_id,
            "preload": record.preload,
            "path": record.path,
            "rss": record.rss,
            "seconds": record.seconds,
            "program": record.program,
        }
        files.atomic_write(self.record, json.dumps(shape).encode() + b"\n")

    def read(self) -> Record | None:
        """The last record; None when there is none, or it is not whole."""
        try:
            shape = json.loads(foreign.read_plain(self.record, _MAX) or b"")
            identity = Identity(int(shape["pid"]), int(shape["ticks"]), str(shape["boot_id"]))
            found = Record(
                identity,
                tuple(shape["preload"]),
                tuple(shape["path"]),
                int(shape["rss"]),
                float(shape["seconds"]),
                str(shape.get("program", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            return None
        return found if 0 < identity.pid < 2**31 else None


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
