"""A sandbox entered by the forked process itself, with the warm program's memory: records, signals and the terminal stay the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from agents import zygote
from tests.agents.runner.kit import Attempt, Server, running, until
from tests.agents.zygote.kit import Warm


@pytest.fixture
def client(compiled_client: Path) -> Path:
    return compiled_client


@pytest.fixture(autouse=True)
def _possible(warm: Warm) -> None:
    """Skips where this user can build no such sandbox."""
    attempt = warm.lab.attempt("true", policy=policy(warm.lab.folder))
    attempt.run()
    if attempt.record().why == "exec":
        pytest.skip(attempt.record().detail)


def policy(folder: Path, words: Sequence[str] = ()) -> str:
    """Everything readable, the attempts' `cwd` writable, and `words`."""
    (folder / "hidden").mkdir(exist_ok=True)
    (folder / "hidden" / "secret").write_text("secret")
    (folder / "work").mkdir(exist_ok=True)
    work = str(folder / "work")
    file = folder / "policy"
    file.write_bytes(b"".join(os.fsencode(word) + b"\0" for word in ("--rw", work, work, "--hide", str(folder / "hidden"), *words)))
    return str(file)


def confined(warm: Warm, source: str, *words: str, **changes: object) -> Attempt:
    folder = warm.lab.folder
    return warm.program(source, *words, **{"policy": policy(folder), "cwd": str(folder / "work"), **changes})


LOOK = """
import os, sys
print("forked" if "colorsys" in sys.modules else "cold", os.getpid(), os.listdir("../hidden"), os.getcwd() == sys.argv[1])
open("made", "w").write("x")
try:
    open("../denied", "w")
except OSError as error:
    print(error.strerror)
sys.exit(5)
"""


def test_a_warm_program_is_inside_before_its_code_runs(warm: Warm) -> None:
    attempt = confined(warm, LOOK, str(warm.lab.folder / "work"))
    assert warm.run(attempt) == (5, "")
    lines = attempt.read("stdout.log").decode().splitlines()
    assert lines == ["forked 2 [] True", "Read-only file system"]
    assert (warm.lab.folder / "work" / "made").read_text() == "x"
    assert (attempt.record().code, attempt.record().signal, attempt.record().survivors) == (5, None, ())


def test_a_signal_that_ends_it_is_recorded_as_one(warm: Warm) -> None:
    attempt = confined(warm, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert warm.run(attempt)[0] == 128 + signal.SIGSEGV
    assert (attempt.record().code, attempt.record().signal) == (None, signal.SIGSEGV)


def test_a_command_in_the_sandbox_that_is_not_there_says_so(warm: Warm) -> None:
    attempt = warm.attempt("no-such-agent", policy=policy(warm.lab.folder), cwd=str(warm.lab.folder / "work"))
    assert warm.run(attempt)[0] == 127
    assert attempt.read("stderr.log") == b"nightcrew: no-such-agent: no such command on the PATH that the agent gets\n"


def test_stopped_by_its_client_it_has_its_grace(warm: Warm) -> None:
    source = "import signal, sys\nsignal.signal(15, lambda *_: sys.exit(9))\nprint('up', flush=True)\nwhile True: signal.pause()"
    attempt = confined(warm, source)
    client = warm.start(attempt)
    attempt.heard()
    client.terminate()
    assert client.wait(30) == 9
    assert (attempt.record().code, attempt.record().why, attempt.record().survivors) == (9, "stopped", ())


def test_nothing_inside_outlives_the_runner(warm: Warm) -> None:
    source = "import os, subprocess, signal\nsubprocess.Popen(['setsid', 'sleep', '77'])\nprint('up', flush=True)\nsignal.pause()"
    attempt = confined(warm, source)
    client = warm.start(attempt)
    attempt.heard()
    runner = warm.runner(attempt)
    # A process that replaces its program has no environment for a moment.
    inside = until(lambda: found if len(found := carriers(attempt.spec.tag)) >= 2 else None, "both processes inside")
    os.kill(runner, signal.SIGKILL)
    assert client.wait(30) == 137
    until(lambda: not any(map(running, inside)), "their end")
    assert zygote.find(warm.place) is not None


def carriers(tag: str) -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and tag.encode() in environ(int(name))]


def environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def test_the_terminal_is_still_its_own(warm: Warm, server: Server) -> None:
    attempt = confined(warm, "import os, signal; print(*os.get_terminal_size(), flush=True); signal.pause()", mode="terminal")
    server.tmux("new-session", "-d", "-s", "agent", "-x", "100", "-y", "30", *warm.argv(attempt))
    until(lambda: "100 30" in server.screen(), "the size")
    server.tmux("send-keys", "-t", "=agent:", "C-c")
    record = until(attempt.exit, "exit.json")
    assert (record.signal, record.why) == (signal.SIGINT, "exit")
    assert "KeyboardInterrupt" in server.screen()
