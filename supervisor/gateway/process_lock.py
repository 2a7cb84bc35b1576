"""The gateway's lock, and the file by which others find it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import supervisor
from supervisor.gateway.admission.types import Upstream
from supervisor.host import files, procfs, untrusted_fs
from supervisor.host.clock import Clock
from supervisor.host.paths import Home
from supervisor.kernel.audit import LogFormat, log_format
from supervisor.kernel.errors import Refused
from supervisor.kernel.names import Identity

SCHEMA = 1
_WAIT_S = 2.0
_LOOK_S = 0.02
_RECORD_MAX = 64 * 2**10


def lock(home: Home) -> int:
    """Be the one gateway of this home until the process ends; the lock's handle. Raises Refused when another lives on for 2 s."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        handle = os.open(home.gateway_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if files.try_lock(handle):
            return handle
        os.close(handle)
        if time.monotonic() > deadline:
            found = read(home)
            who = f"pid {found.identity.pid if found is not None else 'unknown'}"
            raise Refused("a gateway is already running", on=who, why=f"it holds {home.gateway_lock}", kept="it and its streams")
        time.sleep(_LOOK_S)


@dataclass(frozen=True, slots=True)
class Record:
    """`gateway.json`, which the gateway writes when it is ready, and which stays when it is gone."""

    identity: Identity
    port: int
    version: str
    passes: bool = True
    """It has an upstream; else it serves the page of metrics alone."""
    log_format: str = LogFormat.TEXT


def read(home: Home) -> Record | None:
    """The last gateway's record; None when there is none, or nothing that makes sense."""
    try:
        shape = json.loads(untrusted_fs.read_plain(home.gateway_record, _RECORD_MAX) or b"")
        identity = Identity(int(shape["pid"]), int(shape["ticks"]), str(shape["boot_id"]))
        more = bool(shape.get("upstreams", True)), str(shape.get("log_format", LogFormat.TEXT))
        found = Record(identity, int(shape["port"]), str(shape["version"]), *more)
        known = shape["schema"] == SCHEMA
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if known and identity.pid > 0 and 0 < found.port < 65536 else None


def kept_port(home: Home) -> int:
    """The port of the last gateway: agents that outlived it still send there. 0 when there is none."""
    found = read(home)
    return found.port if found is not None else 0


def record(port: int, upstreams: Iterable[Upstream], clock: Clock) -> dict[str, Any]:
    """Who this process is, and where it listens."""
    me = procfs.look(os.getpid())
    return {
        "schema": SCHEMA,
        "pid": os.getpid(),
        "ticks": me.ticks if me else 0,
        "boot_id": procfs.boot_id(),
        "port": port,
        "started": clock.wall(),
        "version": supervisor.__version__,
        "log_format": log_format(os.environ),
        "upstreams": names(upstreams),
    }


def names(upstreams: Iterable[Upstream]) -> list[dict[str, str]]:
    """Return the upstreams as the record has them."""
    return [{"name": upstream.name, "api": str(upstream.api)} for upstream in upstreams]


def write(home: Home, shape: dict[str, Any]) -> None:
    """Say that the gateway is ready."""
    files.atomic_write(home.gateway_record, json.dumps(shape).encode() + b"\n")
