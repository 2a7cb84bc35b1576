"""One attempt from claim to record, with the real runner as a process of its own."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from agents.runner.loop import TAIL
from supervisor.kernel import names
from tests.agents.runner.kit import ROOT, Lab, running, seen_by_agent, until


def test_code_output_and_times_are_recorded(lab: Lab) -> None:
    attempt = lab.attempt("sh", "-c", "printf 'out\\377\\nlast'; printf err >&2; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 3")
    assert attempt.run() == 3
    record = attempt.record()
    assert (record.code, record.signal, record.why, record.detail) == (3, None, "exit", "")
    assert (record.task, record.epoch, record.truncated, record.survivors) == ("run/task", 1, {}, ())
    assert 0 < record.duration_s < 60
    assert 0 < record.cpu_s < 60
    assert record.started <= record.ended
    assert (attempt.read("stdout.log"), attempt.read("stderr.log")) == (b"out\xff\nlast", b"err")


def test_started_names_the_runner_by_its_kernel_start(lab: Lab) -> None:
    attempt = lab.attempt("sleep", "60")
    runner = attempt.start()
    started = until(attempt.started, "started.json")
    ticks = int(Path(f"/proc/{runner.pid}/stat").read_text().rpartition(")")[2].split()[19])
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert started.identity == names.Identity(runner.pid, ticks, boot)
    assert (started.task, started.epoch) == ("run/task", 1)
    assert attempt.exit() is None


def test_a_signal_is_recorded_as_a_signal(lab: Lab) -> None:
    attempt = lab.attempt("sh", "-c", "kill -SEGV $$")
    assert attempt.run() == 128 + signal.SIGSEGV
    assert (attempt.record().code, attempt.record().signal, attempt.record().why) == (None, signal.SIGSEGV, "exit")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_wrapper_that_reports_a_signal_as_a_status_hides_nothing(lab: Lab, number: signal.Signals) -> None:
    wrap = ("sh", "-c", '"$@"; exit $?', "sh")
    attempt = lab.attempt("sh", "-c", f"kill -{int(number)} $$", wrap=wrap)
    assert attempt.run() == 128 + number
    assert (attempt.record().code, attempt.record().signal) == (None, number)
    plain = lab.attempt("sh", "-c", "exit 7", wrap=wrap)
    assert (plain.run(), plain.record().code) == (7, 7)
    alone = lab.attempt("sh", "-c", f"exit {128 + number}")
    assert (alone.run(), alone.record().code, alone.record().signal) == (128 + number, 128 + number, None)


def test_a_runner_that_was_started_cold_runs_no_program_itself(lab: Lab) -> None:
    """It has none of what a program may import: it is `-S` itself."""
    script = lab.folder / "script.py"
    script.write_text("import sys; print(sys.flags.no_site)")
    assert seen_by_agent(lab.attempt(os.path.realpath(sys.executable), "-I", str(script), warm=True)) == ["0"]


def test_without_its_sandbox_an_agent_never_runs(lab: Lab) -> None:
    attempt = lab.attempt("touch", str(lab.folder / "ran"), policy=str(lab.folder / "no-such-policy"))
    assert attempt.run() == 126
    assert (attempt.record().why, attempt.record().detail.partition(":")[0]) == ("exec", "sandbox")
    assert not (lab.folder / "ran").exists()


@pytest.mark.parametrize(
    ("argv", "changes", "status", "words"),
    [
        (("no-such-agent",), {}, 127, "no-such-agent: no such command"),
        (("./no-such-agent",), {}, 127, "./no-such-agent: No such file"),
        (("/",), {}, 126, "Permission denied"),
        (("true",), {"cwd": "/no/such/tree"}, 126, "working directory /no/such/tree: No such file"),
        (("true",), {"stdin": "/no/such/prompt"}, 126, "stdin: No such file"),
        (("true",), {"rlimits": (("NONSENSE", 1),)}, 126, "NONSENSE"),
        (("true",), {"cores": (4000,)}, 126, "limits: Invalid argument"),
        (("true",), {"join": ("/no/such/group/cgroup.procs",)}, 126, "control group: No such file"),
    ],
)
def test_an_agent_that_cannot_start(lab: Lab, argv: tuple[str, ...], changes: dict[str, object], status: int, words: str) -> None:
    attempt = lab.attempt(*argv, **changes)
    assert attempt.run() == status
    record = attempt.record()
    assert (record.code, record.signal, record.why) == (None, None, "exec")
    assert words in record.detail


def test_the_command_is_looked_up_on_the_agents_own_path(lab: Lab) -> None:
    (lab.folder / "tool").write_text("#!/bin/sh\necho mine\n")
    (lab.folder / "tool").chmod(0o755)
    assert seen_by_agent(lab.attempt("tool", env=(("PATH", f"/nowhere:{lab.folder}"),))) == ["mine"]


def test_the_deadline_stops_the_tree(lab: Lab) -> None:
    attempt = lab.attempt("sleep", "60", timeout_s=0.2)
    assert attempt.run() == 128 + signal.SIGTERM
    assert (attempt.record().why, attempt.record().signal) == ("timeout", signal.SIGTERM)


def test_an_agent_writes_itself_into_its_groups(lab: Lab) -> None:
    """Any file will do to see it; `tests/server/test_limits.py` does it with the kernel's."""
    files = [lab.folder / name for name in ("one", "two")]
    for file in files:
        file.touch()
    assert lab.attempt("true", join=tuple(map(str, files))).run() == 0
    assert [file.read_bytes() for file in files] == [b"0", b"0"]


