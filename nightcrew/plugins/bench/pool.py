"""What a crew is measured against: its work in a `multiprocessing.Pool`, with no supervisor, sessions, worktrees or records.

    python -I -m nightcrew.plugins.bench.pool DIRECTORY

reads its order as JSON from stdin (`call`: MODULE:FUNCTION; `jobs`: what each call gets; `workers`; `chunk`). The workers are forked with
everything imported, as a warm process forks agents.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from supervisor.kernel.errors import ToolFailed, last_line


def run(directory: Path, call: str, jobs: Sequence[Any], workers: int, chunk: int) -> None:
    """Have a pool do `jobs` in this order. Raises ToolFailed when a job failed."""
    order = {"call": call, "jobs": jobs, "workers": workers, "chunk": chunk}
    argv = [sys.executable, "-I", "-m", "nightcrew.plugins.bench.pool", os.fspath(directory)]
    done = subprocess.run(argv, input=json.dumps(order), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolFailed("the pool failed", on=call, why=last_line(done.stderr))


def main() -> None:
    """Do the order."""
    order = json.loads(sys.stdin.read())
    os.chdir(sys.argv[1])
    sys.path.insert(0, sys.argv[1])
    module, _, name = order["call"].partition(":")
    function = getattr(importlib.import_module(module), name)
    with multiprocessing.get_context("fork").Pool(order["workers"]) as pool:
        pool.map(function, order["jobs"], chunksize=order["chunk"])


if __name__ == "__main__":
    main()
