"""What a client promises its pane, for the compiled and the Python one: one contract."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from agents import zygote
from agents.zygote import Place
from supervisor.host import procfs
from tests.agents.runner.kit import running, until
from tests.agents.zygote.kit import Warm

WAIT = ("sh", "-c", "echo $$; exec sleep 60")


def test_the_zygote_forks_the_runner_and_the_client_has_its_status(warm: Warm) -> None:
    attempt = warm.attempt("sh", "-c", "echo $PPID; exit 7")
    assert warm.run(attempt) == (7, "")
    started, record = attempt.started(), attempt.record()
    assert started is not None
    assert started.identity.pid == int(attempt.read("stdout.log"))
    assert (record.code, record.signal, record.why) == (7, None, "exit")


def test_the_runner_is_a_child_of_the_zygote_in_a_session_of_its_own_and_shown_as_one(warm: Warm) -> None:
    attempt = warm.attempt(*WAIT)
    client = warm.start(attempt)
    runner = warm.runner(attempt)
    seen = procfs.look(runner)
    assert seen is not None and seen.ppid == warm.pid()
    assert os.getsid(runner) == runner
    command = procfs.slurp(f"/proc/{runner}/cmdline").rstrip(b"\0").split(b"\0")
    assert command[-2:] == [os.fsencode(zygote.pane_argv(warm.place, attempt.directory, None)[-2]), os.fsencode(attempt.directory)]
    os.kill(runner, signal.SIGTERM)
    assert client.wait(30) == 128 + signal.SIGTERM


def test_a_forked_runner_handles_signals_as_one_that_was_started(warm: Warm) -> None:
    def signals(pid: int) -> dict[str, int]:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return {line[:6]: int(line.split()[1], 16) for line in lines if line.startswith(("SigBlk", "SigIgn", "SigCgt"))}

    forked, started = warm.attempt(*WAIT), warm.lab.attempt(*WAIT)
    clients = warm.start(forked), started.start()
    forked.heard(), started.heard()
    here, there = signals(warm.runner(forked)), signals(warm.runner(started))
    assert (here["SigBlk"], here["SigCgt"]) == (there["SigBlk"], there["SigCgt"])
    assert here["SigIgn"] & ~there["SigIgn"] == 0, "one that was started may have inherited more"
    for client in clients:
        client.terminate()
        client.wait(30)


@pytest.mark.parametrize(("number", "why"), [(signal.SIGTERM, "stopped"), (signal.SIGHUP, "hangup"), (signal.SIGINT, "stopped")])
def test_a_signal_to_the_client_reaches_the_runner(warm: Warm, number: signal.Signals, why: str) -> None:
    attempt = warm.attempt(*WAIT)
    client = warm.start(attempt)
    agent = int(attempt.heard())
    client.send_signal(number)
    assert client.wait(30) == 128 + signal.SIGTERM
    assert (attempt.record().why, attempt.record().signal) == (why, signal.SIGTERM)
    assert not running(agent)


def test_without_a_zygote_it_starts_cold_and_says_so(warm: Warm) -> None:
    warm.place = Place(warm.place.socket.with_name("nobody"))
    attempt = warm.attempt("sh", "-c", "exit 5")
    status, said = warm.run(attempt)
    assert (status, attempt.record().code) == (5, 5)
    assert said == "nightcrew: the warm process does not answer: No such file or directory; starting cold\n"


def test_where_no_socket_can_be_it_starts_cold_too(warm: Warm) -> None:
    warm.place = Place(warm.lab.folder / ("x" * 108))
    attempt = warm.attempt("sh", "-c", "exit 5")
    status, said = warm.run(attempt)
    assert (status, attempt.record().code) == (5, 5)
    assert said.startswith("nightcrew: the warm process does not answer: ") and said.endswith(" too long; starting cold\n")


def test_an_environment_too_large_to_hand_over_starts_cold(warm: Warm) -> None:
    attempt = warm.attempt("sh", "-c", "exit 5")
    status, said = warm.run(attempt, {**os.environ, "LARGE": "x" * 100_000, "TOO": "x" * 100_000})
    assert (status, said) == (5, "nightcrew: the environment is too large to hand over; starting cold\n")


def test_what_the_zygote_refuses_starts_cold(warm: Warm) -> None:
    """It does not know where we are, so it takes no relative directory."""
    attempt = warm.attempt("sh", "-c", "exit 5")
    argv = [*warm.argv(attempt)[:-1], attempt.directory.name]
    client = subprocess.run(argv, cwd=attempt.directory.parent, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    assert (client.returncode, attempt.record().code) == (5, 5)
    assert client.stderr == "nightcrew: the warm process refused: it names no absolute directory; starting cold\n"


def test_a_second_runner_of_the_epoch_leaves(warm: Warm) -> None:
    attempt = warm.attempt("sh", "-c", "echo ran")
    assert warm.run(attempt)[0] == 0
    status, said = warm.run(attempt)
    assert (status, said) == (75, "nightcrew: run/task:1 has a runner already\n")
    assert attempt.read("stdout.log") == b"ran\n"


def test_used_wrongly_it_says_how(warm: Warm) -> None:
    argv = warm.argv(warm.attempt("true"))
    done = subprocess.run(argv[: argv.index(str(warm.place.socket)) + 2], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (64, b"nightcrew: usage: client SOCKET COLD_COMMAND ATTEMPT_DIR\n")


def test_the_environment_and_the_terminals_name_are_the_panes(warm: Warm) -> None:
    attempt = warm.attempt("env", env=(("PATH", "/usr/bin:/bin"), ("ONLY", "this")))
    poison = {"TERM": "the-panes", "PYTHONPATH": "poison", "LD_PRELOAD_": "poison", "NIGHTCREW_TAG": "poison"}
    assert warm.run(attempt, poison) == (0, "")
    assert sorted(attempt.read("stdout.log").decode().split()) == ["ONLY=this", "PATH=/usr/bin:/bin", "TERM=the-panes"]


def test_killing_the_client_ends_nothing(warm: Warm) -> None:
    attempt = warm.attempt("sh", "-c", "echo begun; until test -e go; do sleep 0.01; done; exit 9")
    client = warm.start(attempt)
    attempt.heard()
    client.kill()
    client.wait()
    (warm.lab.folder / "go").touch()
    assert until(attempt.exit, "exit.json").code == 9
    assert zygote.find(warm.place) is not None


def test_killing_the_zygote_ends_nothing_and_the_client_still_has_the_status(mortal: Warm) -> None:
    attempt = mortal.attempt("sh", "-c", "echo begun; until test -e go; do sleep 0.01; done; exit 9")
    client = mortal.start(attempt)
    attempt.heard()
    record = zygote.find(mortal.place)
    assert record is not None
    os.kill(record.identity.pid, signal.SIGKILL)
    until(lambda: zygote.find(mortal.place) is None, "the zygote's end")
    assert client.poll() is None
    (mortal.lab.folder / "go").touch()
    assert client.wait(30) == 9
    assert attempt.record().code == 9
    assert mortal.run(mortal.attempt("true"))[1].endswith("starting cold\n")


def test_killing_the_runner_kills_the_agent_and_leaves_no_record(warm: Warm) -> None:
    attempt = warm.attempt(*WAIT)
    client = warm.start(attempt)
    agent = int(attempt.heard())
    os.kill(warm.runner(attempt), signal.SIGKILL)
    assert client.wait(30) == 128 + signal.SIGKILL
    until(lambda: not running(agent), "the agent's end")
    assert attempt.exit() is None


def test_killing_zygote_and_runner_tells_the_client_that_the_status_is_lost(mortal: Warm) -> None:
    attempt = mortal.attempt(*WAIT)
    client = mortal.start(attempt)
    agent = int(attempt.heard())
    os.kill(mortal.pid(), signal.SIGKILL)
    os.kill(mortal.runner(attempt), signal.SIGKILL)
    assert client.wait(30) == 70
    until(lambda: not running(agent), "the agent's end")


def test_killing_the_agent_is_recorded(warm: Warm) -> None:
    attempt = warm.attempt(*WAIT)
    client = warm.start(attempt)
    os.kill(int(attempt.heard()), signal.SIGKILL)
    assert client.wait(30) == 128 + signal.SIGKILL
    assert (attempt.record().code, attempt.record().signal, attempt.record().why) == (None, signal.SIGKILL, "exit")
