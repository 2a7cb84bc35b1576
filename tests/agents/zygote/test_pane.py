"""A zygote's fork in a real pane: the terminal is the agent's own, whoever had it before."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents import zygote
from tests.agents.runner.kit import KINDS, Attempt, Server, running, until
from tests.agents.zygote import kit
from tests.agents.zygote.kit import PRELOAD, Warm


def open_pane(server: Server, warm: Warm, attempt: Attempt) -> None:
    server.tmux("new-session", "-d", "-s", "agent", "-x", "100", "-y", "30", *warm.argv(attempt))


def shown(server: Server, text: str) -> None:
    until(lambda: text in server.screen(), f"{text!r} in the pane:\n{server.screen()}")


def keys(server: Server, *names: str) -> None:
    server.tmux("send-keys", "-t", "=agent:", *names)


def test_a_terminal_agent_owns_the_pane(warm: Warm, server: Server) -> None:
    program = "test -t 0 && test -t 1 && test -t 2 && stty size </dev/tty; ps -o stat= -p $$; echo TERM=$TERM; read line; echo got $line"
    attempt = warm.attempt("sh", "-c", program, mode="terminal")
    open_pane(server, warm, attempt)
    shown(server, "TERM=")
    lines = [line.rstrip() for line in server.screen().splitlines() if line.strip()]
    assert lines[0] == "30 100"
    assert "+" in lines[1], "the agent is the terminal's foreground group"
    assert lines[2] == "TERM=screen"
    assert server.tmux("display-message", "-p", "-t", "=agent:", "#{pane_current_command}") == "sh\n"
    keys(server, "hello", "Enter")
    assert until(attempt.exit, "exit.json").code == 0
    assert "got hello" in server.screen()
    until(lambda: server.tmux("display-message", "-p", "-t", "=agent:", "#{pane_dead}") == "1\n", "the pane is dead")


def test_a_shell_has_job_control(warm: Warm, server: Server) -> None:
    attempt = warm.attempt("bash", "--norc", "-i", mode="terminal", env=(("PATH", os.environ["PATH"]), ("PS1", "ready> ")))
    open_pane(server, warm, attempt)
    shown(server, "ready>")
    keys(server, "sleep 61", "Enter")
    until(lambda: server.tmux("display-message", "-p", "-t", "=agent:", "#{pane_current_command}") == "sleep\n", "the shell's child")
    keys(server, "C-z")
    shown(server, "Stopped")
    keys(server, "fg", "Enter")
    until(lambda: server.tmux("display-message", "-p", "-t", "=agent:", "#{pane_current_command}") == "sleep\n", "it is back")
    keys(server, "C-c")
    keys(server, "exit 3", "Enter")
    assert until(attempt.exit, "exit.json").code == 3
    assert "no job control" not in server.screen()


TALK = """
import os, signal, sys, decimal
signal.signal(signal.SIGWINCH, lambda *_: print("size", *os.get_terminal_size(), flush=True))
print("forked" if "colorsys" in sys.modules else "cold", *os.get_terminal_size(), os.getpgrp() == os.tcgetpgrp(0))
print("hello", input("name? "), open("/dev/tty").isatty(), flush=True)
signal.pause()
while True:
    signal.pause()
