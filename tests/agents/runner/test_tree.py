"""P04: whatever kind of children an agent has, none of them outlives the attempt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.host import processes
from supervisor.kernel.names import TAG_VARIABLE
from tests.agents.runner.kit import KINDS, Lab, running, until


def test_when_the_agent_ends_by_itself(lab: Lab) -> None:
    attempt, pids = lab.family(*KINDS, then="end")
    assert attempt.run() == 5
    record = attempt.record()
    assert (record.code, record.why, record.survivors) == (5, "exit", ())
    assert [kind for kind, pid in pids().items() if running(pid)] == []


@pytest.mark.parametrize(("number", "why"), [(signal.SIGTERM, "stopped"), (signal.SIGHUP, "hangup")], ids=["TERM", "HUP"])
def test_when_the_runner_is_told(lab: Lab, number: int, why: str) -> None:
    attempt, pids = lab.family(*KINDS, grace_s=0.3)
    runner = attempt.start()
    family = pids()
    runner.send_signal(number)
    runner.wait(30)
    assert (attempt.record().why, attempt.record().survivors) == (why, ())
    assert [kind for kind, pid in family.items() if running(pid)] == []


def test_when_the_deadline_passes(lab: Lab) -> None:
    attempt, _ = lab.family(*KINDS, grace_s=0.3, timeout_s=1.0)
    attempt.run()
    assert (attempt.record().why, attempt.record().survivors) == ("timeout", ())
    assert [file.name for file in lab.folder.glob("family-0/[a-z]*") if running(int(file.read_text()))] == []


def test_an_agent_that_keeps_forking_is_caught(lab: Lab) -> None:
    program = "echo ready; i=0; while [ $i -lt 200 ]; do (trap '' TERM; sleep 60; echo left) & i=$((i+1)); sleep 0.005; done; wait"
    attempt = lab.attempt("sh", "-c", program, grace_s=0.2)
    runner = attempt.start()
    attempt.heard()
    runner.terminate()
    runner.wait(60)
    assert attempt.record().survivors == ()
    assert processes.tagged(attempt.spec.tag) == []


def test_whoever_was_handed_the_tag_goes_and_others_stay(lab: Lab) -> None:
    """A build server that the agent only talked to started a process with the agent's environment."""
    attempt = lab.attempt("sleep", "60")
    runner = attempt.start()
    until(attempt.started, "started.json")
    sleeps = [
        subprocess.Popen(["sleep", "60"], env={TAG_VARIABLE: tag})
        for tag in (attempt.spec.tag, attempt.spec.tag + "0", attempt.spec.tag[:-1])
    ]
    try:
        runner.terminate()
        runner.wait(30)
        assert sleeps[0].wait(30) == -signal.SIGTERM
        assert [other.poll() for other in sleeps[1:]] == [None, None]
    finally:
        for each in sleeps:
            each.kill()
            each.wait()


def test_output_that_nobody_had_read_when_the_agent_ended_is_kept(lab: Lab) -> None:
    """A pipe can hold 1 MB, and the runner may sleep just then."""
    program = """
import fcntl, os, sys
fcntl.fcntl(1, 1031, 2**20)  # F_SETPIPE_SZ
os.write(1, b'!')
os.read(os.open(sys.argv[1], os.O_RDONLY), 1)
os.write(1, b'x' * 500_000)
"""
    os.mkfifo(lab.folder / "go")
    attempt = lab.attempt(sys.executable, "-I", "-S", "-c", program, str(lab.folder / "go"))
    runner = attempt.start()
    assert attempt.heard() == b"!"
    (agent,) = Path(f"/proc/{runner.pid}/task/{runner.pid}/children").read_text().split()
    runner.send_signal(signal.SIGSTOP)
    (lab.folder / "go").write_text("x")
    until(lambda: not running(int(agent)), "the agent has ended")
    runner.send_signal(signal.SIGCONT)
    assert runner.wait(30) == 0
    assert len(attempt.read("stdout.log")) == 500_001


def test_output_written_while_stopping_is_kept(lab: Lab) -> None:
    """More than a pipe holds: an agent that reports at its end must not hang on a runner that no longer reads."""
    program = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b'x' * 500_000), os._exit(0)))
os.write(1, b'!')
while True:
    signal.pause()
"""
    attempt = lab.attempt(sys.executable, "-I", "-S", "-c", program)
    runner = attempt.start()
    attempt.heard()
    os.kill(runner.pid, signal.SIGTERM)
    assert runner.wait(30) == 0
    assert len(attempt.read("stdout.log")) == 500_001
