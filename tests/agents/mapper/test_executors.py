"""What an item may do to its worker: hang, die, print garbage or too much, leave processes; and what it gets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.features.map.worker import command, worker
from supervisor.features.map.worker.worker import Executor, Item, Result
from supervisor.host import processes
from supervisor.kernel.errors import UsageError
from tests.support import wait_until


def run(executor: Executor, text: str = "x", index: int = 0) -> Result:
    executor.begin()
    try:
        return executor.run(Item(index, text), lambda: None)
    finally:
        executor.end()


def commanded(*argv: str, form: str = "line", timeout_s: float = 60.0) -> Executor:
    return worker.make({"executor": "command", "argv": argv, "form": form, "timeout_s": timeout_s}, os.environ)


def shell(script: str, timeout_s: float = 60.0) -> Executor:
    return commanded("/bin/sh", "-c", script, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("echo one; echo '{\"a\": [1]}'", {"a": [1]}),
        ("echo 17", 17),
        ("printf 'two\\nlines\\n'", "two\nlines"),
        ("printf '\\377\\000'", "\\xff\0"),
        ("true", ""),
        ("cat", "x"),
        ("echo NaN", "NaN"),
    ],
)
def test_the_result_of_a_command(script: str, value: object) -> None:
    result = run(shell(script))
    assert result.ok is (value != "NaN") and (not result.ok or json.loads(result.text) == value)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo said >&2; exit 3", "exit code 3: said"),
        ("kill -9 $$", "killed by signal 9"),
        ("yes", "it printed more than 1048576 bytes"),
        ("exec yes >&2 | sleep 0", None),
    ],
)
def test_the_failure_of_a_command(script: str, why: str | None) -> None:
    result = run(shell(script, timeout_s=20.0 if why else 0.5))
    assert not result.ok and result.text == (why or "it took longer than 500ms")


def test_output_between_the_last_look_and_the_exit_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command prints and exits after the worker waited for its output in vain, and before the worker asks whether it has ended."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    codes = [0, 3]
    poll, script = subprocess.Popen.poll, "read word <gate; echo bad >&2; printf %60000d 7; exit $word"

    def paused(process: subprocess.Popen[bytes]) -> int | None:
        if gate.exists():
            gate.write_text(f"{codes.pop(0)}\n")  # it waits until the command has opened the gate
            gate.unlink()
            process.wait()
        return poll(process)

    monkeypatch.setattr(command, "LOOK_S", 0.05)
    monkeypatch.setattr(subprocess.Popen, "poll", paused)
    for expected in (Result(ok=True, text="7"), Result(ok=False, text="exit code 3: bad")):
        if not gate.exists():
            os.mkfifo(gate)
        assert run(shell(f"cd {tmp_path}; {script}")) == expected


def test_a_command_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    result = run(shell(f"sleep 600 & echo $! > {told}; wait", timeout_s=0.5))
    assert result == Result(ok=False, text="it took longer than 500ms")
    wait_until(lambda: processes.identity(int(told.read_text())) is None, "what it started to be gone")


def test_what_a_command_leaves_behind_is_ended_and_not_waited_for(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    assert run(shell(f"sleep 600 & echo $! > {told}; echo done")).text == '"done"'
    wait_until(lambda: processes.identity(int(told.read_text())) is None, "what it left to be gone")


def test_a_command_that_is_not_there() -> None:
    assert "No such file" in run(commanded("/no/such/program")).text
    assert "null byte" in run(commanded("echo", "{line}"), "a\0b").text


@pytest.mark.parametrize("name", ["-rf", "a b", "line\nbreak", "{index}", "\udcff\udcfe", "n" * 255, "'\"$(x)`", "ü"])
def test_a_hostile_name_is_one_word(name: str) -> None:
    given = ("-c", "import os, sys; print('x' + os.fsencode(sys.argv[1]).hex())", "{file}")
    result = run(commanded(sys.executable, *given, form="file"), name)
    assert bytes.fromhex(json.loads(result.text)[1:]) == os.fsencode(f"./{name}" if name.startswith("-") else name)


def test_the_fields_of_an_object() -> None:
    words = ("echo", "{id} {index} {tags} {none} {x")
    assert run(commanded(*words, form="jsonl"), '{"id": "a", "tags": [1]}', 7).text == '"a 7 [1] {none} {x"'


CODE = """
import json, os, signal, sys, time
state = []

def state_of(given):
    state.append(given)
    return state

def given(value): return value
def die(value): os.kill(os.getpid(), signal.SIGKILL)
def leave(value): os._exit(3)
def quit(value): sys.exit("enough")
def hang(value): time.sleep(600)
def kinds(value): return {1, 2}
def nan(value): return float("nan")
def large(value): return "x" * 2**21
def surrogate(value): return "\\udcff"
def loop(value):
    found = []
    found.append(found)
    return found
def noise(value):
    os.write(1, b'{"p": 0, "ok": true}')
    print("noise")
    return 1
