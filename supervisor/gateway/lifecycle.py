"""The gateway's process: its lock and its record, when the supervisor gives it up, and what keeps others from looking into it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pickle
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import supervisor
from supervisor.host import files, procfs, untrusted_fs
from supervisor.host.clock import Clock
from supervisor.host.paths import Home
from supervisor.kernel.audit import LogFormat, log_format
from supervisor.kernel.errors import NightcrewError, Refused, ToolFailed, from_wire
from supervisor.kernel.gateway_settings import GatewaySettings, Upstream
from supervisor.kernel.names import Identity

# Process lock
# ------------
# The gateway's lock, and the file by which others find it.


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
            found = read_record(home)
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


def read_record(home: Home) -> Record | None:
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
    found = read_record(home)
    return found.port if found is not None else 0


def record_of(port: int, upstreams: Iterable[Upstream], clock: Clock) -> dict[str, Any]:
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
        "upstreams": upstream_names(upstreams),
    }


def upstream_names(upstreams: Iterable[Upstream]) -> list[dict[str, str]]:
    """Return the upstreams as the record has them."""
    return [{"name": upstream.name, "api": str(upstream.api)} for upstream in upstreams]


def write_record(home: Home, shape: dict[str, Any]) -> None:
    """Say that the gateway is ready."""
    files.atomic_write(home.gateway_record, json.dumps(shape).encode() + b"\n")


# Process watch
# -------------
# When the gateway's process is started, believed, and given up. Pure: the daemon tells what it saw, times are monotonic seconds.
#
#     absent ──start──> starting ──answer──> ready ──no answer──> silent ──answer──> ready
#       ^                  │ START_S without an answer                │ HUNG_S without one
#       └──── it died <────┴──────────────── kill ────────────────────┘
#
# A process that lived for less than STEADY_S after it became ready, or never did, died young: the first such is started again at
# once, like
# any other, and each further one waits twice as long, from 1 s to PAUSE_MAX_S.


START_S = 20.0
"""It reads keys (a keyring's program may take its time), opens the account and waits up to 2 s for its port."""
HUNG_S = 10.0
UNANSWERED = 3
"""And so many unanswered questions in a row: a single late answer may only mean that we were stopped ourselves."""
STEADY_S = 60.0
PAUSE_MAX_S = 30.0


@dataclass(slots=True)
class ProcessWatch:
    """What is known of one gateway, or of one engine."""

    start_s: float = START_S
    hung_s: float = HUNG_S
    pause_max_s: float = PAUSE_MAX_S
    ready: bool = False
    """It answered the last question, or one that is not HUNG_S old."""
    young_deaths: int = 0
    """In a row."""
    may_start_at: float = 0.0
    _born: float | None = None
    _ready_since: float | None = None
    _silent_since: float | None = None
    _unanswered: int = 0

    @property
    def failing(self) -> bool:
        """It dies again and again."""
        return self.young_deaths > 1

    @property
    def starting(self) -> bool:
        """We started it, and it has not answered yet."""
        return self._born is not None and self._ready_since is None

    def started(self, now: float) -> None:
        """We started one."""
        self._born, self._silent_since, self._unanswered = now, now, 0

    def answered(self, now: float) -> bool:
        """It answered. Whether it was not ready before."""
        news = not self.ready
        self.ready, self._silent_since, self._unanswered = True, None, 0
        if self._ready_since is None:
            self._ready_since = now
        if now - self._ready_since >= STEADY_S:
            self.young_deaths = 0
        return news

    def unanswered(self, asked_at: float, now: float) -> bool:
        """It lives and did not answer a question. Whether it must be given up: then kill it and report it as dead."""
        if self._silent_since is None:
            self._silent_since = asked_at
        self._unanswered += 1
        silent = now - self._silent_since
        if silent >= self.hung_s:
            self.ready = False
        return silent >= (self.start_s if self.starting else self.hung_s) and self._unanswered >= UNANSWERED

    def died(self, now: float) -> None:
        """Its process is gone. `may_start_at` says when the next one is due."""
        steady = self._ready_since is not None and now - self._ready_since >= STEADY_S
        self.young_deaths = 0 if steady else self.young_deaths + 1
        again = self.young_deaths - 2
        self.may_start_at = now + (min(self.pause_max_s, 2.0**again) if again >= 0 else 0.0)
        self.ready, self._born, self._ready_since, self._silent_since, self._unanswered = False, None, None, None, 0


# Process hardening
# -----------------
# Hardens the process that holds the providers' keys, so that others cannot look into it.


_PR_SET_DUMPABLE = 4  # <linux/prctl.h>
PASSED = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_RUNTIME_DIR",
        "DBUS_SESSION_BUS_ADDRESS", "NIGHTCREW_LOG_FORMAT",
    }
)  # fmt: skip
"""What the supervisor starts it with: what its sockets' place, certificates and a keyring's program depend on. No key and no proxy."""
_KEPT = PASSED | {
    "SHELL", "TZ", "LANGUAGE", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "NIGHTCREW_HOME", "NIGHTCREW_CONFIG",
    "NIGHTCREW_DIE_AT", "NIGHTCREW_TAG",
}  # fmt: skip
"""What it keeps of a person's environment who starts it."""


