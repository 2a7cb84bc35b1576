"""What works is found by trying, and what does not is told with its reason."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.doctor import crew
from supervisor.doctor.examine import CheckContext, State
from supervisor.host import processes
from supervisor.sandbox import executors
from supervisor.sandbox.executors import Executor
from supervisor.sandbox.policy import Tier
from tests.host.sandbox.kit import TIERS
from tests.support import House, wait_until


def test_a_tool_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = executors.probe()
    assert found.works[Executor.BUBBLEWRAP] == frozenset()
    assert "bwrap" in found.why_not[Executor.BUBBLEWRAP, Tier.FILES]


def test_one_that_does_not_hide_does_not_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A `bwrap` that only runs its command: it starts well, and must be found out."""
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = executors.probe()
    assert found.works[Executor.BUBBLEWRAP] == frozenset()
    assert found.why_not[Executor.BUBBLEWRAP, Tier.FILES]


HANGS = """#!/bin/sh
# As a bubblewrap of which the outer process is killed: the inner one waits for ever.
sleep 1000 &
echo $! > "${0%/*}/new.$$"
mv "${0%/*}/new.$$" "${0%/*}/hangs.$$"
wait
"""


PROBES = "from supervisor.sandbox import executors; executors.probe()"
SECURES = """
import sys, time
from pathlib import Path
from supervisor.sandbox.policy import Policy
from supervisor.sandbox.executors import Executor
from supervisor.host.scratch import locked_directory
from worktrees import collect_work
with locked_directory(Path(sys.argv[1]), "securing.") as place:
    with collect_work.start(Policy((), (), (), str(place)), Executor.BUBBLEWRAP):
        time.sleep(600)
"""
STARTERS = pytest.mark.parametrize(("program", "count"), [(PROBES, len(TIERS)), (SECURES, 1)], ids=["probes", "secures"])
"""What a supervisor does in sandboxes of its own by bubblewrap, and how many of them it starts."""


@contextlib.contextmanager
def killed_starter(place: Path, program: str, count: int, *, guard_too: bool) -> Iterator[list[int]]:
    """Give the inner processes that a supervisor leaves that is killed while its sandboxes start."""
    fake = place / "bwrap"
    fake.write_text(HANGS)
    fake.chmod(0o755)
    env = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}"}
    prober = subprocess.Popen([sys.executable, "-c", program, str(place)], env=env)
    inner: list[int] = []
    try:
        wait_until(lambda: len(list(place.glob("hangs.*"))) == count, "the sandboxes to wait")
        inner = [int(file.read_text()) for file in place.glob("hangs.*")]
        if guard_too:
            (guard,) = {os.getpgid(pid) for pid in inner}
            assert guard != os.getpgrp()
            os.kill(guard, signal.SIGKILL)
        prober.kill()
        prober.wait()
        yield inner
    finally:
        prober.kill()
        prober.wait()
        for pid in inner:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if (who := processes.identity(pid)) is not None and processes.alive(who)]


@STARTERS
def test_sandboxes_end_with_the_supervisor_that_starts_them(tmp_path: Path, program: str, count: int) -> None:
    with killed_starter(tmp_path, program, count, guard_too=False) as inner:
        wait_until(lambda: not alive(inner), "them to end")


@STARTERS
def test_sandboxes_that_outlive_everybody_are_named_and_ended_by_the_next_probe(
    tmp_path: Path, house: House, program: str, count: int
) -> None:
    with killed_starter(tmp_path, program, count, guard_too=True) as inner:
        assert set(alive(inner)) == set(inner)
        found = crew.leftovers(CheckContext(home=house.home, config=house.config, cwd=house.repo, environ=house.env))
        assert found.state is State.WARN and "a sandbox of a killed supervisor" in found.seen, found
        assert all(str(pid) in found.fix for pid in inner)
        executors.probe()
        assert alive(inner) == []
        assert crew.leftovers(CheckContext(home=house.home, config=house.config, cwd=house.repo, environ=house.env)).state is State.OK


def test_what_works_is_offered() -> None:
    found = executors.probe()
    assert Tier.NONE in found.tiers
    assert set(found.why_not) | {(each, tier) for each in Executor for tier in found.works[each]} == {
        (each, tier) for each in Executor for tier in TIERS
    }
    for tier in TIERS:
        chosen = found.executor(tier)
        assert (chosen is None) == (tier not in found.tiers)
    if shutil.which("bwrap") is None:
        assert found.works[Executor.BUBBLEWRAP] == frozenset()
