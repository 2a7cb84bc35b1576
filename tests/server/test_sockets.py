"""Sockets, and their directory, that somebody removes while those who listen there live."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from supervisor.client import protocol, start
from supervisor.host import unix_sockets
from supervisor.kernel.errors import NotRunning
from supervisor.server import lock
from tests.support import House, wait_until

AT_WORK = "while [ ! -e go ]; do sleep 0.05; done; echo finished"


def bound(path: Path) -> bool:
    """Whether somebody listens there, and nobody else may come in."""
    if not path.exists() or stat.S_IMODE(path.parent.stat().st_mode) != 0o700:
        return False
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_UNIX, kind) as probe:
            if probe.connect_ex(str(path)) == 0:
                return True
    return False


@pytest.mark.in_turns
@pytest.mark.parametrize("whole", [False, True])
def test_what_somebody_removed_is_bound_again(house: House, whole: bool) -> None:
    """Each socket, or their directory."""
    house.start_daemon()
    house.ok("add", "--id", "agent", AT_WORK)
    wait_until(lambda: house.task("agent").attempt_state == "running", "the agent to run")
    server = house.tmux_pid()
    names = ["daemon.sock", "agents/agents.sock", "hints.sock", "tmux.sock"]
    if whole:
        shutil.rmtree(house.home.run_dir)
    for name in names:
        (house.home.run_dir / name).unlink(missing_ok=True)
    wait_until(lambda: all(bound(house.home.run_dir / name) for name in names), "them to be bound again", 20)
    assert house.tmux_pid() == server, "the server that was there"
    house.ok("add", "-f", "--id", "later", "true")
    Path(house.task("agent").worktree or "", "go").touch()
    house.wait_final()
    assert [(view.state, view.epoch) for view in house.tasks()] == [("done", 1), ("done", 1)]
    alerts = protocol.call(house.home.daemon_socket, "ping", {})["alerts"]
    assert any(f"{house.home.run_dir / names[0]} was removed or replaced, and is bound again" in alert for alert in alerts), alerts
    house.ok("down")
    assert unix_sockets.listeners(house.home.tmux_socket) == [], "no server is left"


def test_a_socket_that_somebody_put_in_its_place_is_taken_away(house: House) -> None:
    daemon = house.start_daemon()
    house.home.daemon_socket.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(house.home.daemon_socket))
        other.listen()
        wait_until(
            lambda: {who.pid for who in unix_sockets.listeners(house.home.daemon_socket)} >= {daemon.pid, os.getpid()}, "both to listen"
        )
        wait_until(lambda: house.ready(), "the supervisor to answer again", 20)


@pytest.mark.in_turns
@pytest.mark.parametrize("verb", [("down",), ("up", "-d"), ("pause", "agent"), ("quota", "x")])
def test_verbs_wait_for_a_socket_that_is_bound_again(house: House, verb: tuple[str, ...]) -> None:
    daemon = house.start_daemon()
    if verb[0] == "pause":
        house.ok("add", "--id", "agent", AT_WORK)
        wait_until(lambda: house.task("agent").attempt_state == "running", "the agent to run")
    house.home.daemon_socket.unlink()
    done = house.run(*verb)
    assert done.returncode == (4 if verb[0] == "quota" else 0), done.stderr
    if verb[0] == "down":
        assert daemon.wait(60) == 0 and "the supervisor left" in done.stderr
    else:
        assert lock.holder(house.home.lock) == daemon.pid


def test_meanwhile_verbs_say_that_a_supervisor_lives_and_how_to_end_it(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = house.start_daemon()
    shutil.rmtree(house.home.run_dir)
    house.home.run_dir.write_text("in the way")
    done = house.run("down")
    said = f"the supervisor cannot be reached pid {daemon.pid}: its socket {house.home.daemon_socket} is gone"
    assert done.returncode == 5 and said in done.stderr and f"kill {daemon.pid}" in done.stderr and "kept: it and its agents" in done.stderr
    monkeypatch.setattr(start, "START_S", 0.2)
    with pytest.raises(NotRunning) as caught:  # as `up -d` does
        start.ensure_running(house.home, house.config, print)
    assert said in caught.value.line()
    os.kill(daemon.pid, signal.SIGTERM)
    assert daemon.wait(20) == 0
    house.home.run_dir.unlink()
    house.start_daemon()


def test_a_tmux_server_whose_socket_was_removed_is_the_next_supervisors_too(house: House) -> None:
    """Not a second one beside it, which nobody would ever end."""
    daemon = house.start_daemon()
    house.ok("add", "--id", "agent", AT_WORK)
    wait_until(lambda: house.task("agent").attempt_state == "running", "the agent to run")
    server = house.tmux_pid()
    daemon.kill()
    daemon.wait()
    shutil.rmtree(house.home.run_dir)
    house.start_daemon()
    assert house.tmux_pid() == server and house.sessions() == {f"{house.task('agent').id}:1"}
    house.ok("kill", "agent")
    shutil.rmtree(house.home.run_dir)
    house.ok("down")
    assert unix_sockets.listeners(house.home.tmux_socket) == [], "no server is left"


@pytest.mark.parametrize("length", [1, 80])
def test_down_leaves_no_socket_and_no_directory_of_them(repo: Path, length: int) -> None:
    """Where the state's path is too long for a socket, they lie below the system's temporary directory."""
    with tempfile.TemporaryDirectory(prefix="nc-") as folder:
        root = Path(folder) / ("d" * length)
        root.mkdir()
        house = House(root, repo)
        assert house.home.run_dir.is_relative_to(house.home.root) is (length == 1)
        try:
            house.start_daemon()
            house.ok("add", "-f", "true")
            house.ok("down")
            assert not house.home.run_dir.exists()
            assert not list(house.home.root.glob("*-wal")) + list(house.home.root.glob("*-shm"))
            assert "no supervisor is running" in house.run("down").stderr
        finally:
            house.reap()
