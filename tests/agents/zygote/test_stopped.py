"""A zygote that was stopped, or hangs: nobody waits for it for ever, and nobody runs twice when it goes on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents import zygote
from agents.zygote import lifecycle
from supervisor.host import procfs
from tests.agents.runner.kit import Server, until
from tests.agents.zygote import kit
from tests.agents.zygote.kit import PRELOAD, Warm, write_request


@pytest.fixture(params=["c", "python"])
def hasty(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The command of each client in turn, but one that waits for 1 s instead of 10."""
    name = "client.c" if request.param == "c" else "client.py"
    source = Path(zygote.__file__).with_name(name).read_text()
    changed = source.replace("PATIENCE_S = 10", "PATIENCE_S = 1")
    assert changed != source
    file = tmp_path / name
    file.write_text(changed)
    if request.param == "python":
        return [sys.executable, "-I", "-S", str(file)]
    request.getfixturevalue("compiled_client")  # or there is no compiler
    subprocess.run(["cc", "-o", str(tmp_path / "client"), str(file)], check=True)
    return [str(tmp_path / "client")]


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Warm]:
    with kit.living(zygote.Wanted(PRELOAD)) as made, kit.attempts(tmp_path) as lab:
        warm = Warm(made, None, lab)
        os.kill(warm.pid(), signal.SIGSTOP)
        yield warm


def argv(warm: Warm, hasty: list[str], directory: Path) -> list[str]:
    return [*hasty, str(warm.place.socket), *zygote.pane_argv(warm.place, directory, Path("client"))[2:]]


def goes_on(warm: Warm) -> None:
    """It is done with all that came while it was stopped: it serves in order, and each fork of it ended."""
    os.kill(warm.pid(), signal.SIGCONT)
    assert warm.run(warm.attempt("true")) == (0, "")
    until(lambda: not Path(f"/proc/{warm.pid()}/task/{warm.pid()}/children").read_text(), "all reaped")


def test_the_client_starts_cold_and_its_attempt_runs_once(stopped: Warm, hasty: list[str]) -> None:
    attempt = stopped.attempt("sh", "-c", "echo ran; exit 5")
    client = subprocess.Popen(argv(stopped, hasty, attempt.directory), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    attempt.runners.append(client)
    assert client.wait(30) == 5
    goes_on(stopped)
    assert client.communicate(timeout=30)[1] == b"nightcrew: the warm process does not answer: not in time; starting cold\n"
    assert attempt.read("stdout.log") == b"ran\n"


def test_the_pane_keeps_its_terminal_also_when_the_zygote_goes_on(stopped: Warm, hasty: list[str], server: Server) -> None:
    attempt = stopped.attempt("sh", "-c", "stty size </dev/tty; read line; echo got $line; stty size </dev/tty; read line", mode="terminal")
    server.tmux("new-session", "-d", "-s", "agent", "-x", "100", "-y", "30", *argv(stopped, hasty, attempt.directory))
    until(lambda: "30 100" in server.screen(), "the agent")
    goes_on(stopped)
    server.tmux("send-keys", "-t", "=agent:", "hello", "Enter")
    until(lambda: server.screen().count("30 100") == 2, "the agent goes on")
    lines = [line for line in server.screen().splitlines() if line.strip()]
    assert "".join(lines[:-4]) == "nightcrew: the warm process does not answer: not in time; starting cold"
    assert lines[-4:] == ["30 100", "hello", "got hello", "30 100"]
    server.tmux("send-keys", "-t", "=agent:", "Enter")
    assert until(attempt.exit, "exit.json").code == 0


def test_a_client_that_is_ended_meanwhile_starts_nothing(stopped: Warm, hasty: list[str]) -> None:
    attempt = stopped.attempt("sh", "-c", "echo ran")
    client = subprocess.Popen(argv(stopped, hasty, attempt.directory), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    attempt.runners.append(client)
    until(lambda: catches(client.pid, signal.SIGTERM) and waits(client.pid), "it to wait")
    client.terminate()
    assert client.wait(30) == -signal.SIGTERM
    goes_on(stopped)
    assert attempt.started() is None


def catches(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1)


def waits(pid: int) -> bool:
    seen = procfs.look(pid)
    return seen is not None and procfs.slurp(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0] == b"S"


@pytest.mark.parametrize("gone", [False, True], ids=["taken-back", "gone"])
def test_a_runner_that_comes_too_late_leaves_before_it_claims_the_epoch(stopped: Warm, *, gone: bool) -> None:
    attempt = stopped.attempt("sh", "-c", "echo ran")
    null = os.open(os.devnull, os.O_RDWR)
    with socket.socket(socket.AF_UNIX, lifecycle.KIND) as caller:
        caller.settimeout(30)
        caller.connect(os.fspath(stopped.place.socket))
        request = write_request(lifecycle.Request(os.fsencode(attempt.directory), {}))
        socket.send_fds(caller, [request], [null] * 3)
        os.close(null)
        if gone:
            caller.close()
        else:
            caller.shutdown(socket.SHUT_WR)
        goes_on(stopped)
        if not gone:
            assert caller.recv(lifecycle.ANSWER).startswith(b"pid ")
            assert caller.recv(lifecycle.ANSWER).rstrip(b"\0") == b"no it came too late"
    assert attempt.started() is None


def test_a_runner_that_leaves_after_it_said_its_pid_is_no_runner(client: Path | None, tmp_path: Path) -> None:
    """Both looked at the same moment. The test is the zygote here, because no real one can be made to hit that moment."""
    with kit.place() as place, kit.attempts(tmp_path) as lab, socket.socket(socket.AF_UNIX, lifecycle.KIND) as listener:
        warm = Warm(place, client, lab)
        listener.settimeout(30)
        listener.bind(os.fspath(place.socket))
        listener.listen()
        attempt = warm.attempt("sh", "-c", "exit 5")
        process = warm.start(attempt)
        with listener.accept()[0] as caller:
            assert lifecycle.read_request(caller.recv(lifecycle.REQUEST_MAX + 64)) is not None
            for said in (lifecycle.answer("pid", os.getpid()), lifecycle.answer("no", "it came too late")):
                caller.send(said)
            assert process.wait(30) == 5
        assert process.communicate(timeout=30)[1] == b"nightcrew: the warm process refused: it came too late; starting cold\n"
        assert attempt.record().code == 5


def test_whether_it_answers(served: zygote.Place, tmp_path: Path) -> None:
    assert zygote.answers(served)
    assert not zygote.answers(zygote.Place(tmp_path / "nobody"))


def test_one_that_is_stopped_does_not_answer_and_can_be_ended(stopped: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "_ANSWER_S", 1)
    pid = stopped.pid()
    assert not zygote.answers(stopped.place)
    os.kill(pid, signal.SIGCONT)
    assert zygote.answers(stopped.place)
    os.kill(pid, signal.SIGSTOP)
    assert zygote.stop(stopped.place)
    assert procfs.look(pid) is None or not zygote.find(stopped.place)
