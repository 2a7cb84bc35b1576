"""The agent keeps its terminal: foreground, Ctrl-C, Ctrl-Z, window size; and cannot type into it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import shutil
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from supervisor.sandbox import exec_step
from tests.agents.runner.kit import Lab, tmux_server, until
from tests.host.sandbox.kit import PYTHON, Box

pytestmark = pytest.mark.in_turns

RUNNER = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])
print('ended', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
"""What the runner does on a terminal."""

AGENT = """
import os, signal, sys
def say(*words): os.write(1, (' '.join(map(str, words)) + os.linesep).encode())
def interrupted(*_): say('interrupted'); os._exit(5)
signal.signal(signal.SIGINT, interrupted)
signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b'size %d %d\\n' % os.get_terminal_size()))
open('/dev/tty').close()
say('ready', os.isatty(0), os.tcgetpgrp(0) == os.getpgrp() == os.getpid())
while True: signal.pause()
"""
HEADLESS = """
import os, signal
def interrupted(*_): os.write(1, b'interrupted\\n'); os._exit(5)
signal.signal(signal.SIGINT, interrupted)
os.write(1, b'ready %d\\n' % (os.tcgetpgrp(os.open('/dev/tty', os.O_RDONLY)) == os.getpgrp() == os.getpid()))
while True: signal.pause()
"""
TYPES = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSTI, b'x'); print('typed')"


class Screen:
    """The other end of a terminal in which a runner lives."""

    def __init__(self, master: int) -> None:
        self.master = master
        self.text = ""

    def expect(self, words: str, timeout_s: float = 20) -> None:
        """Read until `words` have come."""
        deadline = time.monotonic() + timeout_s
        while words not in self.text:
            left = deadline - time.monotonic()
            assert left > 0, f"waited in vain for {words!r}: {self.text!r}"
            if select.select([self.master], [], [], left)[0]:
                try:
                    self.text += os.read(self.master, 4096).decode(errors="replace")
                except OSError:
                    raise AssertionError(f"it ended without {words!r}: {self.text!r}") from None

    def type(self, keys: bytes) -> None:
        """As a person would."""
        os.write(self.master, keys)

    def resize(self, rows: int, columns: int) -> None:
        """As tmux does."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextlib.contextmanager
def screen(cwd: Path, command: Sequence[str]) -> Iterator[Screen]:
    """`command` under a runner on a terminal of its own, killed afterwards."""
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execv(PYTHON[0], [*PYTHON, "-c", RUNNER, *command])  # noqa: S606 - no shell is the point
    try:
        yield Screen(master)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(master)


def test_ctrl_c_and_the_window_reach_the_agent_alone(box: Box) -> None:
    with screen(box.house.worktree, [*box.prefix, *PYTHON, "-c", AGENT]) as it:
        it.expect("ready True True")
        it.resize(33, 77)
        it.expect("size 77 33")
        it.type(b"\x03")
        it.expect("interrupted")
        it.expect("ended 5")


def test_ctrl_c_reaches_an_agent_that_reads_no_terminal(box: Box) -> None:
    with screen(box.house.worktree, ["sh", "-c", 'exec "$@" < /dev/null', "sh", *box.prefix, *PYTHON, "-c", HEADLESS]) as it:
        it.expect("ready 1")
        it.type(b"\x03")
        it.expect("interrupted")
        it.expect("ended 5")


def test_an_agent_without_a_terminal_is_asked_nothing_and_hears_ctrl_c(box: Box, tmp_path: Path) -> None:
    """As the runner starts one that works by itself."""
    program = "(: </dev/tty) 2>/dev/null && echo terminal; trap 'exit 42' INT; sleep 600 & echo ready; while :; do sleep 0.05; done"
    lab = Lab(tmp_path)
    attempt = lab.attempt("sh", "-c", program, wrap=box.prefix, cwd=str(box.house.worktree), grace_s=0.2)
    with tmux_server() as server:
        server.open(attempt)
        assert attempt.heard() == b"ready\n"
        server.tmux("send-keys", "-t", "=agent:", "C-c")
        record = until(attempt.exit, "exit.json")
    assert (record.code, record.why, record.survivors) == (42, "exit", ())


TRIES = """
import os, signal, subprocess, sys
signal.signal(signal.SIGINT, lambda *_: (os.write(1, b'mine\\n'), os._exit(5)))
subprocess.run([*sys.argv[1:], 'true'], stdin=subprocess.DEVNULL, check=True)
os.write(1, b'tried\\n')
while True: signal.pause()
"""
"""A program at a terminal, such as `nightcrew up`, that tries a sandbox out."""


def test_who_tries_a_sandbox_out_keeps_the_terminal(box: Box) -> None:
    with screen(box.house.worktree, [*PYTHON, "-c", TRIES, *box.prefix]) as it:
        it.expect("tried")
        it.type(b"\x03")
        it.expect("mine")
        it.expect("ended 5")


def test_words_of_a_command_are_not_ours(box: Box) -> None:
    done = subprocess.run([*box.prefix, "echo", "@post", "@terminal", "--", "@mask", "x"], cwd=box.house.worktree, capture_output=True)
    assert done.stdout == b"@post @terminal -- @mask x\n"


def test_an_agent_that_does_not_catch_ctrl_c_ends_by_it(box: Box) -> None:
    with screen(box.house.worktree, [*box.prefix, "sh", "-c", "trap 'echo asked' HUP; echo up; exec sleep 600"]) as it:
        it.expect("up")
        it.type(b"\x03")
        it.expect("ended 130")


def test_job_control_in_a_shell(box: Box) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    with screen(box.house.worktree, [*box.prefix, bash, "--norc", "-i"]) as it:
        it.type(b"sh -c 'echo be''gun; exec sleep 600'\n")
        it.expect("begun")
        it.type(b"\x1a")
        it.expect("Stopped")
        it.type(b"disown %1; exit 9\n")
        it.expect("ended 9")
    assert "no job control" not in it.text


def test_it_cannot_type_into_the_terminal_it_shares(box: Box) -> None:
    with screen(box.house.worktree, [*box.prefix, *PYTHON, "-c", TYPES]) as it:
        it.expect("ended 1")
    assert "PermissionError" in it.text


def test_without_a_sandbox_it_can(tmp_path: Path) -> None:
    legacy = Path("/proc/sys/dev/tty/legacy_tiocsti")
    if legacy.exists() and legacy.read_text().strip() == "0":
        pytest.skip("this kernel forbids it to everybody")
    with screen(tmp_path, [*PYTHON, "-c", TYPES]) as it:
        it.expect("typed")


def test_a_terminal_that_hangs_up_as_it_is_looked_at_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening it and asking for its foreground; the sandbox is made all the same."""
    near, far = pty.openpty()
    os.close(near)
    monkeypatch.setattr(exec_step, "own_terminal", lambda: far)
    pid = os.fork()
    if pid == 0:
        status = 3
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            status = 0 if exec_step.foreground_terminal() == -1 else 4
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(far)
