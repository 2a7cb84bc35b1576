"""Where a zygote is, and what it writes down about itself when it is ready."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.records import Identity
from supervisor.host import files, foreign

_MAX = 64 * 1024


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
    """What it runs (`version.program`); empty in records of before there was this."""


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
