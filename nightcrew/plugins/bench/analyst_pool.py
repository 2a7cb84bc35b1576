"""What a crew of analysts is measured against: its pieces in a `multiprocessing.Pool`, with no supervisor, sessions, worktrees or records.

    python -I -m nightcrew.plugins.bench.analyst_pool CHECKOUT

reads its order as JSON from stdin (`jobs`: environments of analysts; `workers`, `nice`, `cores`, `join`: files of a control group) and
prints the seconds from making the pool to its last result, and the processor time of its workers. They are forked with everything imported,
as a warm process forks analysts.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from nightcrew.plugins.analyze import analyst, scores
from nightcrew.plugins.analyze.analyst import Progress, read_parameters
from supervisor.host import cgroups, cores
from supervisor.host.clock import SystemClock
from supervisor.kernel import limits
from supervisor.kernel.errors import ToolFailed, last_line
from supervisor.kernel.spec import Settings
from supervisor.kernel.states import TaskClass


def run(checkout: Path, jobs: Sequence[Mapping[str, str]], workers: int) -> tuple[float, float]:
    """Return the seconds that a pool takes for `jobs` in this order, and its processor time. It has a crew's share of the processor: the
    same cores, niceness and control group. Raises ToolFailed when a job failed."""
    share = limits.processor_share_of(TaskClass.NORMAL, Settings().nice)
    group = cgroups.of_class(cgroups.probe(), TaskClass.NORMAL, share.weight)
    join = group.join_files if group is not None else ()
    order = {"jobs": jobs, "workers": workers, "nice": share.nice, "cores": cores.choose(0, None, cores.topology()), "join": join}
    argv = [sys.executable, "-I", "-m", "nightcrew.plugins.bench.analyst_pool", os.fspath(checkout)]
    done = subprocess.run(argv, input=json.dumps(order), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolFailed("the pool failed", on=str(checkout), why=last_line(done.stderr))
    took, cpu = map(float, done.stdout.split())
    return took, cpu


def _work(job: dict[str, str]) -> int:
    """One piece, as `nightcrew.plugins.analyze` does it; the length of its answer."""
    parameters = read_parameters(job)
    facts = analyst.survey(parameters, Path.cwd(), Progress(parameters.perspective, SystemClock(), sys.stderr))
    return len(scores.write(facts))


def main() -> None:
    """Do the order."""
    order = json.loads(sys.stdin.read())
    os.chdir(sys.argv[1])
    for file in order["join"]:
        Path(file).write_text("0")
    os.nice(order["nice"])
    if order["cores"]:
        os.sched_setaffinity(0, order["cores"])
    began = time.monotonic()
    with multiprocessing.get_context("fork").Pool(order["workers"]) as pool:
        sizes = pool.map(_work, order["jobs"], chunksize=1)
    took = time.monotonic() - began
    if not all(sizes):
        sys.exit("a piece gave nothing")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(took, used.ru_utime + used.ru_stime)


if __name__ == "__main__":
    main()
