"""The page's lock, and the file by which a command finds who serves it."""

from __future__ import annotations

import json
import os
import secrets
import time
from dataclasses import asdict, dataclass

from supervisor.core.errors import NotFound, Refused
from supervisor.core.identity import Identity
from supervisor.host import files, foreign, procfs
from supervisor.host.paths import Home

SCHEMA = 1
_MAX = 4096
_WAIT_S, _LOOK_S = 10.0, 0.05


@dataclass(frozen=True, slots=True)
class Record:
    """`web.json`. It stays when the server is gone: with the same secret a browser goes on with the next one."""

    secret: str
    """In hex."""
    port: int
    identity: Identity | None
    """Who serves, or served last."""

    @property
    def lives(self) -> bool:
        """Whether that process is still there."""
        if self.identity is None or self.identity.boot_id != procfs.boot_id():
            return False
        seen = procfs.look(self.identity.pid)
        return seen is not None and not seen.dead and seen.ticks == self.identity.ticks


def read(home: Home) -> Record | None:
    """None when there is none, or nothing that makes sense."""
    try:
        shape = json.loads(foreign.read_plain(home.web_record, _MAX) or b"")
        who = shape["identity"]
        found = Record(str(shape["secret"]), int(shape["port"]), Identity(int(who["pid"]), int(who["ticks"]), str(who["boot_id"])))
        bytes.fromhex(found.secret)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if shape.get("schema") == SCHEMA and len(found.secret) == 64 and 0 < found.port < 65536 else None


def new_secret() -> str:
    """For a record."""
    return secrets.token_hex(32)


def write(home: Home, secret: str, port: int) -> None:
    """Say that this process serves, when it does. Raises as `files.atomic_write`."""
    me = procfs.look(os.getpid())
    who = Identity(os.getpid(), me.ticks if me else 0, procfs.boot_id())
    shape = {"schema": SCHEMA, "secret": secret, "port": port, "identity": asdict(who)}
    files.atomic_write(home.web_record, json.dumps(shape).encode() + b"\n")


def lock(home: Home) -> int | None:
    """Be the one server of this home until the process ends: a handle, or None when another is, and has said where. One that just begins
    or ends is waited for. Raises NotFound without a state, Refused when it does neither."""
    if not home.root.is_dir():
        raise NotFound("nothing to show", on=str(home.root), why="nothing was ever run here", hint="nightcrew run PLAN")
    handle = os.open(home.web_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + _WAIT_S
    while not files.try_lock(handle):
        found = read(home)
        if found is not None and found.lives:
            os.close(handle)
            return None
        if time.monotonic() > deadline:
            os.close(handle)
            raise Refused("the page is served already", why=f"another process holds {home.web_lock} and has not said where", hint="again")
        time.sleep(_LOOK_S)
    return handle
