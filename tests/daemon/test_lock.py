"""One supervisor, its children included."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from supervisor.core.errors import Refused
from supervisor.daemon import lock
from supervisor.daemon.lock import DaemonLock
from tests.support import wait_until

HOLDER = """
import os, subprocess, sys
from pathlib import Path
from supervisor.daemon.lock import DaemonLock
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
