"""`$NIGHTCREW_AGENT`: the command by which an agent reaches the memory, mail and leases, and tasks of its own."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path


def program(directory: Path) -> Path:
    """The command as one executable file in `directory`, made when it is not there. Raises OSError when `directory` cannot be written."""
    start = f"exec {shlex.quote(sys.executable)} -I"
    client = shlex.quote(str(Path(__file__).parent / "client.py"))
    script = f'#!/bin/sh\n[ "$1" = mcp ] && {start} -m supervisor.features.mcp\n{start} -S {client} "$@"\n'
    target = directory / "agent"
    if not target.exists() or target.read_text() != script:
        draft = target.with_suffix(f".{os.getpid()}.{os.urandom(4).hex()}")  # several attempts may begin at once
        draft.write_text(script)
        draft.chmod(0o700)
        draft.replace(target)
    return target
