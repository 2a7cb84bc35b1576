"""What the tests of the runner and of the process door share: attempts in a temporary directory, agents with awkward children, panes."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from supervisor.kernel import names, records
from supervisor.kernel.records import Exit, LaunchSpec, Started
from tests.support import wait_until

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[3]
RUNNER = [sys.executable, "-I", "-S", str(ROOT / "agents" / "runner" / "main.py")]
KINDS = ("plain", "nohup", "pgrp", "setsid", "daemon", "clean")

FAMILY = """
import os, signal, sys

def child(kind):
    if pid := os.fork():
        if kind in ("daemon", "clean"):
            os.waitpid(pid, 0)
        return
    if kind == "nohup":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if kind == "pgrp":
        os.setpgid(0, 0)
    if kind in ("setsid", "daemon", "clean"):
        os.setsid()
    if kind in ("daemon", "clean"):
        if os.fork():
            os._exit(0)
        os.chdir("/")
        null = os.open("/dev/null", os.O_RDWR)
        for handle in range(3):
            os.dup2(null, handle)
    with open(os.path.join(FOLDER, f".{kind}"), "w") as file:
        file.write(str(os.getpid()))
    os.rename(os.path.join(FOLDER, f".{kind}"), os.path.join(FOLDER, kind))
    os.execve("/bin/sleep", ["sleep", "120"], {} if kind == "clean" else os.environ)

FOLDER = sys.argv[1]
for kind in sys.argv[3:]:
    child(kind)
open(os.path.join(FOLDER, ".forked"), "w").close()
if sys.argv[2] == "end":
    while len([name for name in os.listdir(FOLDER) if name[0] != "."]) < len(sys.argv) - 3:
        pass
    sys.exit(5)
signal.pause()
"""
"""An agent with the children named in its arguments: it ends by itself with 5 once they run, or waits for ever.

