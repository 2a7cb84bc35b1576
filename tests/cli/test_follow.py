"""`run`, `add`, `wait` and `logs`: handing work over and waiting for it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable

from supervisor.server import lock
from tests.cli.terminal import COMMAND, Terminal
from tests.support import House, plan_of, shell_task, wait_until

TWO = plan_of([shell_task("quick", "echo done quickly"), shell_task("slow", "while [ ! -e go ]; do sleep 0.05; done")])


def let_go(house: House, name: str) -> None:
    wait_until(lambda: house.task(name).worktree, f"{name} to have a worktree")
    with open(f"{house.task(name).worktree}/go", "w"):
        pass


def test_run_starts_the_supervisor_follows_and_separates_data_from_talk(house: House) -> None:
    done = house.run("run", house.plan(plan_of([shell_task("good", "echo hi > new"), shell_task("bad", "exit 1")])))
    assert done.returncode == 1, "one task failed"
    run = house.task("good").run
    talk = done.stderr.splitlines()
    assert talk[0].startswith("nightcrew: starting the supervisor")
    assert f"nightcrew: run {run}: 2 tasks; nightcrew status {run}" in talk
    assert f"nightcrew: run {run}: 1 done, 1 failed" in talk
    assert f"nightcrew: to see what went wrong: nightcrew logs {run}/bad" in talk
    assert f"nightcrew: all of it on one page: nightcrew report {run}" in talk
    assert f"nightcrew: to see and keep a result: nightcrew diff {run}/good, nightcrew take {run}/good" in talk
    assert all(line[0] in "●✓✗" for line in done.stdout.splitlines())
    assert "collecting" not in done.stdout and "launching" not in done.stdout
    assert house.run("run", house.plan(plan_of([shell_task("good", "true")]))).returncode == 0
    assert "starting" not in house.run("add", "true").stderr, "it runs already"


def test_detached_ids_and_json_go_to_stdout(house: House) -> None:
    house.start_daemon()
    plan = house.plan(TWO)
    done = house.run("run", "-d", plan)
    assert done.stdout.split() == [view.id for view in house.tasks()] and done.returncode == 0
    shape = json.loads(house.ok("run", "-d", "--json", "--key", "k", plan))
    assert shape["schema"] == 1 and shape["new"] is True and len(shape["tasks"]) == 2
    again = json.loads(house.ok("run", "-d", "--json", "--key", "k", plan))
    assert (again["new"], again["run"], again["tasks"]) == (False, shape["run"], shape["tasks"])
    followed = house.run("add", "-f", "--json", "echo '{\"n\": 1}'")
    (task,) = json.loads(followed.stdout)["tasks"]
    assert task["state"] == "done" and task["result"]["output"] == {"n": 1}
    house.ok("kill", "--all")


def test_the_plans_title_base_and_one_task_by_add(house: House) -> None:
    from tests.support import git

    first = git(house.repo, "rev-parse", "HEAD")
    (house.repo / "README").write_text("second\n")
    git(house.repo, "commit", "-qam", "second")
    house.start_daemon()
    house.ok("run", house.plan(f'title = "Two words"\nbase = "{first}"\n' + shell_task("old", "cat README")))
    assert house.ok("logs", "old") == "hello\n"
    house.ok("run", "--base", "main", house.plan(f'base = "{first}"\n' + shell_task("new", "cat README")))
    assert house.ok("logs", "new") == "second\n", "the command line beats the plan"
    house.ok("add", "-f", "--id", "argv", "printf", "%s|", "a b", "--version", "$HOME")
    assert house.ok("logs", "argv") == "a b|--version|$HOME|", "several words are run as they are, options too"
    house.ok("add", "-f", "--id", "shell", "echo $((6 * 7))")
    assert house.ok("logs", "shell") == "42\n", "one word is given to the shell"


def test_logs_are_byte_for_byte_on_their_own_streams(crew: House) -> None:
    done = crew.run("logs", "good")
    assert (done.stdout, done.stderr) == ('one\n{"answer": 42}\n', "two\n")
    assert crew.run("logs", "good", "--stream", "stdout").stderr == ""
    crew.ok("add", "-f", "--id", "bytes", "printf 'caf\\351\\000\\033[31m'")
    raw = subprocess.run([*COMMAND, "logs", "bytes"], env=crew.env, capture_output=True, check=True)
    assert raw.stdout == b"caf\xe9\0\x1b[31m"


def test_logs_follow_to_the_end(house: House) -> None:
    house.start_daemon()
    house.ok("add", "--id", "slow", "echo first; while [ ! -e go ]; do sleep 0.05; done; echo last")
    with subprocess.Popen([*COMMAND, "logs", "-f", "slow"], env=house.env, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "first\n", "what is there already is shown at once"
        let_go(house, "slow")
        assert follower.stdout.read() == "last\n"
    assert follower.returncode == 0


def test_logs_of_what_has_not_started_and_of_earlier_attempts(crew: House) -> None:
    none = crew.run("logs", "behind")
    assert none.returncode == 4 and "it has not started" in none.stderr
    missing = crew.run("logs", "good", "--attempt", "9")
    assert missing.returncode == 4 and "numbered 1 to 1" in missing.stderr


def test_wait_for_all_any_and_too_long(house: House) -> None:
    house.start_daemon()
    house.ok("run", "-d", house.plan(TWO))
    assert house.run("wait", "--any", "quick", "slow").returncode == 0
    late = house.run("wait", "--timeout", "0.2")
    assert late.returncode == 124 and "1 of 1 tasks" in late.stderr
    let_go(house, "slow")
    done = json.loads(house.ok("wait", "--json", "quick", "slow"))
    assert [(task["name"], task["state"]) for task in done["tasks"]] == [("quick", "done"), ("slow", "done")]
    assert house.run("wait").returncode == 0, "nothing is unfinished"
    house.run("add", "-f", "--id", "bad", "exit 1")
    failed = house.run("wait", "bad", "quick")
    assert failed.returncode == 1 and failed.stderr == "nightcrew: 1 done, 1 failed\n"


def test_waiting_says_that_nobody_works_when_the_supervisor_is_gone(house: House) -> None:
    daemon = house.start_daemon()
    house.ok("run", "-d", house.plan(TWO))
    wait_until(lambda: house.state("quick") == "done", "quick to end")
    daemon.kill()
    daemon.wait()
    done = house.run("wait", "--timeout", "0.5")
    assert done.returncode == 124 and "no supervisor is running" in done.stderr
    assert "no supervisor is running" in house.run("status").stderr


def test_ctrl_c_stops_looking_and_nothing_else(house: House) -> None:
    house.start_daemon()
    house.ok("run", "-d", house.plan(TWO))
    wait_until(lambda: house.state("slow") == "running", "the task to run")
    for words in (["wait"], ["logs", "-f", "slow"]):
        with subprocess.Popen([*COMMAND, *words], env=house.env, stderr=subprocess.PIPE, text=True) as looking:
            wait_until(lambda pid=looking.pid: reads_the_ledger(house, pid), "the command to look")  # type: ignore[misc]
            looking.send_signal(signal.SIGINT)
            _, talk = looking.communicate(timeout=30)
        assert (looking.returncode, talk.strip()) == (130, ""), words
        assert house.state("slow") == "running"


def reads_the_ledger(house: House, pid: int) -> bool:
    """Whether the process has come so far; before, Ctrl-C meets Python's own start."""
    with contextlib.suppress(OSError):
        return any(os.readlink(f"/proc/{pid}/fd/{fd}") == str(house.home.ledger) for fd in os.listdir(f"/proc/{pid}/fd"))
    return False


