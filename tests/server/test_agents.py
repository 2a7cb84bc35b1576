"""What an agent is given, and what becomes of it in each way to end."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from supervisor.host import cgroups, cores
from supervisor.kernel.states import TaskClass
from tests.support import House, plan_of, shell_task, wait_until

POISON = {
    "LD_PRELOAD": "/nonexistent/evil.so",
    "PYTHONPATH": "/nonexistent",
    "PYTHONSTARTUP": "/nonexistent/evil.py",
    "GIT_DIR": "/nonexistent",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "/nonexistent/evil",
    "BASH_ENV": "/nonexistent/evil.sh",
    "ENV": "/nonexistent/evil.sh",
    "TMUX": "/nonexistent,1,0",
    "TMUX_TMPDIR": "/nonexistent",
    "AWS_SECRET_ACCESS_KEY": "canary-aws",
    "ANTHROPIC_API_KEY": "canary-anthropic",
    "VIRTUAL_ENV": "/nonexistent",
    "SSH_AUTH_SOCK": "/nonexistent",
    "HTTPS_PROXY": "http://evil.invalid",
    "NIGHTCREW_TASK": "forged",
    "NIGHTCREW_TAG": "forged",
    "TRACEPARENT": "forged",
    "MY_OWN": "passed on",
}
ALWAYS = {
    "PATH", "HOME", "TMPDIR", "TERM", "NIGHTCREW_TASK", "NIGHTCREW_EPOCH", "NIGHTCREW_RUN", "NIGHTCREW_OUT", "NIGHTCREW_TAG",
    "NIGHTCREW_TOKEN", "NIGHTCREW_AGENTS_SOCKET", "NIGHTCREW_PORT", "NIGHTCREW_PORTS",
    "NIGHTCREW_AGENT", "NIGHTCREW_MEMORY", "TRACEPARENT", "GIT_TERMINAL_PROMPT", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE",
}  # fmt: skip
MAY = {"USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "COLORTERM", "NO_COLOR"}


def environment(house: House, name: str) -> dict[str, str]:
    pairs = (entry.partition("=") for entry in house.ok("logs", name).split("\0") if entry)
    return {key: text for key, _, text in pairs}


def result(house: House, name: str) -> dict[str, Any]:
    found = house.task(name).result
    assert found is not None
    return found


def test_only_the_allowed_variables_arrive(house: House) -> None:
    """The poison is in the shell that submits, which also starts the supervisor and its tmux server."""
    house.config.write_text('pass_env = ["MY_OWN"]\nsandbox = 0\n[limits]\ndisk_free_min = 0\n')
    poison = {**POISON, "LC_ALL": "C.UTF-8"}
    poison.pop("LD_PRELOAD")  # the dynamic loader would complain on stderr of the test's own commands; it is set below
    house.ok("add", "-f", "--id", "first", "env", "-0", env=poison)
    house.run("add", "-f", "--id", "second", "env", "-0", env=POISON)
    for name in ("first", "second"):
        seen = environment(house, name)
        assert {key for key in seen if not key.startswith("LC_")} - ALWAYS - MAY == {"MY_OWN"}
        assert seen["MY_OWN"] == "passed on" and "canary" not in json.dumps(seen)
        assert seen["NIGHTCREW_TASK"] == house.task(name).id and "forged" not in seen.values()
    assert environment(house, "first")["LC_ALL"] == "C.UTF-8"


def test_what_an_agent_is_told(house: House, tmp_path: Path) -> None:
    house.start_daemon()
    (tmp_path / "long prompt.md").write_text("from a file\nüñí\n")
    plan = [
        shell_task("typed", 'cat "$NIGHTCREW_PROMPT_FILE"', prompt='line one\n$(touch X) "quoted"\n'),
        shell_task("filed", 'cat "$NIGHTCREW_PROMPT_FILE"', prompt_file="long prompt.md"),
        shell_task("none", 'echo "[$NIGHTCREW_PROMPT_FILE]"'),
        shell_task(
            "params", 'echo "$WORD|$NUMBER|$FLAG|$SPACE"', params={"WORD": "$(touch X)", "NUMBER": 3, "FLAG": True, "SPACE": "a  b"}
        ),
        shell_task("where", 'pwd; echo "$NIGHTCREW_RUN $NIGHTCREW_EPOCH"; touch "$TMPDIR/x" "$NIGHTCREW_OUT/y"; git status --porcelain'),
    ]
    house.ok("run", house.plan(plan_of(plan)))
    assert house.ok("logs", "typed") == 'line one\n$(touch X) "quoted"\n'
    assert house.ok("logs", "filed") == "from a file\nüñí\n"
    assert house.ok("logs", "none") == "[]\n"
    assert house.ok("logs", "params") == "$(touch X)|3|true|a  b\n"
    view = house.task("where")
    assert house.ok("logs", "where") == f"{view.worktree}\n{view.run} 1\n", "its own directories are not inside its worktree"
    assert (house.home.attempt(view.id, 1) / "out" / "y").exists()


@pytest.mark.in_turns
@pytest.mark.parametrize("tier", ["0", "1", "2"])
def test_temporary_directory_has_room_for_the_path_of_a_socket(house: House, tier: str) -> None:
    """`multiprocessing` makes a directory of its own there, and in that a socket."""
    house.start_daemon()
    script = "import multiprocessing as m, os, tempfile; print(len(tempfile.mkdtemp()[:-12]), m.Manager().list([os.environ['TMPDIR']])[0])"
    house.ok("add", "-f", "--id", "a-name-of-21-letters-", "--sandbox", tier, f'python3 -c "{script}"; touch "$TMPDIR/left"')
    length, place = house.ok("logs", "a-name-of-21-letters-").split()
    assert int(length) <= 40 and (place == "/tmp") == (tier != "0")
    assert tier != "0" or not Path(place).exists(), "it goes with the attempt"


def test_temporary_directory_of_another_user_is_refused_and_one_that_a_crash_left_goes(house: House) -> None:
    left = house.home.short_tmp(house.home.attempt("none/none", 1))
    (left / "deep").mkdir(parents=True)
    house.start_daemon()
    wait_until(lambda: not left.exists(), "the next supervisor to remove it")
    link = house.repo.parent / "elsewhere"
    link.mkdir()
    (link / "kept").touch()
    house.ok("add", "--id", "first", "sleep 100")
    task = house.task("first").id
    house.ok("kill", "first")
    house.wait_final()
    taken = house.home.short_tmp(house.home.attempt(task, 2))
    taken.symlink_to(link)
    house.run("retry", "first")
    house.wait_final()
    taken.unlink()
    assert "is not a directory but a link" in house.ok("status", "first") and (link / "kept").exists()


def test_each_way_to_end_is_told(house: House) -> None:
    house.start_daemon()
    plan = [
        shell_task("fine", "exit 0"),
        shell_task("code", "exit 41"),
        shell_task("signal", "kill -SEGV $$"),
        shell_task("slow", "sleep 600", timeout="1s"),
        shell_task("stubborn", "trap '' TERM; while :; do sleep 0.1; done", timeout="3s"),
        "[[tasks]]\nid = 'absent'\ncommand = ['/no/such/program']\n",
        "[[tasks]]\nid = 'directory'\ncommand = ['/tmp']\n",
        shell_task("daemon", "setsid sleep 600 & exit 0"),
    ]
    assert house.run("run", house.plan(plan_of(plan))).returncode == 1
    assert {view.name: (str(view.state), view.reason) for view in house.tasks()} == {
        "fine": ("done", "done"),
        "code": ("failed", "failed: exit code 41"),
        "signal": ("failed", "failed: killed by signal 11"),
        "slow": ("failed", "timeout: stopped after 1s"),
        "stubborn": ("failed", "timeout: stopped after 4s"),
        "absent": ("failed", "failed: could not start: /no/such/program: No such file or directory"),
        "directory": ("failed", "failed: could not start: /tmp: Permission denied"),
        "daemon": ("done", "done"),
    }
    assert result(house, "signal")["exit"] == {"code": None, "signal": 11}
    assert result(house, "code")["exit"] == {"code": 41, "signal": None}
    assert house.tagged() == [], "what a task left running in the background ended with it"


def test_a_failure_is_tried_again_after_a_pause_and_the_last_try_counts(house: House) -> None:
    house.start_daemon()
    flaky = 'echo "try $NIGHTCREW_EPOCH" | tee try; test "$NIGHTCREW_EPOCH" = 2'
    house.run("run", house.plan(plan_of([shell_task("flaky", flaky, retries=3), shell_task("hopeless", "exit 1", retries=1)])))
    flaky_view, hopeless = house.task("flaky"), house.task("hopeless")
    assert (flaky_view.state, flaky_view.epoch) == ("done", 2)
    assert (hopeless.state, hopeless.epoch) == ("failed", 2)
    assert house.ok("logs", "flaky", "--attempt", "1") == "try 1\n" and house.ok("logs", "flaky") == "try 2\n"
    events = json.loads(house.ok("status", "flaky", "--json"))["journal"]
    starts = [entry for entry in events if entry["event"] == "start"]
    assert [entry["data"].get("cause") for entry in starts] == [None, "failed: exit code 1"], "a re-run has a cause"
    ended = next(entry["at"] for entry in events if entry["event"] == "end failed")
    assert starts[1]["at"] - ended >= 1.4, "it waited its backoff of 2 s, less a quarter at most"


def test_one_slot_serves_the_most_urgent_first(house: House) -> None:
    house.config.write_text("slots = 1\nsandbox = 0\n[limits]\ndisk_free_min = 0\n")
    order = house.repo.parent / "order"
    tell = f'echo "$NIGHTCREW_TASK" >> {shlex.quote(str(order))}'
    plan = [
        shell_task("batch", tell, **{"class": "batch", "priority": 100}),
        shell_task("low", tell, priority=10),
        shell_task("old", tell),
        shell_task("new", tell),
        shell_task("high", tell, priority=90),
        shell_task("person", tell, **{"class": "interactive", "priority": 0}),
    ]
    house.start_daemon()
    house.ok("add", "--id", "blocker", "while [ ! -e go ]; do sleep 0.05; done")
    wait_until(lambda: house.task("blocker").worktree, "the only slot to be taken")
    house.ok("run", "-d", house.plan(plan_of(plan)))
    wait_until(lambda: house.state("person") == "ready", "the others to queue")
    Path(house.task("blocker").worktree or "", "go").touch()
    house.wait_final()
    assert [line.rpartition("/")[2] for line in order.read_text().split()] == ["person", "high", "old", "new", "low", "batch"]


def test_nice_and_cores_and_limits_reach_the_agent(house: House) -> None:
    limits = 'disk_free_min = 0\nopen_files = 123\nmemory_max = "900MiB"\nfile_max = "1MiB"\n'
    house.config.write_text(f"nice = 7\nsandbox = 0\n[limits]\n{limits}")
    last = max(cores.usable())
    show = "nice; grep Cpus_allowed_list /proc/self/status | cut -f2; ulimit -n; ulimit -v; ulimit -f; ulimit -c"
    plan = [
        shell_task("pinned", show, cores=[last]),
        shell_task("one", show, cores=1),
        shell_task("too-much", "dd if=/dev/zero of=big bs=1M count=2"),
    ]
    house.start_daemon()
    house.run("run", house.plan(plan_of(plan)))
    nice, allowed, files, memory, size, core = house.ok("logs", "pinned").split()
    assert (int(nice), allowed, files, memory, core) == (os.nice(0) + 7, str(last), "123", str(900 * 1024), "0")
    assert int(size) * 512 in (2**20, 2**21), "blocks are of 512 bytes or of 1 KiB, as the shell likes"
    assert "," not in house.ok("logs", "one").split()[1] and "-" not in house.ok("logs", "one").split()[1]
    assert house.state("too-much") == "failed"


def test_each_class_has_its_share_of_the_processor_and_so_has_what_it_starts_in_a_session_of_its_own(house: House) -> None:
    if not (shares := cgroups.probe().shares):
        pytest.skip("no group has a weight here")
    house.config.write_text("nice = 7\nsandbox = 0\n[limits]\ndisk_free_min = 0\n")
    show = "nice; setsid -w grep -h cpu /proc/self/cgroup /dev/null; cut -d' ' -f41 /proc/self/stat"  # proc(5): policy, 5 is SCHED_IDLE
    plan = [shell_task(name, show, **{"class": name}) for name in TaskClass]
    house.ok("run", house.plan(plan_of([*plan, shell_task("limited", show, processes_max=50)])))
    said = {name: house.ok("logs", name) for name in (*TaskClass, "limited")}
    assert [int(said[name].split()[0]) - os.nice(0) for name in TaskClass] == [min(nice, 19 - os.nice(0)) for nice in (0, 7, 19)]
    assert [said[name].split()[-1] for name in TaskClass] == ["0", "0", "5"]
    assert len(shares) == 1 and "nightcrew-" not in said["interactive"]
    assert "/nightcrew-class-normal" in said["normal"] and "/nightcrew-class-batch" in said["batch"]
    assert "/nightcrew-class" not in said["limited"] and "/nightcrew-" in said["limited"]


@pytest.mark.skipif(len(cores.topology()) < 2, reason="lanes need two cores")
def test_agents_are_spread_over_lanes_and_the_next_supervisor_knows_who_is_in_which(house: House) -> None:
    house.config.write_text("slots = 9\nsandbox = 0\n[limits]\ndisk_free_min = 0\n[cores]\nlanes = 2\nreserve = 0\n")
    show = "grep Cpus_allowed_list /proc/self/status | cut -f2; while [ ! -e go ]; do sleep 0.05; done"
    daemon = house.start_daemon()
    house.ok("add", "--id", "first", show)
    wait_until(lambda: house.task("first").attempt_state == "running" and house.ok("logs", "first"), "the first one to run")
    daemon.kill()
    daemon.wait()
    house.start_daemon()
    house.ok("add", "--id", "second", show)
    wait_until(lambda: house.task("second").attempt_state == "running" and house.ok("logs", "second"), "the second one to run")
    for name in ("first", "second"):
        Path(house.task(name).worktree or "", "go").touch()
    house.wait_final()
    half = cores.lanes(cores.topology(), 0, 2)
    assert [lane_of(house.ok("logs", name)) for name in ("first", "second")] == list(map(set, half))


@pytest.mark.skipif(len(cores.topology()) < 2, reason="lanes need two cores")
def test_living_agents_move_with_all_that_they_started_when_the_lanes_change(house: House) -> None:
    settings = "slots = 9\nsandbox = 0\n[limits]\ndisk_free_min = 0\n[cores]\nreserve = 0\n"
    house.config.write_text(f"{settings}lanes = 2\n")
    show = (
        "sh -c 'grep -h Cpus_allowed_list /proc/self/status; while [ ! -e go ]; do sleep 0.05; done; cat /proc/self/status' | grep Cpus_a"
    )
    daemon = house.start_daemon()
    own = cores.lanes(cores.topology(), 0, 2)[1][0]
    house.ok("run", "-d", house.plan(plan_of([shell_task("free", show), shell_task("pinned", show, cores=[own])])))
    wait_until(lambda: all(house.task(name).attempt_state == "running" and house.ok("logs", name) for name in ("free", "pinned")), "both")
    daemon.kill()
    daemon.wait()
    house.config.write_text(settings)
    house.start_daemon()
    for name in ("free", "pinned"):
        Path(house.task(name).worktree or "", "go").touch()
    house.wait_final()
    last = {name: lane_of(house.ok("logs", name).split("Cpus_allowed_list:")[-1]) for name in ("free", "pinned")}
    assert last == {"free": {cpu for core in cores.topology() for cpu in core.cpus}, "pinned": {own}}


def lane_of(listed: str) -> set[int]:
    """The CPU numbers of the kernel's list."""
    ranges = [tuple(map(int, word.split("-"))) for word in listed.strip().split(",")]
    return {cpu for found in ranges for cpu in range(found[0], found[-1] + 1)}


