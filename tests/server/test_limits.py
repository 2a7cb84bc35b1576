"""What an agent may use: held, named in its result when it met it, and nothing of it left behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from supervisor.host import cgroups
from supervisor.host.cgroups import Group, Support
from supervisor.kernel import names
from tests.host.cgroup_kit import python
from tests.support import House, plan_of, shell_task, wait_until

pytestmark = pytest.mark.usefixtures("no_groups_left")
GREEDY = f"{' '.join(python('')[:-1])} 'x = bytearray(200 << 20)'"
BOMB = "mkfifo go; bomb() { bomb | bomb & }; bomb; read word < go; exit 3"
"""Once it burst, the shell itself can fork no more either."""
BUSY = "while :; do :; done"
WAITS = "while [ ! -e go ]; do sleep 0.05; done; "


@pytest.fixture(scope="module")
def groups() -> Support:
    return cgroups.probe()


@pytest.fixture
def grouped(groups: Support) -> Support:
    if not (groups.memory and groups.processes and groups.cpu):
        pytest.skip("; ".join(groups.missing))
    return groups


def run(house: House, *tasks: str) -> subprocess.Popen[bytes]:
    """The daemon that runs them."""
    daemon = house.start_daemon()
    house.ok("run", "-d", house.plan(plan_of(tasks)))
    return daemon


def replaced(house: House, daemon: subprocess.Popen[bytes]) -> None:
    """By another one, with no time to say goodbye."""
    daemon.kill()
    daemon.wait()
    house.start_daemon()


def cause(house: House, name: str) -> str:
    house.run("wait", house.task(name).id)
    found = house.task(name).result
    assert found is not None
    return str(found["cause"])


def complaints(house: House, name: str) -> str:
    return (house.home.attempt(house.task(name).id, 1) / "stderr.log").read_text()


def begun(house: House, name: str) -> None:
    wait_until(lambda: house.task(name).attempt_state == "running", f"{name} to run")


def go(house: House, name: str) -> None:
    Path(house.task(name).worktree or "", "go").touch()


def left(house: House, groups: Support) -> list[Group]:
    return list(cgroups.left(groups, names.tag(str(house.home.root), "", 0).partition(":")[0]))


def test_an_agent_out_of_memory_ends_alone_and_its_result_says_why(house: House, groups: Support) -> None:
    run(house, shell_task("greedy", GREEDY, memory_max="64MiB"), shell_task("beside", f"{WAITS}echo fine"))
    why = cause(house, "greedy")
    if groups.memory:
        assert why.startswith("out of memory: memory_max is 64.0 MiB, and the kernel killed 1 of its processes; "), why
        assert "memory_max holds for all processes together" in house.ok("status", house.task("greedy").id)
    else:
        assert why == "exit code 1" and "MemoryError" in complaints(house, "greedy")
        assert house.daemon_output().count("memory_max holds for the address space of each process alone") == 1
    begun(house, "beside")
    go(house, "beside")
    assert house.ok("wait", house.task("beside").id) is not None and house.state("beside") == "done"
    wait_until(lambda: not left(house, groups), "its control group to be gone")


def test_a_fork_bomb_stays_within_its_limit_and_everybody_else_goes_on(house: House, grouped: Support) -> None:
    run(house, shell_task("bomb", BOMB, processes_max=40))
    begun(house, "bomb")
    group = cgroups.Group(tuple(parent / cgroups.name(tag(house, "bomb")) for parent in grouped.parents))
    wait_until(lambda: group.refused_forks() > 20, "the bomb to burst")
    assert len(group.pids()) <= 40
    house.ok("add", "-f", "--id", "beside", "true")
    house.run("kill", "bomb")
    wait_until(lambda: house.task("bomb").final, "the bomb to be over")
    wait_until(lambda: not house.tagged() and not left(house, grouped), "nothing of it to live")
    assert house.state("beside") == "done"


def tag(house: House, name: str) -> str:
    return names.tag(str(house.home.root), house.task(name).id, 1)


def test_a_bomb_that_gave_up_is_told_why(house: House, grouped: Support) -> None:
    run(house, shell_task("forks", "for i in 1 2 3 4 5 6 7 8 9; do sleep 60 & done; exit 3", processes_max=5))
    assert cause(house, "forks").startswith("processes_max: it may have 5 at once, and ")
    well = shell_task("lives", "(for i in 1 2 3 4 5 6 7 8 9; do sleep 60 & done) 2>/dev/null; exit 0", processes_max=5)
    house.ok("run", house.plan(plan_of([well])))
    assert house.task("lives").state == "done", "whoever lived with a limit and ended well met none"


def test_where_nothing_holds_a_limit_a_task_is_refused(house: House, groups: Support) -> None:
    if groups.processes:
        pytest.skip("control groups hold it here")
    run(house, shell_task("many", "true", processes_max=50))
    assert cause(house, "many") == (
        "could not start: this host cannot hold a task to its limits processes_max = 50: nothing holds processes_max here: no pids "
        "controller, and no user namespace for the agent; kept: the task, it was not started without; next: nightcrew doctor"
    )


def test_in_a_sandbox_of_its_own_an_ordinary_users_agent_is_held(house: House, groups: Support) -> None:
    if groups.processes:
        pytest.skip("control groups hold it here")
    count = "n=0; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 60 & n=$((n + 1)); echo $n; done"
    run(house, shell_task("many", count, processes_max=8, sandbox=1))
    why = cause(house, "many")
    if why.startswith("could not start: this host cannot isolate"):
        pytest.skip("no sandbox works here")
    seen = house.ok("logs", "--stream", "stdout", "many").split()
    assert 2 <= len(seen) < 8 and "fork" in complaints(house, "many").lower(), why


def test_processor_time_counts_for_all_of_it_together(house: House, grouped: Support) -> None:
    """No process of it has used as much as that."""
    run(house, shell_task("busy", f"({BUSY}) & ({BUSY}) & wait", cpu_max="1s", processes_max=20))
    assert cause(house, "busy").startswith("cpu_max: it used ")
    assert house.task("busy").end == "failed"


def test_processor_time_of_one_process_is_the_kernels(house: House) -> None:
    run(house, shell_task("busy", BUSY, cpu_max="1s"))
    assert cause(house, "busy").startswith("cpu_max: it used 1s of processor time, it may have 1s")


def test_the_disk_is_watched_and_by_the_next_supervisor_too(house: House) -> None:
    writes = "while :; do head -c 1000000 /dev/zero >> big; sleep 0.02; done"
    elsewhere = f'{WAITS}cd "$TMPDIR"; {writes}'
    daemon = run(house, shell_task("fills", f"{WAITS}{writes}", disk_max="5MiB"), shell_task("tmp", elsewhere, disk_max="5MiB"))
    begun(house, "fills")
    begun(house, "tmp")
    replaced(house, daemon)
    for name in ("fills", "tmp"):
        go(house, name)
    for name in ("fills", "tmp"):
        assert cause(house, name).startswith("disk_max: its files take ") and cause(house, name).endswith(", it may have 5.0 MiB")
        assert house.task(name).end == "failed" and house.task(name).epoch == 1


def test_a_limit_is_named_by_the_supervisor_that_adopted_the_agent(house: House, grouped: Support) -> None:
    daemon = run(house, shell_task("greedy", f"{WAITS}{GREEDY}", memory_max="64MiB"))
    begun(house, "greedy")
    replaced(house, daemon)
    go(house, "greedy")
    assert cause(house, "greedy").startswith("out of memory: memory_max is 64.0 MiB")
    wait_until(lambda: not left(house, grouped), "its control group to be gone")


def test_a_file_that_grew_too_large_is_named(house: House) -> None:
    house.config.write_text(house.config.read_text() + 'file_max = "1MB"\n')
    run(house, shell_task("large", "exec head -c 5000000 /dev/zero > big"))
    assert cause(house, "large").startswith("file_max: a file grew past 977 KiB; ")


def test_in_a_sandbox_root_cannot_leave_its_group(house: House, grouped: Support) -> None:
    if os.geteuid() != 0:
        pytest.skip("groups of an ordinary user: not tried here")
    above = " ".join(str(parent / "cgroup.procs") for parent in grouped.parents)  # no other group: some other test may have frozen it
    leave = f"for file in {above}; do (echo 0 > $file) 2>/dev/null && echo left; done; echo tried"
    run(house, shell_task("free", leave, memory_max="64MiB"), shell_task("held", leave, memory_max="64MiB", sandbox=1))
    house.wait_final()
    if house.state("held") != "done":
        pytest.skip(f"no sandbox works here: {house.task('held').reason}")
    assert "left" in house.ok("logs", "free"), "without a sandbox nothing keeps it, so the other one was really kept"
    assert house.ok("logs", "held") == "tried\n"


def test_what_a_crash_left_is_taken_away(house: House, grouped: Support) -> None:
    group = cgroups.create(grouped, names.tag(str(house.home.root), "0101-aaaa/gone", 1))
    join = ["/bin/sh", "-c", 'for file in "$@"; do echo 0 >"$file" || exit; done; exec sleep 600', "sh", *group.join_files]
    with subprocess.Popen(join) as forgotten:
        try:
            wait_until(lambda: group.pids() == {forgotten.pid}, "it to join")
            house.start_daemon()
            assert forgotten.wait(30) == -9
            wait_until(lambda: not left(house, grouped), "the group to be gone")
        finally:
            forgotten.kill()
            group.kill()
            group.remove()


def test_a_task_without_limits_has_no_group(house: House, groups: Support) -> None:
    run(house, shell_task("free", f"{WAITS}true"))
    begun(house, "free")
    assert left(house, groups) == []
    go(house, "free")


def test_a_snapshots_limit_holds_for_who_starts_from_it(house: House, grouped: Support) -> None:
    (house.repo / "nightcrew.toml").write_text('[snapshot.small]\nsetup = ["true"]\nmemory_max = "64MiB"\n')
    house.start_daemon()
    house.ok("snapshot", "create", "small")
    house.ok("add", "--id", "greedy", "--snapshot", "small", GREEDY)
    assert cause(house, "greedy").startswith("out of memory: memory_max is 64.0 MiB")
    wait_until(lambda: not left(house, grouped), "its control group to be gone")
