"""The gate of an attempt: a second command where the agent was, once that has exited with 0."""

from __future__ import annotations

import signal
import time

import pytest

from supervisor.kernel.records import GateExit
from tests.agents.runner.kit import Lab, Server, running, until


def shell(text: str) -> tuple[str, ...]:
    return "sh", "-c", text


def gate_of(lab: Lab, gate: str, agent: str = "true", **changes: object) -> tuple[GateExit, bytes]:
    """Run both; how the gate ended, and its log."""
    attempt = lab.attempt(*shell(agent), gate=shell(gate), **changes)
    assert attempt.run() == 0
    record = attempt.record()
    assert (record.code, record.why, record.survivors) == (0, "exit", ())
    assert record.gate is not None
    return record.gate, attempt.read("gate.log")


def test_it_runs_where_the_agent_was_on_what_that_left(lab: Lab) -> None:
    gate, log = gate_of(
        lab, "cat made; pwd; echo $WHO; echo bad >&2; exit 3", "echo agent > made; echo out", env=(("PATH", "/usr/bin:/bin"), ("WHO", "me"))
    )
    assert (gate.code, gate.signal, gate.why) == (3, None, "exit")
    assert log == f"agent\n{lab.folder}\nme\nbad\n".encode()
    assert lab.attempts[0].read("stdout.log") == b"out\n"


def test_it_runs_in_the_same_sandbox_and_limits(lab: Lab) -> None:
    gate, log = gate_of(
        lab, "ulimit -n; echo $INSIDE", wrap=("env", "INSIDE=yes"), rlimits=(("NOFILE", 77),), env=(("PATH", "/usr/bin:/bin"),)
    )
    assert (gate.code, log) == (0, b"77\nyes\n")


@pytest.mark.parametrize("agent", ["exit 4", "kill -9 $$", "sleep 60"])
def test_an_agent_that_failed_has_none(lab: Lab, agent: str) -> None:
    attempt = lab.attempt(*shell(agent), gate=shell("true"), timeout_s=0.1 if "sleep" in agent else 0.0)
    attempt.run()
    assert attempt.record().gate is None
    assert not (attempt.directory / "gate.log").exists()


def test_its_time_is_its_own(lab: Lab) -> None:
    gate, log = gate_of(lab, "echo begun; exec sleep 60", "sleep 0.3", timeout_s=30.0, gate_timeout_s=0.2)
    assert (gate.why, gate.signal, log) == ("timeout", signal.SIGTERM, b"begun\n")
    slow, _ = gate_of(lab, "sleep 0.3", timeout_s=0.2)
    assert (slow.why, slow.code) == ("exit", 0)


def test_the_time_that_the_agent_stood_still_is_none_of_the_gates(lab: Lab) -> None:
    attempt = lab.attempt(*shell("true"), gate=shell("sleep 60"), gate_timeout_s=0.1)
    (attempt.directory / "paused").write_text("1000.5 0.0")
    assert attempt.run() == 0
    assert (gate := attempt.record().gate) is not None
    assert gate.why == "timeout"


def test_one_that_is_not_there_says_so(lab: Lab) -> None:
    attempt = lab.attempt(*shell("true"), gate=("no-such-gate",))
    assert attempt.run() == 0
    assert (gate := attempt.record().gate) is not None
    assert (gate.why, gate.code, gate.detail) == ("exec", None, "no-such-gate: no such command on the PATH that the agent gets")


def test_what_it_leaves_running_is_stopped(lab: Lab) -> None:
    _, log = gate_of(lab, "setsid sleep 120 & echo $!")
    assert not running(int(log))


def test_a_stop_reaches_it(lab: Lab) -> None:
    attempt = lab.attempt(*shell("true"), gate=shell("echo begun; exec sleep 60"))
    runner = attempt.start()
    until(lambda: (attempt.directory / "gate.log").exists() and attempt.read("gate.log"), "the gate begins")
    runner.terminate()
    runner.wait()
    assert (attempt.record().why, attempt.record().code) == ("stopped", 0)


def test_in_a_pane_that_the_agent_owned_its_output_is_shown_and_logged(lab: Lab, server: Server) -> None:
    attempt = lab.attempt(*shell("tty"), mode="terminal", gate=shell("echo from the gate; exit 2"))
    server.open(attempt)
    until(attempt.exit, "exit.json")
    assert (gate := attempt.record().gate) is not None
    assert (gate.code, attempt.read("gate.log")) == (2, b"from the gate\n")
    until(lambda: "from the gate" in server.screen(), "the pane shows it")


def test_an_agent_whose_result_is_there_is_ended_and_its_gate_runs(lab: Lab) -> None:
    """The supervisor says so by a file; not while the agent is paused, or everything stands still."""
    sentinel = lab.folder / "sentinel"
    attempt = lab.attempt(*shell("echo result; sleep 600"), gate=shell("sleep 0.1; echo looked"), sentinel=str(sentinel))
    (attempt.directory / "paused").write_text(f"0.0 {time.monotonic()}")
    runner = attempt.start()
    attempt.heard()
    (attempt.directory / "finished").touch()
    sentinel.touch()
    until((attempt.directory / "stopped").exists, "everything to stand still")
    (attempt.directory / "paused").write_text("1.0 0.0")
    assert runner.poll() is None
    sentinel.unlink()
    runner.wait(60)
    record = attempt.record()
    assert (record.why, record.code, record.signal, record.survivors) == ("finished", None, signal.SIGTERM, ())
    assert record.gate is not None and (record.gate.why, record.gate.code, attempt.read("gate.log")) == ("exit", 0, b"looked\n")
