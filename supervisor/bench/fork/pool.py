"""The analysts' pieces in a `multiprocessing.Pool`: no supervisor, no sessions, no worktrees, no records.

    python -I -m supervisor.bench.fork.pool CHECKOUT

reads its order as JSON from stdin (`jobs`: environments of analysts; `workers`, `nice`, `cores`) and prints the seconds from making the
pool to its last result. Its workers are forked with everything imported, as a warm process forks analysts.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

from agents.analysts import survey
from agents.analysts.parameters import read
from agents.analysts.progress import Progress
from supervisor.core.analysis import analyst_json
from supervisor.host.clock import SystemClock


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
