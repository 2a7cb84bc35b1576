"""What a crew of analysts is measured against: its pieces in a `multiprocessing.Pool`, with no supervisor, sessions, worktrees or records.

    python -I -m supervisor.bench.analyst_pool CHECKOUT

reads its order as JSON from stdin (`jobs`: environments of analysts; `workers`, `nice`, `cores`) and prints the seconds from making the
pool to its last result. Its workers are forked with everything imported, as a warm process forks analysts.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from agents.analysts import survey
from agents.analysts.parameters import read
from agents.analysts.progress import Progress
from supervisor.core.analysis import analyst_json
from supervisor.core.errors import ToolFailed, last_line
from supervisor.core.spec import Settings
from supervisor.host import cores
from supervisor.host.clock import SystemClock


def seconds(checkout: Path, jobs: Sequence[Mapping[str, str]], workers: int) -> float:
    """What a pool takes for `jobs` in this order, on the cores of a crew and as nice. Raises ToolFailed when one of them failed."""
    order = {"jobs": jobs, "workers": workers, "nice": Settings().nice, "cores": cores.choose(0, None, cores.topology())}
    argv = [sys.executable, "-I", "-m", "supervisor.bench.analyst_pool", os.fspath(checkout)]
    done = subprocess.run(argv, input=json.dumps(order), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolFailed("the pool failed", on=str(checkout), why=last_line(done.stderr))
    return float(done.stdout)


def _work(job: dict[str, str]) -> int:
    """One piece, as `agents.analysts` does it; the length of its answer."""
    parameters = read(job)
    facts = survey.survey(parameters, Path.cwd(), Progress(parameters.perspective, SystemClock(), sys.stderr))
    return len(analyst_json.write(facts))


def main() -> None:
    """Do the order."""
    order = json.loads(sys.stdin.read())
    os.chdir(sys.argv[1])
    os.nice(order["nice"])
    if order["cores"]:
        os.sched_setaffinity(0, order["cores"])
    began = time.monotonic()
    with multiprocessing.get_context("fork").Pool(order["workers"]) as pool:
        sizes = pool.map(_work, order["jobs"], chunksize=1)
    took = time.monotonic() - began
    if not all(sizes):
        sys.exit("a piece gave nothing")
    print(took)


if __name__ == "__main__":
    main()
