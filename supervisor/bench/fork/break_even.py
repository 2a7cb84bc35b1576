"""Whether a snapshot pays: a real set-up, frozen once, and the first task that starts from it."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

from supervisor.bench.fork import fixtures
from supervisor.bench.fork.fixtures import DEPENDENCIES, Size
from supervisor.bench.supervised_run import SupervisedRun
from supervisor.core.errors import ToolFailed
from supervisor.core.snapshot_advice import Times, break_even
from supervisor.core.snapshots import Snapshot, SnapshotSpec
from supervisor.core.spec import TaskSpec
from worktrees.repository import Repository

PACKAGE = "iniconfig"
"""A small one without dependencies: what is measured is an installer at work, and the index of whoever runs this serves it."""
NAME = "deps"


def measure(side: SupervisedRun, source: Path, seed: int, fallback: Size, index: bool) -> tuple[dict[str, Any], str]:
    """The figures of `snapshot` for the repository `source`, and in words what its set-up was.

    That is a virtual environment with one package from the package index where that answers (and `index` allows to ask); where it does
    not, a copy of generated files of size `fallback`.
    """
    repo = side.repository(source)
    row, command, words = _made(side, repo, seed, fallback, index)
    before = time.time()
    run = side.submit(repo, [TaskSpec("first", "first", "shell", ("sh", "-c", command), snapshot=NAME)])
    (exit_,) = side.exits(side.ended(run))
    taken = side.measured(row)
    times = Times(row.setup_s, row.freeze_s, taken.fork_s or 0.0, taken.work_s or 0.0)
    figures = {
        "setup_s": round(row.setup_s, 3),
        "freeze_s": round(row.freeze_s, 3),
        "first_run_s": round(exit_.ended - before, 3),
        "break_even_runs": break_even(times),
    }
    return figures, words


def _made(side: SupervisedRun, repo: Repository, seed: int, fallback: Size, index: bool) -> tuple[Snapshot, str, str]:
    """The snapshot, the command of a task that uses what it holds, and what its set-up was."""
    why = "not asked"
    if index:
        venv = f"{shlex.quote(sys.executable)} -m venv .venv"
        setup = (venv, f".venv/bin/python -m pip install --quiet {PACKAGE}")
        check = f".venv/bin/python -c 'import {PACKAGE}'"
        try:
            row = side.snapshot(repo, SnapshotSpec(NAME, setup=setup, verify=(check,)))
        except ToolFailed as error:
            why = error.why or error.line()
        else:
            return row, check, f"a virtual environment and pip install {PACKAGE}"
    generated = side.home.root.parent / "generated"
    fixtures.dependencies(generated, seed, fallback)
    row = side.snapshot(repo, SnapshotSpec(NAME, setup=(f"cp -a {shlex.quote(str(generated))} {DEPENDENCIES}",)))
    return row, f"test -d {DEPENDENCIES}/package000", f"a copy of {fallback.files} generated files (package index: {why})"