def child(value):
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
    return pid
def away(value):
    here, there = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(there, str(os.getpid()).encode())
            time.sleep(600)
        os._exit(0)
    return int(os.read(here, 20))
NUMBER = 5
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "tools_of_test.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield
    sys.path[:] = before
    sys.modules.pop("tools_of_test", None)


def called(name: str, form: str = "line", timeout_s: float = 60.0) -> Executor:
    return worker.make({"executor": "call", "call": f"tools_of_test:{name}", "form": form, "timeout_s": timeout_s}, {})


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("die", "it was killed by signal 9"),
        ("leave", "it ended its process with exit code 3"),
        ("quit", "SystemExit: enough"),
        ("hang", "it took longer than 500ms"),
        ("kinds", "its result is not JSON: TypeError: Object of type set is not JSON serializable"),
        ("nan", "its result is not JSON: ValueError: Out of range float values are not JSON compliant"),
        ("large", "its result is larger than 1048576 characters"),
        ("loop", "its result is not JSON: ValueError: Circular reference detected"),
    ],
)
def test_the_failure_of_a_function(tools: None, name: str, why: str) -> None:
    executor = called(name, timeout_s=0.5 if name == "hang" else 60.0)
    assert run(executor) == Result(ok=False, text=why)


def test_after_a_death_the_next_item_has_a_new_process(tools: None) -> None:
    executor = called("state_of")
    executor.begin()
    assert [json.loads(executor.run(Item(0, text), lambda: None).text) for text in "ab"] == [["a"], ["a", "b"]]
    executor.end()
    assert json.loads(run(executor, "c").text) == ["c"], "the next shard sees nothing of this one"


def test_what_a_function_gets_and_what_it_prints(tools: None, capfd: pytest.CaptureFixture[str]) -> None:
    assert json.loads(run(called("given", "jsonl"), '{"a": 1}').text) == {"a": 1}
    assert json.loads(run(called("given"), "\udcff").text) == "\udcff"
    assert run(called("surrogate")).text == '"\\udcff"'
    assert run(called("noise")).text == "1"


def test_what_a_function_starts_ends_with_its_shard(tools: None) -> None:
    pid = json.loads(run(called("child")).text)
    wait_until(lambda: processes.identity(pid) is None, "its child to be gone")


def test_what_went_into_a_session_of_its_own_is_gone_before_the_next_item(tools: None) -> None:
    executor = called("away")
    executor.begin()
    for text in "ab":
        assert processes.identity(json.loads(executor.run(Item(0, text), lambda: None).text)) is None
    executor.end()


WORKER = """
import json, os, subprocess, sys
from supervisor.features.map.worker import worker
before = subprocess.Popen(["sleep", "600"])
worker.watch()
work = worker.make(json.loads(sys.argv[1]), os.environ)
result = work.run(worker.Item(0, "x"), lambda: None)
pid = open("pid").read().strip()
print(result.ok, os.path.exists(f"/proc/{pid}"), before.poll())
before.kill()
"""
AWAY = "(setsid sh -c 'echo $$ > pid; mv pid there; sleep 600' >log 2>&1 &) ; until test -e there; do sleep 0.01; done; mv there pid; "


@pytest.mark.parametrize("how", ["exit 0", "kill -9 $$"])
def test_a_command_leaves_nothing_in_another_session(tmp_path: Path, how: str) -> None:
    what = {"executor": "command", "argv": ["/bin/sh", "-c", AWAY + how]}
    argv = [sys.executable, "-c", WORKER, json.dumps(what)]
    said = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert said.stdout.split() == [str(how == "exit 0"), "False", "None"], said.stderr


@pytest.mark.parametrize("name", ["missing", "NUMBER"])
def test_a_function_that_is_none(tools: None, name: str) -> None:
    with pytest.raises(UsageError):
        called(name)


def test_a_module_that_is_not_there_or_fails(tools: None) -> None:
    with pytest.raises(UsageError, match="cannot import"):
        worker.make({"executor": "call", "call": "no.such:thing"}, {})
    Path("ends_at_import.py").write_text("raise SystemExit('no licence')")
    with pytest.raises(UsageError, match=r"cannot import.*SystemExit: no licence"):
        worker.make({"executor": "call", "call": "ends_at_import:thing"}, {})


def test_an_executor_that_is_not_known() -> None:
    with pytest.raises(UsageError):
        worker.make({"executor": "none"}, {})


def test_a_beat_is_called_while_an_item_takes_long(tools: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (command, command):
        monkeypatch.setattr(module, "LOOK_S", 0.05)
    for executor in (shell("sleep 600", timeout_s=0.3), called("hang", timeout_s=0.3)):
        beats: list[int] = []
        executor.begin()
        executor.run(Item(0, "x"), lambda beats=beats: beats.append(1))  # type: ignore[misc]  # a lambda's default
        executor.end()
        assert beats