"""


def test_a_warm_program_talks_is_resized_and_interrupted(warm: Warm, server: Server) -> None:
    attempt = warm.program(TALK, mode="terminal")
    open_pane(server, warm, attempt)
    shown(server, "name?")
    assert server.screen().splitlines()[0].rstrip() == "forked 100 30 True"
    assert server.tmux("display-message", "-p", "-t", "=agent:", "#{pane_current_command}").startswith("python")
    keys(server, "you", "Enter")
    shown(server, "hello you True")
    server.tmux("resize-window", "-t", "=agent:", "-x", "90", "-y", "20")
    shown(server, "size 90 20")
    keys(server, "C-c")
    record = until(attempt.exit, "exit.json")
    assert (record.signal, record.why) == (signal.SIGINT, "exit")
    assert "KeyboardInterrupt" in server.screen()


@pytest.mark.parametrize("mode", ["headless", "terminal"])
def test_ctrl_c_in_the_pane_reaches_the_agent_alone(warm: Warm, server: Server, mode: str) -> None:
    attempt = warm.attempt("sh", "-c", "trap 'exit 42' INT; echo ready; while :; do sleep 0.05; done", mode=mode)
    open_pane(server, warm, attempt)
    shown(server, "ready")
    keys(server, "C-c")
    record = until(attempt.exit, "exit.json")
    assert (record.code, record.why) == (42, "exit")


@pytest.fixture
def deaf(compiled_client: Path, tmp_path: Path) -> Iterator[Warm]:
    """A zygote that inherited ignored and blocked signals, as from `&` in a script."""
    old = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGWINCH)}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM, signal.SIGCHLD])
    try:
        with kit.place() as place, kit.attempts(tmp_path) as lab:
            child = zygote.start(place, zygote.Wanted(PRELOAD), os.environ)
            try:
                for number, handler in old.items():
                    signal.signal(number, handler)
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                yield Warm(place, compiled_client, lab)
            finally:
                child.process.kill()
                child.process.wait()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_what_the_zygote_inherited_makes_no_agent_deaf(deaf: Warm, server: Server) -> None:
    attempt = deaf.program(TALK, mode="terminal")
    open_pane(server, deaf, attempt)
    shown(server, "name?")
    status = Path(f"/proc/{deaf.runner(attempt)}/status").read_text()
    ignored = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn")), 16)
    assert not ignored >> (signal.SIGWINCH - 1) & 1
    keys(server, "C-c")
    assert until(attempt.exit, "exit.json").signal == signal.SIGINT
    assert zygote.stop(deaf.place), "and the zygote itself hears TERM"
    assert not deaf.place.socket.exists(), "it ended in good order"


@pytest.mark.parametrize("mode", ["headless", "terminal"])
def test_nobody_outlives_a_killed_session(warm: Warm, server: Server, mode: str) -> None:
    attempt, pids = warm.lab.family(*KINDS, grace_s=0.3, mode=mode, warm=True)
    open_pane(server, warm, attempt)
    family = pids()
    server.tmux("kill-session", "-t", "=agent")
    record = until(attempt.exit, "exit.json")
    assert (record.why, record.survivors) == ("hangup", ())
    assert [kind for kind, pid in family.items() if running(pid)] == []


def test_killing_a_panes_client_closes_the_pane_and_is_recorded_as_that(warm: Warm, server: Server) -> None:
    attempt = warm.attempt("sh", "-c", "echo ready; exec sleep 60")
    open_pane(server, warm, attempt)
    shown(server, "ready")
    os.kill(int(server.tmux("display-message", "-p", "-t", "=agent:", "#{pane_pid}")), signal.SIGKILL)
    record = until(attempt.exit, "exit.json")
    assert (record.why, record.survivors) == ("hangup", ())
    assert zygote.find(warm.place) is not None


def test_killing_the_zygote_leaves_the_pane_as_it_is(mortal: Warm, server: Server) -> None:
    attempt = mortal.program(TALK, mode="terminal")
    open_pane(server, mortal, attempt)
    shown(server, "name?")
    os.kill(mortal.pid(), signal.SIGKILL)
    until(lambda: zygote.find(mortal.place) is None, "the zygote's end")
    keys(server, "still", "Enter")
    shown(server, "hello still True")
    keys(server, "C-c")
    assert until(attempt.exit, "exit.json").signal == signal.SIGINT
    until(lambda: server.tmux("display-message", "-p", "-t", "=agent:", "#{pane_dead}") == "1\n", "the pane is dead")


def test_without_a_zygote_the_pane_gets_its_terminal_back(warm: Warm, server: Server) -> None:
    """Refused after the terminal was given up: the cold runner must have it all the same."""
    attempt = warm.attempt("sh", "-c", "stty size </dev/tty; ps -o stat= -p $$; read line", mode="terminal")
    argv = [*warm.argv(attempt)[:-1], attempt.directory.name]
    server.tmux("new-session", "-d", "-s", "agent", "-x", "100", "-y", "30", "-c", str(attempt.directory.parent), *argv)
    shown(server, "+")
    lines = [line.rstrip() for line in server.screen().splitlines() if line.strip()]
    assert "".join(lines).startswith("nightcrew: the warm process refused: it names no absolute directory; starting cold")
    assert "+" in lines[lines.index("30 100") + 1], "the agent is the terminal's foreground group"
    keys(server, "Enter")
    assert until(attempt.exit, "exit.json").code == 0