`.forked` says that the children in between of a double fork are gone, so that a count of the tree is exact.
"""


def until(condition: Callable[[], T | None], what: str, seconds: float = 90.0) -> T:
    """Poll until `condition` gives something true, and return it."""
    found: T | None = None

    def look() -> bool:
        nonlocal found
        found = condition()
        return bool(found)

    wait_until(look, what, seconds, every_s=0.005)
    assert found is not None
    return found


def running(pid: int) -> bool:
    """Whether anything but a zombie has this pid."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Attempt:
    """One attempt's directory and the runners started in it."""

    def __init__(self, directory: Path, spec: LaunchSpec) -> None:
        self.directory = directory
        self.spec = spec
        self.session = False
        """Runners lead a session of their own, as in a pane."""
        self.runners: list[subprocess.Popen[bytes]] = []
        directory.mkdir()
        (directory / "launch.spec").write_bytes(records.write_spec(spec))

    def start(self, environ: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        runner = subprocess.Popen(
            [*RUNNER, str(self.directory)], stdin=quiet, stdout=quiet, stderr=subprocess.PIPE, env=environ, start_new_session=self.session
        )
        self.runners.append(runner)
        return runner

    def run(self, environ: Mapping[str, str] | None = None, timeout_s: float = 60.0) -> int:
        """Run it to its end; the runner's exit status."""
        runner = self.start(environ)
        runner.communicate(timeout=timeout_s)
        return runner.returncode

    def read(self, name: str) -> bytes:
        return (self.directory / name).read_bytes()

    def heard(self) -> bytes:
        """Wait until the agent wrote to its stdout, and give what it wrote."""
        return until(lambda: self.read("stdout.log") if (self.directory / "stdout.log").exists() else b"", "the agent says something")

    def started(self) -> Started | None:
        try:
            return records.parse_started(self.read("started.json").decode("ascii"))
        except FileNotFoundError:
            return None

    def exit(self) -> Exit | None:
        try:
            return records.parse_exit(self.read("exit.json").decode("ascii"))
        except FileNotFoundError:
            return None

    def record(self) -> Exit:
        found = self.exit()
        assert found is not None, "no exit.json"
        return found


class Lab:
    """Attempts and panes of one test; `close` ends every process that they started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.attempts: list[Attempt] = []

    def attempt(self, *argv: str, **changes: object) -> Attempt:
        """An attempt that runs `argv`, with a tag that no other test has."""
        tag = f"{uuid.uuid4().hex[:16]}:run/task:1"
        spec = LaunchSpec(
            task="run/task",
            epoch=1,
            tag=tag,
            argv=argv,
            cwd=str(self.folder),
            env=(("PATH", os.environ["PATH"]), (names.TAG_VARIABLE, tag)),
            grace_s=10.0,
            mark=names.mark(tag),
        )
        made = Attempt(self.folder / f"attempt-{len(self.attempts)}", dataclasses.replace(spec, **changes))  # type: ignore[arg-type]
        self.attempts.append(made)
        return made

    def family(self, *kinds: str, then: str = "wait", **changes: object) -> tuple[Attempt, Callable[[], dict[str, int]]]:
        """An attempt whose agent has children of these kinds, and a call that waits until all run and gives their pids."""
        folder = self.folder / f"family-{len(self.attempts)}"
        folder.mkdir()
        attempt = self.attempt(sys.executable, "-I", "-S", "-c", FAMILY, str(folder), then, *kinds, **changes)

        def pids() -> dict[str, int]:
            until(lambda: all((folder / name).exists() for name in (".forked", *kinds)), "the agent's children run")
            return {kind: int((folder / kind).read_text()) for kind in kinds}

        return attempt, pids

    def close(self) -> None:
        for attempt in self.attempts:
            for runner in attempt.runners:
                runner.kill()
                runner.wait()
                if runner.stderr is not None:
                    runner.stderr.close()
        for file in self.folder.glob("family-*/[a-z]*"):
            if _is_sleep(int(file.read_text())):
                os.kill(int(file.read_text()), signal.SIGKILL)


def _is_sleep(pid: int) -> bool:
    """Whether a family's child left this pid to nobody else."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x00120\x00"
    except OSError:
        return False


class Server:
    """A private tmux server."""

    def __init__(self, folder: Path) -> None:
        self._argv = ["tmux", "-S", str(folder / "tmux.sock"), "-f", "/dev/null"]
        self._environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "SHELL": "/bin/sh", "TERM": "screen", "LANG": "C.UTF-8"}
        self.tmux("new-session", "-d", "-s", "keep", "-x", "80", "-y", "24", "/bin/sleep", "300")
        self.tmux("set-option", "-g", "remain-on-exit", "on")
        self.tmux("set-option", "-g", "default-terminal", "screen")
        self.tmux("set-option", "-g", "history-limit", "200000")  # after its last note a flood may show 64 KiB: 6,000 lines of `yes`

    def tmux(self, *argv: str) -> str:
        done = subprocess.run([*self._argv, *argv], capture_output=True, text=True, env=self._environ, timeout=30, check=True)
        return done.stdout

    def open(self, attempt: Attempt) -> None:
        """A session named `agent` whose pane runs the attempt's runner."""
        self.tmux("new-session", "-d", "-s", "agent", "-x", "100", "-y", "30", *RUNNER, str(attempt.directory))

    def screen(self) -> str:
        """With history: a pane that dies scrolls its first line away."""
        return self.tmux("capture-pane", "-p", "-S", "-", "-t", "=agent:")


@contextmanager
def tmux_server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="nc-"))  # short: a socket's path holds 107 bytes
    server = Server(folder)
    try:
        yield server
    finally:
        with suppress(subprocess.CalledProcessError):
            server.tmux("kill-server")
        shutil.rmtree(folder)


def seen_by_agent(attempt: Attempt) -> list[str]:
    """Run it; the lines that the agent printed."""
    assert attempt.run() == 0, attempt.read("stderr.log")
    return attempt.read("stdout.log").decode().splitlines()