@pytest.mark.parametrize(
    ("number", "why"), [(signal.SIGTERM, "stopped"), (signal.SIGINT, "stopped"), (signal.SIGHUP, "hangup")], ids=["TERM", "INT", "HUP"]
)
def test_a_signal_to_the_runner_stops_the_agent(lab: Lab, number: int, why: str) -> None:
    attempt = lab.attempt("sh", "-c", "trap 'echo asked; exit 9' TERM; echo ready; while :; do sleep 0.05; done")
    runner = attempt.start()
    attempt.heard()
    runner.send_signal(number)
    assert runner.wait(30) == 9
    assert (attempt.record().why, attempt.record().code) == (why, 9)
    assert attempt.read("stdout.log") == b"ready\nasked\n"


def test_an_agent_that_ignores_term_is_killed_after_the_grace(lab: Lab) -> None:
    attempt = lab.attempt("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done", grace_s=0.2)
    runner = attempt.start()
    attempt.heard()
    runner.terminate()
    assert runner.wait(30) == 128 + signal.SIGKILL
    assert (attempt.record().why, attempt.record().signal) == ("stopped", signal.SIGKILL)


def test_a_stopped_agent_has_not_ended(lab: Lab) -> None:
    attempt = lab.attempt("sh", "-c", "echo $$; kill -STOP $$; exit 4")
    runner = attempt.start()
    pid = int(attempt.heard())
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", "it is stopped")
    os.kill(runner.pid, signal.SIGCHLD)  # one more reason to look
    assert runner.poll() is None
    assert attempt.exit() is None
    os.kill(pid, signal.SIGCONT)
    assert runner.wait(30) == 4


