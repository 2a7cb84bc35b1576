"""stdout is one line or nothing; what people see is on stderr."""

from __future__ import annotations

import fcntl
import io
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from nightcrew.plugins.analyze import sources
from nightcrew.plugins.analyze.analyst import Progress
from tests.agents.analysts.kit import assert_gone, checkout, environment, run
from tests.support import wait_until

NOISY = """
import os, subprocess, sys
from agents import printing
kept = printing.claim()
print("from python", flush=True)
os.write(1, b"from a library\\n")
subprocess.run(["echo", "from a child"])
subprocess.run([sys.executable, "-c", f"import os\\ntry: os.write({kept}, b'inherited')\\nexcept OSError: pass"], close_fds=False)
print("left in the buffer")
printing.put(kept, "x" * 200_000)
print("too late")
"""


def test_whatever_prints_prints_on_stderr() -> None:
    done = subprocess.run([sys.executable, "-I", "-c", NOISY], capture_output=True, timeout=60, check=True)
    assert done.stdout == b"x" * 200_000 + b"\n"
    for text in (b"from python", b"from a library", b"from a child", b"left in the buffer", b"too late"):
        assert text in done.stderr


NOISY_LOOK = """
import os, runpy
from nightcrew.plugins.analyze import analyst
from supervisor.results.findings import Perspective

look = analyst.LOOKS[Perspective.TESTS]

def noisy(module):
    print("from python", flush=True)
    os.write(1, b"from a library\\n")
    return look(module)

analyst.LOOKS[Perspective.TESTS] = noisy
runpy.run_module("nightcrew.plugins.analyze", run_name="__main__", alter_sys=True)
"""


def test_an_analyst_claims_stdout_before_it_looks(tmp_path: Path) -> None:
    path = checkout(tmp_path / "r", {"a.py": "x = 1\n"})
    argv = [sys.executable, "-I", "-c", NOISY_LOOK]
    done = subprocess.run(argv, cwd=path, env=environment("tests", {}), capture_output=True, timeout=60, check=True)
    assert done.stdout.startswith(b'{"schema":1,')
    assert done.stdout.count(b"\n") == 1
    assert b"from python\n" in done.stderr
    assert b"from a library\n" in done.stderr


PIPE_BYTES = 4096
"""At least this much is in a pipe when its writer finds it full: it may hold one page only when a user has many pipes."""


def _waiting(pipe: int) -> int:
    """Bytes that a reader would get now."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_pipe_that_does_not_wait_gets_the_whole_line() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    process = subprocess.Popen([sys.executable, "-I", "-c", NOISY], stdout=writer, stderr=subprocess.DEVNULL)
    os.close(writer)
    wait_until(lambda: process.poll() is not None or _waiting(reader) >= PIPE_BYTES, "the pipe to be full")
    with os.fdopen(reader, "rb") as pipe:
        assert len(pipe.read()) == 200_001
    assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("perspective", "extra", "says"),
    [
        ("", {}, b"ANALYST is off '': it is one of security, complexity, docstrings, tests, structure\n"),
        ("tests", {"ANALYST_SHARD": "3/2"}, b"ANALYST_SHARD is off '3/2': it is a part and a number of parts, such as 2/3\n"),
        ("tests", {"ANALYST_TIMEOUT": "soon"}, b"ANALYST_TIMEOUT is off 'soon': it is a number of seconds above 0\n"),
    ],
)
def test_a_bad_environment_ends_with_2_and_one_sentence(tmp_path: Path, perspective: str, extra: dict[str, str], says: bytes) -> None:
    done = run(tmp_path, perspective, **extra)
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", says)


def test_without_git_it_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "structure", PATH=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"git cannot be started git: No such file or directory\n")


def test_a_git_that_hangs_is_stopped(tmp_path: Path) -> None:
    git = tmp_path / "git"
    git.write_text("#!/bin/sh\nexec sleep 1000\n")
    git.chmod(0o755)
    done = run(tmp_path, "structure", PATH=f"{tmp_path}:{os.environ['PATH']}", ANALYST_TIMEOUT="0.5")
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"git was stopped: no answer in 500ms\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_that_is_stopped_leaves_no_child(tmp_path: Path, number: signal.Signals) -> None:
    pid = tmp_path / "pid"
    git = tmp_path / "git"
    git.write_text(f"#!/bin/sh\necho $$ > {pid}.new\nmv {pid}.new {pid}\nexec sleep 1000\n")
    git.chmod(0o755)
    environ = environment("structure", {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    argv = [sys.executable, "-I", "-m", "nightcrew.plugins.analyze"]
    process = subprocess.Popen(argv, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(pid.exists, "its child to run")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert_gone(int(pid.read_text()))
    assert (process.returncode, out, err) == (128 + number, b"", b"")


def test_a_signal_amid_the_start_of_a_child_ends_both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    children: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def interrupted(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        children.append(start(*args, **kwargs))
        signal.raise_signal(signal.SIGTERM)
        return children[0]

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with pytest.raises(SystemExit) as stopped:
            sources.run(sources.Command("sleep", ("sleep", "1000"), 60), tmp_path)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert stopped.value.code == 128 + signal.SIGTERM and children[0].returncode == -signal.SIGKILL


def test_a_line_that_nobody_reads_is_no_success(tmp_path: Path) -> None:
    path = checkout(tmp_path / "r", {"a.py": "x = 1\n"})
    reader, writer = os.pipe()
    os.close(reader)
    argv = [sys.executable, "-I", "-m", "nightcrew.plugins.analyze"]
    done = subprocess.run(argv, cwd=path, env=environment("tests", {}), stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writer)
    assert done.returncode != 0


class _Hands:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def boottime(self) -> float:
        return self.now


def test_progress_is_told_twice_a_second_and_at_the_end() -> None:
    clock, out = _Hands(), io.StringIO()
    progress = Progress("structure", clock, out)
    for done in range(1, 2801):
        clock.now += 0.001
        progress.at(done, 2800)
    assert out.getvalue().splitlines() == [
        *(f"structure: {done:,} of 2,800 files" for done in (500, 1000, 1500, 2000, 2500)),
        "structure: 2,800 of 2,800 files",
    ]


def test_a_short_look_says_only_that_it_is_done() -> None:
    clock, out = _Hands(), io.StringIO()
    Progress("tests", clock, out).at(3, 3)
    assert out.getvalue() == "tests: 3 of 3 files\n"
