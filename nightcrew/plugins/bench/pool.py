"""What a crew is measured against: its work in a `multiprocessing.Pool`, with no supervisor, sessions, worktrees or records.

    python -I -m nightcrew.plugins.bench.pool DIRECTORY

reads its order as JSON from stdin (`call`: MODULE:FUNCTION; `jobs`: what each call gets; `workers`, `chunk`, `nice`, `cores`, `join`: files
of a control group) and prints `took`, the seconds from making the pool to its last result, `cpu_s`, the processor time of its workers, and
the `results`. The workers are forked with everything imported, as a warm process forks agents.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from supervisor.kernel.errors import ToolFailed, last_line


def run(directory: Path, call: str, jobs: Sequence[Any], workers: int, **more: Any) -> dict[str, Any]:
    """Have a pool do `jobs` in this order. Raises ToolFailed when a job failed."""
    order = {"call": call, "jobs": jobs, "workers": workers, "chunk": 1, "nice": 0, "cores": None, "join": (), **more}
    argv = [sys.executable, "-I", "-m", "nightcrew.plugins.bench.pool", os.fspath(directory)]
    done = subprocess.run(argv, input=json.dumps(order), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolFailed("the pool failed", on=call, why=last_line(done.stderr))
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def main() -> None:
    """Do the order."""
    order = json.loads(sys.stdin.read())
    os.chdir(sys.argv[1])
    sys.path.insert(0, sys.argv[1])
    module, _, name = order["call"].partition(":")
    function = getattr(importlib.import_module(module), name)
    for file in order["join"]:
        Path(file).write_text("0")
    os.nice(order["nice"])
    if order["cores"]:
        os.sched_setaffinity(0, order["cores"])
    began = time.monotonic()
    with multiprocessing.get_context("fork").Pool(order["workers"]) as pool:
        results = pool.map(function, order["jobs"], chunksize=order["chunk"])
    took = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"took": took, "cpu_s": used.ru_utime + used.ru_stime, "results": results}))


if __name__ == "__main__":
    main()
