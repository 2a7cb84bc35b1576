"""The runner where it lives: as the process of a real tmux pane."""

from __future__ import annotations

import pytest

from tests.agents.runner.kit import KINDS, Lab, Server, running, until


def test_a_terminal_agent_owns_the_pane(lab: Lab, server: Server) -> None:
    program = "test -t 0 && test -t 1 && test -t 2 && stty size && tty && ps -o stat= -p $$; echo TERM=$TERM; read line; echo got $line"
    attempt = lab.attempt("sh", "-c", program, mode="terminal")
    server.open(attempt)
    screen = until(lambda: server.screen() if "TERM=" in server.screen() else None, "the agent wrote to the pane")
    lines = [line.rstrip() for line in screen.splitlines() if line.strip()]
    assert lines[0] == "30 100"
    assert lines[1].startswith("/dev/pts/")
    assert "+" in lines[2], "the agent is the terminal's foreground group"
    assert lines[3] == "TERM=screen"
    server.tmux("send-keys", "-t", "=agent:", "hello", "Enter")
    record = until(attempt.exit, "exit.json")
    assert (record.code, record.truncated) == (0, {})
    assert "got hello" in server.screen()
    assert not (attempt.directory / "stdout.log").exists()


def test_a_headless_agent_is_shown_in_the_pane(lab: Lab, server: Server) -> None:
    attempt = lab.attempt("sh", "-c", "echo to out; echo to err >&2; test -t 1 || echo TERM=$TERM; exit 7")
    server.open(attempt)
    until(attempt.exit, "exit.json")
    # Not `pane_dead_status`: tmux 3.3a was seen to miss the SIGCHLD and leave the status empty for good, with plain `sh` panes too.
    until(lambda: server.tmux("display-message", "-p", "-t", "=agent:", "#{pane_dead}") == "1\n", "the pane is dead")
    assert {"to out", "to err", "TERM=screen"} <= set(server.screen().splitlines())
    assert (attempt.read("stdout.log"), attempt.read("stderr.log")) == (b"to out\nTERM=screen\n", b"to err\n")


@pytest.mark.parametrize("mode", ["headless", "terminal"])
def test_ctrl_c_in_the_pane_reaches_the_agent_alone(lab: Lab, server: Server, mode: str) -> None:
    attempt = lab.attempt("sh", "-c", "trap 'exit 42' INT; echo ready; while :; do sleep 0.05; done", mode=mode)
    server.open(attempt)
    until(lambda: "ready" in server.screen(), "the agent runs")
    server.tmux("send-keys", "-t", "=agent:", "C-c")
    record = until(attempt.exit, "exit.json")
    assert (record.code, record.why) == (42, "exit")


@pytest.mark.parametrize("mode", ["headless", "terminal"])
def test_nobody_outlives_a_killed_session(lab: Lab, server: Server, mode: str) -> None:
    """P04; plain tmux leaves five of these six."""
    attempt, pids = lab.family(*KINDS, grace_s=0.3, mode=mode)
    server.open(attempt)
    family = pids()
    server.tmux("kill-session", "-t", "=agent")
    record = until(attempt.exit, "exit.json")
    assert (record.why, record.survivors) == ("hangup", ())
    assert [kind for kind, pid in family.items() if running(pid)] == []


def test_a_flood_leaves_the_pane_and_the_server_usable(lab: Lab, server: Server) -> None:
    """L06 scaled down to 200 MB."""
    attempt = lab.attempt("sh", "-c", "yes 0123456789 | head -c 200000000; echo the end", log_max=1_000_000)
    server.open(attempt)
    record = until(attempt.exit, "exit.json")
    assert record.truncated["stdout"] > 198_000_000
    server.tmux("send-keys", "-t", "=keep:", "x")
    until(lambda: "not shown here" in server.screen(), "the pane says what it left out")


def test_output_for_programs_is_logged_and_not_shown(lab: Lab, server: Server) -> None:
    attempt = lab.attempt("sh", "-c", "echo to out; echo to err >&2; echo last >&2", quiet=True)
    server.open(attempt)
    until(lambda: "last" in server.screen(), "the pane shows standard error")
    until(attempt.exit, "exit.json")
    assert "to err" in server.screen() and "to out" not in server.screen()
    assert attempt.read("stdout.log") == b"to out\n"


ASKS = "(read answer </dev/tty) 2>/dev/null && echo asked || echo nobody to ask"


def test_nobody_is_asked_in_the_pane_of_an_agent_that_works_by_itself(lab: Lab, server: Server) -> None:
    """ssh with a host's key, git with a password, sudo: each asks on the controlling terminal. The gate has none either."""
    attempt = lab.attempt("sh", "-c", ASKS, gate=("sh", "-c", ASKS), timeout_s=20, gate_timeout_s=20)
    server.open(attempt)
    record = until(attempt.exit, "exit.json")
    assert record.why == "exit" and record.gate is not None and record.gate.why == "exit"
    assert attempt.read("stdout.log") == attempt.read("gate.log") == b"nobody to ask\n"


def test_one_that_answers_ctrl_c_keeps_the_pane_as_its_terminal(lab: Lab, server: Server) -> None:
    attempt = lab.attempt("sh", "-c", "echo ready; read answer </dev/tty; echo told $answer", mode="listening")
    server.open(attempt)
    until(lambda: "ready" in server.screen(), "the agent runs")
    server.tmux("send-keys", "-t", "=agent:", "well", "Enter")
    assert until(attempt.exit, "exit.json").code == 0
    assert attempt.read("stdout.log") == b"ready\ntold well\n"
