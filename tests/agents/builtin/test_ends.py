"""How a run of the built-in agent is ended by others: time limits, signals, a person at the terminal; and that it stays small."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.printing import read_back
from supervisor.host import procfs
from tests.agents.builtin.kit import Bench
from tests.support import wait_until

DEAF = "trap '' TERM; echo $$ > {pid}; while :; do sleep 0.05; done"
"""A command that ignores TERM, and what it starts does."""


def _pid(file: Path) -> int:
    wait_until(lambda: file.exists() and file.read_text().strip(), "the command to run")
    return int(file.read_text())


def _is_gone(pid: int) -> None:
    """It was sent a KILL, and dies of it when the kernel gets to it."""
    wait_until(lambda: (seen := procfs.look(pid)) is None or seen.dead, f"process {pid} to be gone")


def test_a_command_at_its_limit_ends_with_a_child_that_ignores_term(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "deaf.pid"
    bench.tools(("bash", {"command": f"({DEAF.format(pid=file)}) & echo started; wait", "timeout_s": 0.3}))
    bench.says()
    ran = bench.run()
    (result,) = ran.tool_results
    assert result["is_error"] and result["content"].startswith("started\n")
    assert "ended at its time limit of 300ms" in result["content"]
    _is_gone(_pid(file))  # in its process group, so ended with it


def test_what_a_command_leaves_in_the_background_holds_nothing_up(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "left.pid"
    bench.tools(("bash", {"command": f"sleep 600 & echo $! > {file}; echo done", "timeout_s": 60}))
    bench.says()
    assert bench.run().tool_results[0]["content"] == "done\n"
    _is_gone(_pid(file))


@pytest.mark.parametrize("size", [200_000_000, pytest.param(1_000_000_000, marks=pytest.mark.soak)])
def test_output_is_bounded_while_it_comes(bench: Bench, size: int) -> None:
    peak = "grep VmHWM /proc/$PPID/status"
    bench.tools(("bash", {"command": peak}))
    bench.tools(("bash", {"command": f"yes | head -c {size}; echo; echo the end", "timeout_s": 100}))
    bench.tools(("bash", {"command": peak}))
    bench.says()
    before, flood, after = [result["content"] for result in bench.run().tool_results]
    assert len(flood) < 31_000 and flood.startswith("y\ny\n") and flood.endswith("\nthe end\n")
    assert f"[... {size + 9 - 30_000} bytes left out ...]" in flood
    grown = int(after.split()[1]) - int(before.split()[1])
    assert grown < 16_384, f"{grown} KiB"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def test_a_signal_ends_a_headless_run_with_a_result(bench: Bench, tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "command.pid"
    bench.tools(("bash", {"command": f"echo $$ > {file}; sleep 600"}))
    bench.start()
    running = _pid(file)
    bench.signal(number)
    ran = bench.end()
    assert ran.code == 128 + number
    assert ran.result["terminal_reason"] == ("terminated" if number == signal.SIGTERM else "interrupted")
    assert ran.result["is_error"] and ran.result["num_turns"] == 1
    _is_gone(running)


def test_a_signal_amid_the_answer_counts_what_came(bench: Bench) -> None:
    bench.sim.faults(text="one two three four five six", then="silence", after=4, input_tokens=500, times=1)
    bench.start()
    wait_until(lambda: "one" in bench.pane(), "the answer to begin")
    bench.signal(signal.SIGTERM)
    result = bench.end().result
    assert result["terminal_reason"] == "terminated" and result["num_turns"] == 1
    assert sum(result["usage"].values()) >= 500


def test_a_cold_start_that_is_stopped_ends_with_a_result(repo: Path, tmp_path: Path) -> None:
    """Amid its imports, which take a second or more."""
    env = {"PATH": os.environ["PATH"], "NIGHTCREW_OUT": str(tmp_path)}
    argv = [sys.executable, "-I", "-m", "nightcrew.plugins.builtin"]
    with subprocess.Popen(argv, cwd=repo, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        wait_until((tmp_path / "transcript.jsonl").exists, "it to begin")
        process.terminate()
        out, _ = process.communicate()
    assert process.returncode == 143
    (result,) = (json.loads(line) for line in out.splitlines())
    assert (result["type"], result["is_error"], result["terminal_reason"]) == ("result", True, "terminated")


# At a terminal --------------------------------------------------------------------------------------------------------------------------


class Person:
    """Somebody at a terminal of their own."""

    def __init__(self, bench: Bench, handle: int) -> None:
        self._bench = bench
        self._handle = handle

    def types(self, text: str) -> None:
        """Keys, as they are."""
        os.write(self._handle, text.encode())

    def sees(self, text: str, times: int = 1) -> None:
        """Wait for it."""
        wait_until(lambda: self._bench.pane().count(text) >= times, f"{text!r} in the pane")


@pytest.fixture
def terminal() -> Iterator[tuple[str, int]]:
    """The name of a terminal, and a person's end of it."""
    ours, theirs = pty.openpty()
    try:
        yield os.ttyname(theirs), ours
    finally:
        for handle in (ours, theirs):
            with contextlib.suppress(OSError):
                os.close(handle)


