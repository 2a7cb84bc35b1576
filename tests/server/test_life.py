"""The supervisor's own life: one at a time, leaving and coming back, and what its agents notice of it (nothing)."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from supervisor import __version__
from supervisor.client import protocol
from supervisor.kernel import records
from supervisor.kernel.errors import Refused, TimedOut
from supervisor.server import lock
from tests import warm
from tests.support import House, plan_of, shell_task, signal_if_there, wait_until

AT_WORK = "echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done; echo finished"


def start(house: House, *words: str, name: str = "agent") -> None:
    house.ok("add", "--id", name, *words)
    wait_until(lambda: house.task(name).attempt_state == "running", f"{name} to run")


def let_go(house: House, name: str = "agent") -> None:
    Path(house.task(name).worktree or "", "go").touch()


def test_a_second_supervisor_names_the_first_and_a_dead_ones_lock_is_free(house: House) -> None:
    first = house.start_daemon()
    second = house.run("up")
    assert second.returncode == 6
    assert second.stderr.startswith(
        f"nightcrew: a supervisor is already running pid {first.pid}: it holds {house.home.lock}; kept: it and its agents; next: "
    )
    assert first.poll() is None and house.ready()
    first.kill()
    first.wait()
    assert house.home.lock.read_text().split()[0] == str(first.pid), "its lock file is still there"
    third = house.start_daemon()
    assert lock.holder(house.home.lock) == third.pid
    assert house.home.lock.read_text().split()[0] == str(third.pid)


def test_a_supervisor_ends_once_its_state_directory_is_removed_and_its_agents_go_on(house: House) -> None:
    daemon = house.start_daemon()
    start(house, AT_WORK)
    agents = house.tagged()
    shutil.rmtree(house.home.root.rename(house.home.root.with_name("removed")))
    daemon.wait(60)
    assert f"{house.home.root} was removed: the supervisor ends, and its agents go on" in house.daemon_output()
    assert set(agents) & set(house.tagged()), "the shell of the agent, which starts others"


@pytest.mark.in_turns
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_the_supervisor_and_nobody_else(house: House, number: signal.Signals) -> None:
    daemon = house.start_daemon()
    start(house, AT_WORK)
    daemon.send_signal(number)
    assert daemon.wait(30) == 0
    assert "the supervisor left; 1 agent goes on" in house.daemon_output()
    assert not house.home.daemon_socket.exists() and house.sessions() == {f"{house.task('agent').id}:1"}
    runner = house.tagged()
    assert runner, "the agent goes on"
    house.start_daemon()
    assert house.task("agent").epoch == 1
    let_go(house)
    wait_until(lambda: house.state("agent") == "done", "the adopted agent to end")
    assert house.ok("logs", "agent") == "finished\n" and house.task("agent").epoch == 1


def test_an_agent_that_ends_while_nobody_watches_is_collected_later(house: House) -> None:
    daemon = house.start_daemon()
    start(house, AT_WORK)
    daemon.kill()
    daemon.wait()
    let_go(house)
    wait_until(lambda: not house.tagged(), "the agent to end by itself")
    house.start_daemon()
    wait_until(lambda: house.task("agent").final, "it to be collected")
    view = house.task("agent")
    assert (view.state, view.epoch) == ("done", 1)


def test_a_second_ctrl_c_does_not_wait(house: House) -> None:
    """An agent that ignores TERM keeps a stop busy for its grace; the first signal waits for that, the second one does not."""
    house.config.write_text('grace = "20s"\nsandbox = 0\n[limits]\ndisk_free_min = 0\n')
    daemon = house.start_daemon()
    start(house, f"trap '' TERM; {AT_WORK}")
    asking = house.begin("kill", "agent")
    wait_until(lambda: house.task("agent").attempt_state == "stopping", "the stop to be under way")
    daemon.send_signal(signal.SIGINT)
    assert_waits(daemon)
    daemon.send_signal(signal.SIGINT)
    assert daemon.wait(60) == 130
    asking.kill()
    asking.wait()
    house.config.write_text('grace = "0s"\nsandbox = 0\n[limits]\ndisk_free_min = 0\n')
    house.start_daemon()
    wait_until(lambda: house.state("agent") == "cancelled", "the next supervisor to finish the stop")
    assert house.tagged() == []


def assert_waits(daemon: subprocess.Popen[bytes]) -> None:
    """It has taken the signal: the socket is gone or it says so, but it lives."""
    with pytest.raises(subprocess.TimeoutExpired):
        daemon.wait(1.0)


def test_down_waits_for_the_supervisor_and_now_does_not_wait_for_its_jobs(house: House) -> None:
    house.config.write_text('grace = "120s"\nsandbox = 0\n[limits]\ndisk_free_min = 0\n')
    daemon = house.start_daemon()
    start(house, f"trap '' TERM; {AT_WORK}")
    asking = house.begin("kill", "agent")
    wait_until(lambda: house.task("agent").attempt_state == "stopping", "the stop to be under way")
    house.ok("down", "--now", timeout_s=60)
    assert lock.holder(house.home.lock) is None
    assert daemon.wait(30) == 0, "no thread of it goes on without the lock"
    asking.kill()
    asking.wait()


@pytest.mark.parametrize(("times", "again"), [(3, 1), pytest.param(5, 5, marks=pytest.mark.soak)])
def test_up_in_the_background_any_number_of_times_is_one_supervisor(
    house: House, monkeypatch: pytest.MonkeyPatch, times: int, again: int
) -> None:
    """Each of which begins with a new interpreter. After a `down` there is another one."""
    monkeypatch.setattr(warm, "COLD", True)
    with ThreadPoolExecutor(times) as people:
        starts = [one.result() for one in [people.submit(house.run, "up", "-d") for _ in range(times)]]
    said = [one.stderr for one in starts]
    assert [one.returncode for one in starts] == [0] * times, said
    pids = {line.partition("(pid ")[2].partition(")")[0] for text in said for line in text.splitlines() if "(pid " in line}
    assert pids == {str(lock.holder(house.home.lock))}, said
    (pid,) = pids
    assert "/aiohttp/" not in Path(f"/proc/{pid}/maps").read_text(), "it serves no HTTP, and would start a sixth later"
    assert f"(pid {pid})" in house.run("up", "-d").stderr
    assert sum("starting the supervisor" in text for text in said) == 1, said
    for _ in range(again):
        before = lock.holder(house.home.lock)
        house.ok("down")
        house.ok("up", "-d")
        after = lock.holder(house.home.lock)
        assert after is not None and after != before


def test_a_command_of_another_version_is_refused_with_the_fix(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.start_daemon()
    monkeypatch.setattr(protocol, "__version__", "99.0")
    with pytest.raises(Refused) as refusal:
        protocol.call(house.home.daemon_socket, "kill", {"tasks": []})
    line = refusal.value.line()
    assert "the command is 99.0" in line and "next: nightcrew down && nightcrew up -d" in line
    assert protocol.call(house.home.daemon_socket, "ping", {})["ready"] is True, "asking who is there and `down` work across versions"


def test_what_is_no_request_is_refused_and_harms_nothing(house: House) -> None:
    house.start_daemon()
    for raw in (b"\n", b"{}\n", b"[1]\n", b"\xff\n", b'{"version": "1", "verb": "kill"}\n', b"x" * 100_000 + b"\n"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(house.home.daemon_socket))
            client.sendall(raw)
            answer = json.loads(client.makefile("rb").readline())
        assert answer["ok"] is False and answer["error"]["error"] == "UsageError", raw
    with socket.socket(socket.AF_UNIX) as rude:
        rude.connect(str(house.home.daemon_socket))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(house.home.daemon_socket))
        client.sendall(json.dumps({"version": __version__, "verb": "submit", "args": {"spec": 3}}).encode() + b"\n")
        answer = json.loads(client.makefile("rb").readline())
    assert answer["ok"] is False
    assert house.ready()


def test_a_supervisor_that_hangs_is_named_not_waited_for_for_ever(house: House) -> None:
    daemon = house.start_daemon()
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        with pytest.raises(TimedOut, match="the supervisor did not answer"):
            protocol.call(house.home.daemon_socket, "ping", {}, timeout_s=0.3)
        assert house.run("status").returncode == 0, "looking needs no supervisor"
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


def test_nothing_starts_while_tmux_does_not_answer_and_everything_goes_on_when_it_does(house: House) -> None:
    """A tmux that hangs costs no task an attempt: what is ready waits."""
    house.start_daemon()
    start(house, AT_WORK)
    server = house.tmux_pid()
    assert server is not None
    os.kill(server, signal.SIGSTOP)
    try:
        wait_until(lambda: "nothing new starts: tmux did not answer" in house.daemon_output(), "the supervisor to notice")
        house.ok("add", "--id", "late", "true")
        wait_until(lambda: house.state("late") == "ready", "it to be ready")
        assert (house.state("late"), house.task("late").epoch, house.task("agent").epoch) == ("ready", 0, 1)
    finally:
        os.kill(server, signal.SIGCONT)
    wait_until(lambda: house.state("late") == "done", "it to run once tmux answers")
    assert house.task("late").epoch == 1
    let_go(house)
    house.wait_final()
    assert (house.state("agent"), house.task("agent").epoch) == ("done", 1)


# Sessions that a person touches ---------------------------------------------------------------------------------------------------


def tmux(house: House, *words: str) -> str:
    return subprocess.run(
        ["tmux", "-S", str(house.home.tmux_socket), *words], env=house.env, capture_output=True, text=True, check=True
    ).stdout.strip()


def session(house: House, name: str = "agent") -> str:
    return tmux(house, "list-sessions", "-F", "#{session_id}", "-f", f"#{{==:#{{session_name}},{house.task(name).id.replace('/', '_')}_1}}")


def test_a_session_closed_by_hand_is_cancelled_and_not_run_again(house: House) -> None:  # P17
    house.start_daemon()
    start(house, "--retries", "3", AT_WORK)
    tmux(house, "kill-session", "-t", session(house))
    wait_until(lambda: house.task("agent").final, "it to be seen", 30)
    view = house.task("agent")
    assert (view.state, view.epoch, view.reason) == ("cancelled", 1, "cancelled: its session was closed by hand")
    assert house.tagged() == []


def test_a_session_that_was_renamed_split_and_linked_is_still_tracked(house: House) -> None:  # P18
    house.start_daemon()
    start(house, AT_WORK)
    where = session(house)
    tmux(house, "rename-session", "-t", where, "mine now")
    tmux(house, "rename-window", "-t", where, "my window")
    extra = tmux(house, "split-window", "-P", "-F", "#{pane_id}", "-t", where, "sleep 600")
    tmux(house, "new-window", "-t", where, "sleep 600")
    tmux(house, "kill-pane", "-t", extra)
    assert house.state("agent") == "running"
    let_go(house)
    wait_until(lambda: house.state("agent") == "done", "it to end by itself")
    wait_until(lambda: house.sessions() == set(), "its session to be released, with the person's window in it")


def test_a_pane_closed_by_hand_beside_another_is_the_agents_end(house: House) -> None:  # P18
    house.start_daemon()
    start(house, "--retries", "3", AT_WORK)
    where = session(house)
    tmux(house, "split-window", "-d", "-t", where, "sleep 600")
    tmux(house, "kill-pane", "-t", str(house.task("agent").pane_id))
    wait_until(lambda: house.task("agent").final, "it to be seen", 30)
    assert (house.state("agent"), house.task("agent").epoch) == ("cancelled", 1)
    wait_until(lambda: house.sessions() == set(), "its session to be released, with the person's pane in it")


def test_a_stop_an_end_and_a_crash_at_once_are_one_end(house: House) -> None:  # R04
    house.start_daemon()
    names = [f"agent{number}" for number in range(4)]
    house.ok("run", "-d", house.plan(plan_of([shell_task(name, AT_WORK) for name in names])))
    wait_until(lambda: {task.attempt_state for task in house.tasks()} == {"running"}, "all to run")
    tasks = [house.task(name) for name in names]
    pids = [started_pid(house, task.id) for task in tasks]
    together = threading.Barrier(3 * len(tasks))
    with ThreadPoolExecutor(3 * len(tasks)) as people:
        done = [
            people.submit(at_once, together, what)
            for task, pid in zip(tasks, pids, strict=True)
            for what in (
                functools.partial(protocol.call, house.home.daemon_socket, "kill", {"tasks": [task.id]}),
                functools.partial(Path(str(task.worktree), "go").touch),
                functools.partial(signal_if_there, pid),
            )
        ]
        for one in done:
            one.result()
    house.wait_final()
    for task in map(house.task, names):
        events = [entry["event"] for entry in json.loads(house.ok("status", task.id, "--json"))["journal"]]
        assert sum(event.startswith("end ") for event in events) == 1, events
        assert (task.epoch, task.state in ("done", "cancelled")) == (1, True), (task.state, task.reason)
    assert house.tagged() == []


def at_once(together: threading.Barrier, what: Callable[[], object]) -> None:
    together.wait(30)
    what()


def started_pid(house: House, task: str) -> int:
    found = records.parse_started((house.home.attempt(task, 1) / "started.json").read_text())
    assert found is not None
    return found.identity.pid
