"""What an agent's command line runs at each hook: it tells the supervisor, or keeps the event for it. `client.c`, and `client.py` without a
compiler."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from agents import compiling

KEPT = "hooks.jsonl"
"""In the attempt's `out`: a JSON object a line (`at`, wall-clock seconds; `name`; `event`, null when it was too long), of events that no
supervisor took."""


def program(directory: Path) -> Path:
    """The client as one executable file in `directory`, made when it is not there. Raises OSError when `directory` cannot be written."""
    return compiling.build(Path(__file__).parent / "client.c", directory) or script(directory)


def script(directory: Path) -> Path:
    """Make the client in Python as one executable file in `directory`. Raises OSError when `directory` cannot be written."""
    client = Path(__file__).parent / "client.py"
    target = directory / "hook-client"
    draft = target.with_suffix(f".{os.getpid()}.{os.urandom(4).hex()}")  # several attempts may begin at once
    draft.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(client))} "$@"\n')
    draft.chmod(0o700)
    draft.replace(target)
    return target