def test_ctrl_c_in_the_pane_interrupts_the_turn_and_asks(bench: Bench, tmp_path: Path, terminal: tuple[str, int]) -> None:
    """As in a pane: standard input is empty, the terminal is the session's own, and Ctrl-C is typed into it."""
    file = tmp_path / "command.pid"
    bench.tools(("bash", {"command": "echo quick"}), ("bash", {"command": f"echo $$ > {file}; sleep 600"}))
    bench.sim.faults(contains="rather count to three", text="one two three", times=1)
    person = Person(bench, terminal[1])
    bench.start(tty=terminal[0])
    running = _pid(file)
    person.sees("quick", 2)
    person.types("\x03")
    person.sees("-- interrupted. Say what to do")
    _is_gone(running)
    person.types("rather count to three\n")
    ran = bench.end()
    assert (ran.code, ran.result["result"]) == (0, "one two three")
    first, second = ran.tool_results
    assert first["content"] == "quick\n", "what had ended is kept"
    assert second["is_error"] and second["content"].startswith("interrupted; it did not finish")
    assert [line.get("state") for line in ran.lines if line.get("subtype") == "session_state_changed"] == ["idle", "running"]


def test_a_person_leads_the_conversation(bench: Bench, terminal: tuple[str, int]) -> None:
    bench.sim.faults(contains="hello there", text="Hello yourself.", times=1)
    bench.sim.faults(contains="and now", then="silence", after=3, times=1)
    bench.sim.faults(contains="never mind", text="All right.", times=1)
    person = Person(bench, terminal[1])
    bench.start("", tty=terminal[0], stdin=terminal[0])
    person.sees("-- what next?")
    person.types("hello there\n")
    person.sees("-- what next?", 2)
    person.types("and now\n")
    wait_until(lambda: bench.sim.stats()["streams"] == 1, "the answer to begin")
    person.types("\x03")
    person.sees("-- interrupted")
    person.types("never mind\n")
    person.sees("-- what next?", 3)
    person.types("\x04")
    ran = bench.end()
    assert (ran.code, ran.result["result"]) == (0, "All right.")
    roles = [message["role"] for message in read_back(bench.out / "transcript.jsonl")]
    assert roles == ["user", "assistant", "user", "assistant"], "two messages of the person in a row are one"
    assert "Hello yourself." in ran.pane


def test_ctrl_c_twice_ends_it(bench: Bench, terminal: tuple[str, int]) -> None:
    bench.sim.faults(then="silence", after=3, times=1)
    person = Person(bench, terminal[1])
    bench.start(tty=terminal[0])
    wait_until(lambda: bench.sim.stats()["streams"] == 1, "the answer to begin")
    person.types("\x03")
    person.sees("-- interrupted")
    person.types("\x03")
    ran = bench.end()
    assert (ran.code, ran.result["terminal_reason"]) == (130, "interrupted")
