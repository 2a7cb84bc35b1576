"""One supervisor, its children included."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.host import processes
from supervisor.kernel.errors import Refused
from supervisor.kernel.names import Identity
from supervisor.server import lock
from supervisor.server.lock import DaemonLock
from tests.support import wait_until

HOLDER = """
import os, subprocess, sys
from pathlib import Path
from supervisor.server.lock import DaemonLock
held = DaemonLock(Path(sys.argv[1]))
child = subprocess.Popen(["sh", "-c", "read line < " + sys.argv[2]], pass_fds=(held.handle,), stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_a_killed_holders_child_keeps_the_next_one_waiting_until_it_ends(tmp_path: Path) -> None:
    path, gate = tmp_path / "lock", tmp_path / "gate"
    os.mkfifo(gate)
    argv = [sys.executable, "-c", HOLDER, str(path), str(gate)]
    holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    holder.stdout.readline()
    assert lock.holder(path) == holder.pid
    with pytest.raises(Refused, match=str(holder.pid)):
        DaemonLock(path)
    holder.kill()
    holder.communicate()
    assert lock.holder(path) is None, "a dead supervisor is none, though its child still holds the lock"
    taken: list[DaemonLock] = []
    waiter = threading.Thread(target=lambda: taken.append(DaemonLock(path)))
    waiter.start()
    assert waiter.is_alive() and not taken
    gate.write_text("end\n")
    waiter.join(30)
    wait_until(lambda: taken, "the lock to be taken over")
    assert lock.holder(path) == os.getpid()
    taken[0].close()
    assert lock.holder(path) is None


def test_a_state_directory_that_is_moved_or_cannot_be_read_is_not_removed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    held = DaemonLock(home / "lock")

    def is_removed() -> bool:
        return held.is_removed

    home.chmod(0)
    assert not is_removed()
    home.chmod(0o700)
    moved = home.rename(tmp_path / "moved")
    home.mkdir()
    assert not is_removed(), "another directory has its name"
    shutil.rmtree(moved)
    assert is_removed()
    held.close()


HUNG = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in sys.argv else lambda *_: sys.exit("its own locks are removed"))
print("ready", flush=True)
if "stopped" in sys.argv:
    os.kill(os.getpid(), signal.SIGSTOP)
os.close(os.open(sys.argv[1], os.O_RDONLY))
"""


@pytest.mark.parametrize("how", ["blocked", "stopped", "deaf"])
def test_a_killed_holders_child_that_hangs_is_ended_by_the_next_one(tmp_path: Path, how: str) -> None:
    path, gate = tmp_path / "home" / "lock", tmp_path / "gate"
    path.parent.mkdir()
    os.mkfifo(gate)
    hung = [sys.executable, "-c", HUNG, str(gate), how]
    with killed_holder(path, hung) as child, watching(path.parent) as bystander:
        taken = DaemonLock(path)
        assert lock.holder(path) == os.getpid()
        taken.close()
        wait_until(lambda: not processes.alive(child), "the hung child to be ended")
        assert bystander.poll() is None, "who only has the directory open is nobody's business"


def test_a_supervisor_that_has_not_yet_written_its_pid_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it wrote last is a dead one's pid, and its child holds the lock by an inherited handle, as a killed one's would."""
    monkeypatch.setattr(lock, "HANDOVER_S", 0.5)
    monkeypatch.setattr(lock, "ASK_S", 0.0)
    monkeypatch.setattr(lock, "END_S", 0.1)
    path = tmp_path / "lock"
    path.write_text("1 1\n")
    script = "import fcntl, os, subprocess, sys; fd = os.open(sys.argv[1], os.O_RDONLY); fcntl.flock(fd, fcntl.LOCK_EX)\n"
    script += "child = subprocess.Popen(['cat'], pass_fds=(fd,)); print(child.pid, flush=True); child.wait()"
    with subprocess.Popen([sys.executable, "-c", script, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        child = int(other.stdout.readline())
        with pytest.raises(Refused):
            DaemonLock(path)
        assert other.poll() is None and processes.identity(child) is not None
        other.communicate()


@contextlib.contextmanager
def killed_holder(path: Path, argv: list[str]) -> Iterator[Identity]:
    """A child, running `argv`, of a holder of the lock that was killed; it inherited the lock."""
    script = "import subprocess, sys; from pathlib import Path; from supervisor.server.lock import DaemonLock\n"
    script += (
        "held = DaemonLock(Path(sys.argv[1])); child = subprocess.Popen(sys.argv[2:], pass_fds=(held.handle,), stdout=subprocess.PIPE)\n"
    )
    script += "child.stdout.readline(); print(child.pid, flush=True); child.wait()"
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(path), *argv], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert holder.stdout is not None
    child = processes.identity(int(holder.stdout.readline()))
    assert child is not None
    holder.kill()
    holder.communicate()
    try:
        yield child
    finally:
        processes.send(child, signal.SIGKILL)


@contextlib.contextmanager
def watching(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the directory open."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    process = subprocess.Popen(["sleep", "600"], cwd=folder, stdin=handle)
    os.close(handle)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