def clean_environment(env: Mapping[str, str]) -> dict[str, str] | None:
    """What is left of an environment when everything that the gateway has no use for is out; None when nothing is.

    Variables are dropped by starting anew: /proc shows those with which a process began, whatever it does to them later.
    """
    kept = {name: text for name, text in env.items() if name in _KEPT or name.startswith("LC_")}
    return kept if kept.keys() != env.keys() else None


def harden() -> list[str]:
    """No core files, no reading of this process's memory and environment by the user's other processes, files and sockets that only
    the user can open. Returns what could not be done, in words for the log.
    """
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems refuse a limit that they themselves call the highest
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # two sockets a stream; the usual 1024 ends at 500 streams
    if not sys.platform.startswith("linux"):
        return ["other processes of this user may be able to read this process's memory: only Linux can forbid it"]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        return [f"other processes of this user may be able to read this process's memory: {os.strerror(ctypes.get_errno())}"]
    return []


# Settings
# --------
# Reading the settings by a process of its own, which ends with it: what checks them (pydantic) takes 11 MB and a fifth of a second, and
# the gateway lives for weeks. It also keeps a damaged file from doing anything here.


_LONGEST_S = 60.0


class Reading:
    """It has begun; other things can be done meanwhile."""

    def __init__(self, config: Path, keys: Path) -> None:
        argv = [sys.executable, "-I", "-m", "supervisor.gateway.lifecycle", str(config), str(keys)]
        self._config = config
        self._child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def result(self) -> GatewaySettings:
        """What `load_gateway` gives. Blocks. Raises what it raises, and ToolFailed."""
        with self._child as child:
            try:
                data, _ = child.communicate(timeout=_LONGEST_S)
                found = pickle.loads(data)  # noqa: S301 - our own child wrote it
            except (subprocess.TimeoutExpired, pickle.UnpicklingError, EOFError) as error:
                child.kill()
                raise ToolFailed("cannot read the settings", on=str(self._config), why=type(error).__name__) from error
        if isinstance(found, GatewaySettings):
            return found
        raise from_wire(found)


def read(config: Path, keys: Path) -> GatewaySettings:
    """The settings as they are now. Blocks. Raises ConfigError as every file does, and ToolFailed."""
    return Reading(config, keys).result()


def _main(config: str, keys: str) -> None:
    from supervisor.config import user

    found: object
    try:
        found = user.load_gateway(Path(config), Path(keys))
    except NightcrewError as error:
        found = error.to_wire()
    sys.stdout.buffer.write(pickle.dumps(found))


if __name__ == "__main__":
    _main(*sys.argv[1:])
