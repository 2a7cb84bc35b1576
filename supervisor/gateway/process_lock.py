"""The gateway's lock, and the file by which others find it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable
from typing import Any

import supervisor
from supervisor.core.errors import Refused
from supervisor.core.gateway.settings import Upstream
from supervisor.host import files, foreign, procfs
from supervisor.host.clock import Clock
from supervisor.host.paths import Home

SCHEMA = 1
_WAIT_S = 2.0
_LOOK_S = 0.02
_RECORD_MAX = 64 * 2**10


def lock(home: Home) -> int:
    """Be the one gateway of this home until the process ends; the lock's handle. Raises Refused when another lives on for 2 s."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        handle = os.open(home.gateway_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if _taken(handle):
            return handle
        os.close(handle)
        if time.monotonic() > deadline:
            pid = read(home).get("pid", "unknown")
            raise Refused("a gateway is already running", on=f"pid {pid}", why=f"it holds {home.gateway_lock}", kept="it and its streams")
        time.sleep(_LOOK_S)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read(home: Home) -> dict[str, Any]:
    """What the last gateway wrote, which may be long gone; empty when there is nothing, or nothing that makes sense."""
    data = foreign.read_plain(home.gateway_record, _RECORD_MAX)
    try:
        shape = json.loads(data or b"{}")
    except ValueError:
        return {}
    return shape if isinstance(shape, dict) and shape.get("schema") == SCHEMA else {}


def kept_port(home: Home) -> int:
    """The port of the last gateway: agents that outlived it still send there. 0 when there is none."""
    port = read(home).get("port", 0)
    return port if isinstance(port, int) and 0 < port < 65536 else 0


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
        "upstreams": [{"name": upstream.name, "api": str(upstream.api)} for upstream in upstreams],
    }


def write(home: Home, shape: dict[str, Any]) -> None:
    """Say that the gateway is ready."""
    files.atomic_write(home.gateway_record, json.dumps(shape).encode() + b"\n")