@pytest.mark.parametrize("lines", [30_000, pytest.param(15_000_000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_an_agent_that_never_stops_printing_fills_its_own_log_only(house: House, lines: int) -> None:
    """30 MB and more from one agent: its log is capped and says so, and another agent's short task is not held up."""
    house.config.write_text('sandbox = 0\n[limits]\ndisk_free_min = 0\nlog_max = "1MiB"\n')
    house.start_daemon()
    flood = f"yes {'x' * 1000} | head -n {lines}; echo the very last line"
    house.ok("add", "--id", "flood", flood)
    house.ok("add", "-f", "--id", "quick", "echo through")
    house.wait_final(1200)
    log = house.home.attempt(house.task("flood").id, 1) / "stdout.log"
    assert log.stat().st_size <= 2**20 + 4096
    cut = result(house, "flood")["truncated"]["stdout"]
    assert lines * 1001 - 2**20 - 4096 < cut < lines * 1001
    text = house.ok("logs", "flood")
    assert f"\n[nightcrew: truncated {cut} bytes]\n" in text
    assert text.endswith("the very last line\n"), "the end of a log is worth more than its middle"


@pytest.mark.parametrize(("said", "warned"), [("2.1.197 (Claude Code)", True), ("2.1.329 (Claude Code)", False), ("no number", False)])
def test_start_says_that_a_program_is_older_than_what_was_tried(house: House, tmp_path: Path, said: str, warned: bool) -> None:
    program = tmp_path / "bin/claude"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n[ \"$1\" = --version ] && echo '{said}'\n")
    program.chmod(0o755)
    house.start_daemon()
    done = house.run("start", "--headless", "x", env={"PATH": f"{program.parent}:{os.environ['PATH']}"})
    assert done.returncode == 0
    assert ("claude is 2.1.197 (Claude Code), older than 2.1.329" in done.stderr) == warned
