"""The supervisor as a service: what starts it by itself is kept in `service.json` of the state."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from supervisor.host import autostart, files, processes
from supervisor.host.autostart import Entry
from supervisor.host.paths import Home
from supervisor.kernel.errors import NightcrewError, NotFound
from supervisor.server import lock

WATCHED = "NIGHTCREW_SERVICE"
"""Set in the environment of a supervisor that is started again when it dies."""


def install(home: Home, entry: Entry, environ: Mapping[str, str]) -> None:
    """Write it, and the environment in which the supervisor is to start. An older entry of the other way is removed first."""
    files.private_dir(home.root)
    with contextlib.suppress(NotFound):
        if _read(home)["by"] != entry.by:
            remove(home)
    record = {"schema": 1, "by": entry.by, "env": autostart.consented(environ)}
    files.atomic_write(home.root / "service.json", json.dumps(record, indent=2).encode() + b"\n")
    try:
        autostart.write(home, entry)
    except (NightcrewError, OSError):
        (home.root / "service.json").unlink()
        raise


def remove(home: Home) -> None:
    """Raises NotFound when it is not installed, Refused for a unit that is not ours."""
    autostart.remove(home, autostart.supervisor(home, str(_read(home)["by"])))
    (home.root / "service.json").unlink()


def environment(home: Home) -> dict[str, str] | None:
    """What the supervisor is to start with; None when it is not installed."""
    with contextlib.suppress(NotFound):
        return {str(name): str(text) for name, text in _read(home)["env"].items()}
    return None


def status(home: Home) -> dict[str, Any]:
    """`installed`, `by`, `wrong` (words; empty: it is as it was written), `supervisor` (pid or null) and whether that is `watched`."""
    try:
        by = str(_read(home)["by"])
    except NotFound:
        by = ""
    pid = lock.holder(home.lock)
    return {
        "installed": bool(by),
        "by": by or None,
        "wrong": _wrong(home, by) if by else "",
        "supervisor": pid,
        "watched": pid is not None and processes.has_variable(pid, WATCHED),
    }


def _wrong(home: Home, by: str) -> str:
    try:
        return autostart.wrong(autostart.supervisor(home, by))
    except NightcrewError as error:
        return error.line()


def _read(home: Home) -> dict[str, Any]:
    try:
        shape = json.loads((home.root / "service.json").read_bytes())
        if shape["by"] in (autostart.SYSTEMD, autostart.CRON) and isinstance(shape["env"], dict):
            return dict(shape)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise NotFound("the service is not installed", on=str(home.root), hint="nightcrew service install")
