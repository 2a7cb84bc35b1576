"""Compiling our small clients in C, those of a pane and of hooks: one static program each, where the machine has a C compiler."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

_USAGE = 64  # what each of them exits with when it is started without arguments
_TIMEOUT_S = 60.0


def build(source: Path, directory: Path) -> Path | None:
    """The program of the C file `source` in `directory`, compiled only when it is not there for this very source.

    None where there is no working compiler; a client in Python serves then. Static, because a dynamic loader costs each
    start more than the client itself; dynamic where the system has no static library (macOS). Each result is tried before it counts.
    Raises OSError when `directory` cannot be written.
    """
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    target = directory / f"client-{digest}"
    if target.exists() and _works(target):
        return target
    with tempfile.TemporaryDirectory(prefix=".client-", dir=directory) as folder:
        draft = Path(folder) / "client"
        for link in (["-static"], []):
            if _run(["cc", "-Os", "-s", *link, "-o", os.fspath(draft), os.fspath(source)]) == 0 and _works(draft):
                draft.rename(target)
                return target
    return None


def _works(client: Path) -> bool:
    return _run([os.fspath(client)]) == _USAGE


def _run(argv: list[str]) -> int | None:
    """Its exit status; None when it could not be started or took too long."""
    quiet = subprocess.DEVNULL
    try:
        return subprocess.run(argv, stdin=quiet, stdout=quiet, stderr=quiet, timeout=_TIMEOUT_S, check=False).returncode
    except (OSError, subprocess.TimeoutExpired):
        return None
