"""The client under faults: a hung or dead tmux, a dead client, many threads, processes left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import termios
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import psutil
import pytest

from agents.tmux import ServerGone, SessionExists, Tmux, command_line
from agents.tmux_control import LINE_MAX
from supervisor.kernel.errors import ToolFailed, ToolMissing

from .conftest import AskTmux, WaitUntil, lives

BRIEF_S = 0.5


def clients(ask_tmux: AskTmux) -> list[int]:
    return [int(pid) for pid in ask_tmux("list-clients", "-F", "#{client_pid}").split()]


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def runs(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def hanging_tmux(directory: Path, when: str) -> str:
    """A tmux that hangs in a child of its own while `directory/hang` exists."""
    sleeper = f"sleep 600 & echo $! > {directory}/sleeper; wait"
    return program(directory / "wrapper", f'if [ -e {directory}/hang ] && {when}; then {sleeper}; fi; exec tmux "$@"')


@pytest.mark.parametrize("when", ['[ "$1" = -V ]', '[ "$1" != -V ]'], ids=["first call", "client"])
def test_a_hung_tmux_is_killed_with_its_children_and_the_next_call_works(  # P16
    socket: Path, short_dir: Path, wait_until: WaitUntil, when: str
) -> None:
    hang = short_dir / "hang"
    hang.touch()
    Tmux(socket).ensure_server()
    with Tmux(socket, binary=hanging_tmux(short_dir, when), deadline_s=BRIEF_S) as tmux:
        with pytest.raises(ToolFailed, match="did not answer"):
            tmux.panes()
        sleeper = int((short_dir / "sleeper").read_text())
        wait_until(lambda: not runs(sleeper), "the end of the child that hung")
        hang.unlink()
        assert [pane.control for pane in tmux.panes()] == [True]


def test_a_hung_server_costs_the_deadline_and_no_session(socket: Path, tmp_path: Path) -> None:  # P16
    with Tmux(socket, deadline_s=BRIEF_S) as tmux:
        pane = tmux.spawn("a", ["cat"], tmp_path, {})
        server = tmux.ensure_server()
        os.kill(server, signal.SIGSTOP)
        with pytest.raises(ToolFailed, match="did not answer"):
            tmux.panes()
        assert tmux.server_pid() == server
        os.kill(server, signal.SIGCONT)
        assert lives(tmux, pane.session_id)


def test_a_waiting_thread_gets_its_own_deadline(socket: Path) -> None:
    with Tmux(socket, deadline_s=BRIEF_S) as tmux, ThreadPoolExecutor(4) as threads:
        os.kill(tmux.ensure_server(), signal.SIGSTOP)
        calls = [threads.submit(tmux.panes) for _ in range(4)]
        assert all(isinstance(call.exception(), ToolFailed) for call in calls)


def test_a_killed_client_is_replaced(tmux: Tmux, ask_tmux: AskTmux, tmp_path: Path, wait_until: WaitUntil) -> None:
    pane = tmux.spawn("a", ["cat"], tmp_path, {})
    (first,) = clients(ask_tmux)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: lives(tmux, pane.session_id) and clients(ask_tmux) not in ([], [first]), "a new client")


def test_a_closed_control_session_is_made_again(tmux: Tmux, ask_tmux: AskTmux) -> None:
    tmux.ensure_server()
    tmux.panes()
    ask_tmux("kill-session", "-t", "=_control")
    assert [pane.control for pane in tmux.panes()] == [True]


def test_the_control_session_runs_nothing(tmux: Tmux, wait_until: WaitUntil) -> None:
    tmux.ensure_server()
    (pane,) = tmux.panes()
    assert pane.session_name == "_control"
    wait_until(lambda: tmux.panes()[0].dead, "end of the control session's only program")


def test_the_server_can_be_ended_with_all_in_it(tmux: Tmux, tmp_path: Path, wait_until: WaitUntil) -> None:
    pane = tmux.spawn("a", ["cat"], tmp_path, {})
    tmux.kill_server()
    assert tmux.server_pid() is None
    wait_until(lambda: not runs(pane.pid), "the end of the pane's program")
    tmux.kill_server()


def test_a_killed_server_is_gone_until_a_spawn(tmux: Tmux, socket: Path, tmp_path: Path, wait_until: WaitUntil) -> None:  # P07
    old = tmux.spawn("a", ["cat"], tmp_path, {})
    pid = tmux.ensure_server()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: tmux.server_pid() is None, "end of the server")
    assert socket.exists()
    with pytest.raises(ServerGone, match="up"):
        tmux.panes()
    new = tmux.spawn("a", ["cat"], tmp_path, {})
    assert tmux.server_pid() not in {None, pid}
    assert {pane.pid for pane in tmux.panes()} & {old.pid, new.pid} == {new.pid}


def test_a_client_whose_connection_is_cut_as_it_comes_is_replaced(socket: Path, short_dir: Path) -> None:
    """As tmux 3.3a does to one of twenty that come at once."""
    first = f"mkdir {short_dir}/came 2>/dev/null && echo '%exit server exited unexpectedly' && exit 1"
    binary = program(short_dir / "wrapper", f'case "$*" in *" -C "*) {first};; esac; exec tmux "$@"')
    Tmux(socket).ensure_server()
    with Tmux(socket, binary=binary) as tmux:
        assert [pane.control for pane in tmux.panes()] == [True]
    assert (short_dir / "came").exists()


def test_twenty_cold_starts_give_one_server(socket: Path) -> None:  # L09
    gate = threading.Barrier(20)

    def start(_: int) -> int:
        with Tmux(socket) as tmux:
            gate.wait()
            pid = tmux.ensure_server()
            tmux.panes()
            return pid

    with ThreadPoolExecutor(20) as threads:
        pids = set(threads.map(start, range(20)))
    assert len(pids) == 1
    servers = [one.pid for one in psutil.process_iter(["cmdline"]) if str(socket) in (one.info["cmdline"] or ())]
    assert servers == list(pids)


def test_threads_share_one_client(tmux: Tmux, ask_tmux: AskTmux, tmp_path: Path) -> None:
    def spawn(number: int) -> str:
        pane = tmux.spawn(f"a{number}", ["cat"], tmp_path, {"epoch": str(number)})
        assert {one.pane_id: one for one in tmux.panes()}[pane.pane_id].tags == {"epoch": str(number)}
        return pane.session_id

    with ThreadPoolExecutor(8) as threads:
        sessions = list(threads.map(spawn, range(40)))
    assert len(set(sessions)) == 40
    assert len(clients(ask_tmux)) == 1


def test_two_supervisors_cannot_both_start_an_attempt(socket: Path, tmp_path: Path) -> None:
    gate = threading.Barrier(6)

    def spawn(_: int) -> bool:
        with Tmux(socket) as tmux:
            gate.wait()
            try:
                tmux.spawn("same", ["cat"], tmp_path, {"epoch": "1"})
            except SessionExists:
                return False
            return True

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(spawn, range(6))) == 1


def test_many_clients_at_once_do_not_crash_the_server(socket: Path) -> None:
    """tmux 3.3a dies of news for a half connected client: without the turns in most runs of this test."""
    server = Tmux(socket).ensure_server()
    for _ in range(5):
        gate = threading.Barrier(6)

        def call(_: int, gate: threading.Barrier = gate) -> int:
            with Tmux(socket) as tmux:
                gate.wait()
                return len(tmux.panes())

        with ThreadPoolExecutor(6) as threads:
            assert list(threads.map(call, range(6))) == [1] * 6
    assert Tmux(socket).server_pid() == server


def test_a_client_that_a_killed_supervisor_left_is_ended(socket: Path, tmp_path: Path, wait_until: WaitUntil) -> None:  # P01
    with Tmux(socket) as tmux:
        pane = tmux.spawn("a", ["sh", "-c", "seq 1 9000; exec cat"], tmp_path, {}, size=(80, 20))
        wait_until(lambda: "9000" in tmux.capture(pane.pane_id, history=False), "the output")
        attach = ["tmux", "-S", str(socket), "-C", "attach-session", "-t", pane.session_id]
        left = subprocess.Popen(attach, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert left.stdin is not None and left.stdout is not None
        left.stdin.write(f"capture-pane -p -S - -t {pane.pane_id}\n".encode() * 20)
        left.stdin.flush()
        wait_until(lambda: readable(left.stdout) >= 60_000, "more output than the pipe holds")
        left.stdin.close()
        left.stdout.close()  # what the kernel does to a killed supervisor: tmux has more to say and nobody listens
        tmux.close()
        assert lives(tmux, pane.session_id)
        assert left.wait(60) == -signal.SIGKILL


def readable(pipe: IO[bytes] | None) -> int:
    assert pipe is not None
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4), sys.byteorder)


def test_no_process_and_no_descriptor_is_left(socket: Path, tmp_path: Path) -> None:  # P19
    us = psutil.Process()
    fds, children = us.num_fds(), len(us.children(recursive=True))
    tmux = Tmux(socket, deadline_s=BRIEF_S)
    for number in range(5):
        tmux.spawn(f"a{number}", ["cat"], tmp_path, {})
        tmux.close()
        tmux.close()
    server = tmux.ensure_server()
    os.kill(server, signal.SIGSTOP)
    with pytest.raises(ToolFailed):
        tmux.panes()
    os.kill(server, signal.SIGCONT)
    assert (us.num_fds(), len(us.children(recursive=True))) == (fds, children)


def test_descriptors_are_not_inherited(tmux: Tmux) -> None:
    before = set(os.listdir("/proc/self/fd"))
    tmux.ensure_server()
    tmux.panes()
    opened = [int(fd) for fd in set(os.listdir("/proc/self/fd")) - before if os.path.exists(f"/proc/self/fd/{fd}")]
    assert len(opened) == 2 and not any(map(os.get_inheritable, opened))


def test_an_overlong_command_is_a_clear_error(tmux: Tmux) -> None:
    tmux.ensure_server()
    with pytest.raises(ToolFailed, match=f"at most {LINE_MAX}"):
        tmux._client.request(command_line(("set-option", "-g", "@x", "x" * LINE_MAX)))
    assert tmux.panes()


def test_a_missing_tmux_is_named(socket: Path) -> None:  # I10
    with pytest.raises(ToolMissing, match=r"tmux 3\.3 or newer.*no-such-tmux.*apt install tmux"):
        Tmux(socket, binary="no-such-tmux").ensure_server()


@pytest.mark.parametrize("said", ["tmux 3.2a", "tmux 2.9", "tmux next-3.2"])
def test_an_old_tmux_is_named_with_its_version(socket: Path, tmp_path: Path, said: str) -> None:  # I10
    with pytest.raises(ToolMissing, match=said):
        Tmux(socket, binary=program(tmp_path / "old", f"echo {said}")).ensure_server()


def test_a_build_without_a_number_is_taken(socket: Path, tmp_path: Path) -> None:
    wrapper = program(tmp_path / "master", f'[ "$1" = -V ] && echo tmux master && exit; exec {shutil.which("tmux")} "$@"')
    with Tmux(socket, binary=wrapper) as tmux:
        assert tmux.ensure_server() > 0


@pytest.mark.parametrize("place", ["missing/s", "x" * 200], ids=["no directory", "over 107 bytes"])
def test_a_socket_that_cannot_be_made_is_an_error_at_once(short_dir: Path, place: str) -> None:
    with pytest.raises(ToolFailed, match=place[:7]):
        Tmux(short_dir / place).ensure_server()
