"""How fast the built-in agent starts as a fork of a warm process.

    python -I -m nightcrew.plugins.bench.builtin_start DIRECTORY STARTS

prints the median of the milliseconds from the fork to the first request at the provider. A process of its own, since all that it has
imported is forked.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import nightcrew.plugins.builtin.preload  # noqa: F401 - it is what is measured
from agents.printing import Records
from nightcrew.plugins.bench.figures import median_ms
from nightcrew.plugins.builtin import agent as run
from nightcrew.plugins.sim.child import Simulator
from supervisor.kernel.gateway_settings import Limits


def forked(work: Callable[[], object]) -> float:
    """Do it in a fork of this process, and wait for its end; when the fork was asked for, monotonic seconds."""
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        work()
        os._exit(0)
    os.waitpid(pid, 0)
    return began


def agent(repo: Path) -> None:
    """One run of ours."""
    os.chdir(repo)
    sys.argv[1:] = []
    run.main(Records(os.open(os.devnull, os.O_WRONLY), os.environ["NIGHTCREW_OUT"]), os.environ)


def measure(place: Path, runs: int) -> float:
    """Return the median, in milliseconds. `place`: a directory with a repository `repo`, for the rest that an agent needs."""
    gc.collect()
    gc.freeze()
    with Simulator(limits=Limits()) as sim:
        (place / "prompt").write_text("Do it.")
        own = {"NIGHTCREW_PROMPT_FILE": f"{place}/prompt", "NIGHTCREW_OUT": str(place)}
        os.environ.update(ANTHROPIC_BASE_URL=sim.url, ANTHROPIC_AUTH_TOKEN="t", **own)  # noqa: S106 - a simulated provider takes any
        starts = []
        for _ in range(runs):
            sim.faults(text="Done.", times=1)
            began = forked(lambda: agent(place / "repo"))
            starts.append(sim.last()[-1]["at"] - began)
    return median_ms(starts)


if __name__ == "__main__":
    print(measure(Path(sys.argv[1]), int(sys.argv[2])))