def test_ctrl_c_in_run_leaves_the_tasks_alone(house: House, terminal: Callable[..., Terminal]) -> None:
    here = terminal()
    here.nightcrew("run", house.plan(TWO))
    here.sees("✓ done")
    here.press("C-c")
    screen = here.sees("left with 130")
    assert "the tasks go on; nightcrew status" in screen and "Traceback" not in screen
    wait_until(lambda: house.state("slow") == "running", "the supervisor, which `run` started, to be alive")
    let_go(house, "slow")
    wait_until(lambda: house.state("slow") == "done", "the task to end by itself")


def test_the_run_is_followed_over_a_change_of_supervisors(house: House, terminal: Callable[..., Terminal]) -> None:
    house.start_daemon()
    here = terminal()
    here.nightcrew("run", house.plan(TWO))
    here.sees("quick")
    wait_until(lambda: house.state("slow") == "running", "the task to run")
    pid = lock.holder(house.home.lock)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    here.sees("no supervisor is running")
    house.start_daemon()
    let_go(house, "slow")
    here.sees("left with 0")


def test_the_reader_may_leave(crew: House) -> None:
    """`nightcrew status --all | head -1` is quiet and succeeds."""
    crew.ok("add", "-f", "--id", "chatty", "seq 200000")
    line = f"{' '.join(COMMAND)} logs chatty | head -1"
    for command in (line, f"{' '.join(COMMAND)} status --all --json | head -1", f"{' '.join(COMMAND)} logs -f chatty | head -1"):
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command], env=crew.env, capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1), command


def test_following_tells_why_something_failed_and_that_it_runs_again(house: House) -> None:
    house.start_daemon()
    done = house.run("add", "-f", "--id", "weak", "--retries", "2", "echo attempt $NIGHTCREW_EPOCH broke >&2; exit 3")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert any(line.startswith("○ ready") and line.endswith("failed: exit code 3; it runs again soon") for line in lines), lines
    assert lines[-1].startswith("✗ failed") and lines[-1].endswith("exit code 3: attempt 3 broke"), lines