@pytest.mark.parametrize("seconds", [0.5, pytest.param(1200.0, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_one_that_stands_still_is_ended_by_its_deadline_and_not_before(lab: Lab, seconds: float) -> None:  # P10
    attempt = lab.attempt("sh", "-c", "kill -STOP $$", timeout_s=seconds)
    assert attempt.run(timeout_s=1700) == 128 + signal.SIGTERM, "it is woken, so that it hears it"
    record, started = attempt.record(), attempt.started()
    assert started is not None and record.ended - started.at >= seconds
    assert (record.why, record.signal) == ("timeout", signal.SIGTERM)


def test_a_second_runner_leaves_everything_as_it_is(lab: Lab) -> None:
    attempt = lab.attempt("sh", "-c", "echo once")
    assert attempt.run() == 0
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in attempt.directory.iterdir()}
    assert attempt.run() == 75
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in attempt.directory.iterdir()} == before


def test_of_many_runners_at_once_one_runs(lab: Lab) -> None:
    attempt = lab.attempt("sh", "-c", "echo ran >> ran")
    statuses = [runner.wait(60) for runner in [attempt.start() for _ in range(8)]]
    assert sorted(statuses) == [0] + [75] * 7
    assert (lab.folder / "ran").read_text() == "ran\n"


@pytest.mark.parametrize("total", [200_000_000, pytest.param(10_000_000_000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_a_flood_is_capped_and_marked(lab: Lab, total: int) -> None:
    """L06 and S20, scaled down to 200 MB; in full in the long form."""
    limit = 4_000_000
    attempt = lab.attempt("sh", "-c", f"yes 0123456789 | head -c {total}; echo the end >&2", log_max=limit)
    assert attempt.run(timeout_s=1700) == 0
    log = attempt.read("stdout.log")
    left_out = attempt.record().truncated["stdout"]
    marker = b"\n[nightcrew: truncated %d bytes]\n" % left_out
    assert len(log) <= limit
    assert log.count(marker) == 1
    assert len(log) - len(marker) + left_out == total
    assert log.startswith(b"0123456789\n0123456789\n")
    assert len(log.partition(marker)[2]) == TAIL
    assert attempt.read("stderr.log") == b"the end\n"
    assert "stderr" not in attempt.record().truncated


def test_the_end_is_told_to_the_hint_socket(lab: Lab) -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as post:
        post.bind(f"{folder}/hint")
        post.settimeout(30)
        attempt = lab.attempt("true", hint_socket=f"{folder}/hint")
        assert attempt.run() == 0
        assert post.recv(100) == b"run/task:1"
        assert attempt.exit() is not None


def test_a_dead_hint_socket_is_no_error(lab: Lab) -> None:
    assert lab.attempt("true", hint_socket="/no/such/socket").run() == 0


@pytest.mark.parametrize("content", [None, b"", b"task=run/task\0", b"\xff\0"])
def test_without_a_whole_spec_nothing_starts(lab: Lab, content: bytes | None) -> None:
    attempt = lab.attempt("true")
    (attempt.directory / "launch.spec").unlink()
    if content is not None:
        (attempt.directory / "launch.spec").write_bytes(content)
    runner = attempt.start()
    said = runner.communicate(timeout=30)[1]
    assert runner.returncode == (66 if content is None else 65)
    assert said.startswith(b"nightcrew: ")
    assert said.count(b"\n") == 1
    assert attempt.started() is None


def test_where_the_records_cannot_be_written_nothing_starts(lab: Lab) -> None:
    attempt = lab.attempt("sh", "-c", "echo ran > ran")
    attempt.directory.chmod(0o500)
    try:
        if os.access(attempt.directory, os.W_OK):
            pytest.skip("root writes everywhere")
        assert attempt.run() == 74
    finally:
        attempt.directory.chmod(0o700)
    assert not (lab.folder / "ran").exists()


DIE = """
import os, sys
sys.path.append(sys.argv[1])
from agents.runner.main import main
name, count = sys.argv[2], int(sys.argv[3])
real, calls = getattr(os, name), 0
def deadly(*args, **kwargs):
    global calls
    calls += 1
    if name == "fork" and calls == count:
        pid = real()
        if pid:
            os.kill(os.getpid(), 9)
        return pid
    if calls == count:
        os.kill(os.getpid(), 9)
    return real(*args, **kwargs)
setattr(os, name, deadly)
sys.exit(main(sys.argv[4]))
"""


@pytest.mark.parametrize(
    ("call", "count", "claimed"),
    [
        ("fsync", 1, False),
        ("link", 1, False),
        ("fsync", 2, True),
        ("fork", 1, True),
        ("wait4", 1, True),
        ("ftruncate", 3, True),
        ("rename", 1, True),
    ],
)
def test_a_runner_killed_at_any_step_leaves_whole_records_or_none(lab: Lab, call: str, count: int, claimed: bool) -> None:
    attempt = lab.attempt("sh", "-c", "echo $$ >> ran; exit 0")
    argv = [sys.executable, "-I", "-S", "-c", DIE, str(ROOT), call, str(count), str(attempt.directory)]
    runner = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    attempt.runners.append(runner)
    assert runner.wait(30) == -signal.SIGKILL
    assert (attempt.started() is not None) == claimed
    assert (attempt.directory / "started.json").exists() == claimed
    assert attempt.exit() is None
    assert attempt.run() == (75 if claimed else 0)
    ran = (lab.folder / "ran").read_text().split() if (lab.folder / "ran").exists() else []
    assert len(ran) <= 1, "the epoch ran twice"
    until(lambda: not any(running(int(pid)) for pid in ran), "the agent is gone")


def test_an_agent_dies_with_its_runner(lab: Lab) -> None:
    attempt = lab.attempt("sh", "-c", "echo $$; exec sleep 60")
    runner = attempt.start()
    pid = int(attempt.heard())
    runner.kill()
    until(lambda: not running(pid), "the agent is gone")


def test_whenever_term_comes_a_claimed_epoch_gets_its_record(lab: Lab, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(15):
        attempt = lab.attempt("sleep", "60")
        runner = attempt.start()
        for _ in range(dice.randrange(4000)):
            os.getppid()  # some microseconds, spread over the runner's start
        runner.terminate()
        runner.wait(30)
        if attempt.started() is not None:
            assert attempt.record().why == "stopped"


def test_the_runner_imports_nothing_heavy() -> None:
    """Its whole start may take 20 ms; each of these costs 3 to 20."""
    program = f"import sys; sys.path.append({str(ROOT)!r}); import agents.runner.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    heavy = {"collections", "contextlib", "ctypes", "dataclasses", "enum", "json", "pathlib", "re", "signal", "subprocess", "typing"}
    assert not heavy & set(done.stdout.split())


def test_a_held_command_begins_when_it_is_let_and_its_time_counts_from_there(lab: Lab) -> None:
    attempt = lab.attempt("sleep", "60", hold="begin", timeout_s=0.2)
    runner = attempt.start()
    started = until(attempt.started, "started.json")
    assert runner.poll() is None and not (attempt.directory / "stdout.log").exists()
    (attempt.directory / "begin").touch()
    let = time.time()
    runner.communicate(timeout=60)
    record = attempt.record()
    assert (record.why, started.at <= let <= record.started + 0.001) == ("timeout", True)


def test_a_held_command_that_is_stopped_never_runs(lab: Lab) -> None:
    attempt = lab.attempt("touch", str(lab.folder / "ran"), hold="begin")
    runner = attempt.start()
    until(attempt.started, "started.json")
    runner.send_signal(signal.SIGTERM)
    runner.communicate(timeout=60)
    record = attempt.record()
    assert (runner.returncode, record.why, record.code, record.detail) == (143, "stopped", None, "before its command began")
    assert not (lab.folder / "ran").exists()
