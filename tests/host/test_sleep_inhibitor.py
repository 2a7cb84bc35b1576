"""What keeps the machine awake: its arguments and its life, by a `systemd-inhibit` that writes down how it was called.

No real one is asked here: the machines of the tests have no systemd that would answer.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.features.night import service
from supervisor.features.night.service import MISSING, SleepInhibitor
from supervisor.host import processes
from tests.support import wait_until

WHY = "work of the night 1123-k3f9 is under way"


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a `systemd-inhibit` with such a body on PATH; gives the file in which it writes how it was called."""
    called, place = tmp_path / "called", tmp_path / "bin"
    place.mkdir()

    def make(body: str) -> Path:
        program = place / "systemd-inhibit"
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$*\" >> {called}\n{body}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
        return called

    return make


RUNS = 'while [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"'
"""As the real one: without the options, it runs the rest."""


def test_it_lives_until_it_is_released(stand_in: Callable[[str], Path], tmp_path: Path) -> None:
    called, inhibitor = stand_in(RUNS), SleepInhibitor(tmp_path / "log")
    inhibitor.hold(WHY)
    wait_until(called.exists, "it to be called")
    child = processes.identity(inhibitor.pid or 0)
    assert child is not None and inhibitor.trouble() == ""
    assert called.read_text() == f"--what=sleep:idle:handle-lid-switch --who=nightcrew --why={WHY} --mode=block cat\n"
    inhibitor.release()
    assert not processes.alive(child) and inhibitor.pid is None
    inhibitor.release()


def test_one_that_may_not_hold_the_lid_holds_what_it_may(stand_in: Callable[[str], Path], tmp_path: Path) -> None:
    called = stand_in('case "$1" in *lid*) echo "Failed to inhibit: Access denied" >&2; exit 1;; esac\n' + RUNS)
    inhibitor = SleepInhibitor(tmp_path / "log")
    inhibitor.hold(WHY)
    wait_until(lambda: inhibitor.trouble() == "" and called.read_text().count("\n") == 2, "the second try")
    assert [line.split()[0] for line in called.read_text().splitlines()] == ["--what=sleep:idle:handle-lid-switch", "--what=idle"]
    assert inhibitor.pid is not None
    inhibitor.release()


def test_one_that_may_nothing_says_so(stand_in: Callable[[str], Path], tmp_path: Path) -> None:
    stand_in('echo "Failed to inhibit: Access denied" >&2; exit 1')
    inhibitor = SleepInhibitor(tmp_path / "log")
    inhibitor.hold(WHY)
    wait_until(inhibitor.trouble, "it to give up")
    assert inhibitor.trouble() == "the program that keeps the machine awake ended with 1: Failed to inhibit: Access denied"
    inhibitor.release()


def test_without_such_a_program_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    inhibitor = SleepInhibitor(tmp_path / "log")
    inhibitor.hold(WHY)
    assert inhibitor.trouble() == MISSING and inhibitor.pid is None
    inhibitor.release()


def test_it_ends_with_a_supervisor_that_is_killed(stand_in: Callable[[str], Path], tmp_path: Path) -> None:
    called = stand_in(RUNS)
    program = (
        "import sys, time; from pathlib import Path; from supervisor.features.night.service import SleepInhibitor\n"
        "one = SleepInhibitor(Path(sys.argv[1])); one.hold('x'); print(one.pid, flush=True); time.sleep(600)"
    )
    argv = [sys.executable, "-c", program, str(tmp_path / "log")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        child = processes.identity(int(holder.stdout.readline()))
        wait_until(called.exists, "it to be called")
        assert child is not None and processes.alive(child)
        holder.send_signal(signal.SIGKILL)
    wait_until(lambda: not processes.alive(child), "it to end")


def test_on_macos_it_watches_the_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arguments alone: it has not been run."""
    program = tmp_path / "caffeinate"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert service.commands(77, WHY) == [[str(program), "-i", "-w", "77"]]
