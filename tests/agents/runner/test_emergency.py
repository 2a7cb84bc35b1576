"""The emergency stop, as runners honour it: with no supervisor at all, from before the agent's first step to its end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from agents.runner.loop import EmergencyStop
from supervisor.host import procfs
from tests.agents.runner.kit import Attempt, Lab, until

COUNTS = 'sh -c "sleep 600" & i=0; while [ ! -e go ]; do i=$((i + 1)); echo $i; sleep 0.02; done; exit 7'


@pytest.fixture
def sentinel(tmp_path: Path) -> Path:
    return tmp_path / "everything"


def counts(attempt: Attempt) -> int:
    return attempt.read("stdout.log").count(b"\n") if (attempt.directory / "stdout.log").exists() else 0


def states(runner: int) -> set[str]:
    return {seen.state for seen in procfs.descendants(runner)}


def held(attempt: Attempt) -> bool:
    return (attempt.directory / "stopped").exists()


def test_an_agent_stands_still_and_goes_on(lab: Lab, sentinel: Path) -> None:
    """All of it, and what was stopped before stays so."""
    attempt = lab.attempt("sh", "-c", COUNTS, sentinel=str(sentinel))
    runner = attempt.start()
    until(lambda: counts(attempt) > 3 and len(procfs.descendants(runner.pid)) >= 3, "it to count")
    (sleeper,) = [seen for seen in procfs.descendants(runner.pid) if b"sleep\x00600" in procfs.slurp(f"/proc/{seen.pid}/cmdline")][-1:]
    os.kill(sleeper.pid, signal.SIGSTOP)
    until(lambda: "T" in states(runner.pid), "the kernel to stop it")
    sentinel.touch()
    until(lambda: held(attempt), "it to stand still")
    before = counts(attempt)
    assert states(runner.pid) <= set("TDZX"), "none of their code runs: D is inside of the kernel, and is stopped when it leaves that"
    sentinel.unlink()
    until(lambda: counts(attempt) > before, "it to count on")
    until(lambda: not held(attempt), "the record to go")
    assert procfs.look(sleeper.pid) is not None and "T" in states(runner.pid)
    (Path(os.fsdecode(attempt.spec.cwd)) / "go").touch()
    assert runner.wait(60) == 7


def test_a_command_does_not_begin_before_the_thaw(lab: Lab, sentinel: Path) -> None:
    sentinel.touch()
    attempt = lab.attempt("sh", "-c", "echo up; exit 3", sentinel=str(sentinel), timeout_s=5.0)
    runner = attempt.start()
    until(attempt.started, "the runner to claim the attempt")
    until(lambda: procfs.descendants(runner.pid) == [] and runner.poll() is None, "it to wait")
    assert not (attempt.directory / "stdout.log").exists()
    sentinel.unlink()
    assert runner.wait(60) == 3


def test_it_can_be_ended_meanwhile_and_does_not_move_for_that(lab: Lab, sentinel: Path) -> None:
    attempt = lab.attempt("sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done", sentinel=str(sentinel))
    runner = attempt.start()
    attempt.heard()
    sentinel.touch()
    until(lambda: held(attempt), "it to stand still")
    runner.terminate()
    runner.wait(60)
    assert (attempt.record().why, attempt.read("stdout.log")) == ("stopped", b"up\n")


def test_its_time_stands_still(sentinel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sentinel.parent)
    stop = EmergencyStop(os.fsencode(sentinel), list, list)
    stop.step()
    assert stop.stood_still() == 0
    sentinel.touch()
    stop.step()
    once = until(stop.stood_still, "time to pass")
    sentinel.unlink()
    stop.step()
    total = stop.stood_still()
    stop.step()
    assert stop.stood_still() == total >= once
