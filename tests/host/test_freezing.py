"""Pausing real trees, also ones that fork while they are being paused, with and without a control group."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.host import cgroups, processes, procfs
from supervisor.host.cgroups import Group, Support, Tree, freeze, thaw
from supervisor.kernel.names import TAG_VARIABLE, Identity
from tests.agents.runner.kit import KINDS, ROOT, Attempt, Lab
from tests.host.cgroup_kit import group_of, python, started
from tests.host.cgroup_kit import support as support
from tests.support import wait_until

RESTLESS = """
import os, signal, subprocess, sys, threading
threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
print("up", flush=True)
signal.alarm(600)
while True:
    one = subprocess.Popen(["/bin/true"])
    if not (child := os.fork()):
        os.setsid()
        grandchild = os.fork()
        for _ in range(1000):
            pass
        os._exit(0)
    os.waitpid(child, 0)
    one.wait()
"""
"""Forks, vforks and leaves orphans as fast as it can, with a second thread that never rests; ends after a minute whatever happens."""
CHAIN = """
import os, sys, time
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
end = time.monotonic() + 60
while time.monotonic() < end:
    os.write(log, b"x")
    time.sleep(0.002)
    if os.fork():
        os._exit(0)
"""
"""A process that lives for two milliseconds and leaves a child that goes on: no look at all processes finds it in time."""
COUNTER = 'import sys\ncount = 0\nprint("up", flush=True)\nfor line in sys.stdin:\n    count += 1\n    print(count, flush=True)'
WATCHER = """
import os, signal
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
signal.alarm(600)
child = os.fork()
if not child:
    signal.alarm(600)
    while True:
        signal.pause()
hog = os.fork()
if not hog:
    signal.alarm(600)
    while True:
        pass
os.nice(19)
print(f"up\\n{child}", flush=True)
seen = os.waitpid(child, os.WUNTRACED)[1]
print("stopped" if os.WIFSTOPPED(seen) else "ended", flush=True)
"""
"""A parent that watches one of its children for being stopped; on one processor with a busy one, it is slower to stop than its children."""


@contextlib.contextmanager
def tagged(*argv: str) -> Iterator[tuple[subprocess.Popen[str], Tree]]:
    """A process that carries a tag of its own, with all that it starts."""
    tag = f"{uuid.uuid4().hex[:16]}:run/task:1"
    environ = {TAG_VARIABLE: tag, "PATH": os.environ["PATH"]}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "up\n"
            yield process, Tree(tag)
        finally:
            processes.stop(tag, None, 0.0)
            process.kill()


def snapshot(tree: Tree) -> dict[tuple[int, int], tuple[set[str], int]]:
    """Every member, the states of its threads, and the processor time that it has used, in ticks."""
    found = {seen.key: seen for seen in processes.members(tree.tag, tree.runner)}
    return {key: (cgroups._states(key[0]), _ticks(key[0])) for key in found}


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_tree_that_forks_all_the_time_stands_still_and_goes_on() -> None:
    with tagged(*python(RESTLESS)) as (process, tree):
        done = freeze(tree)
        assert done.moving == () and done.held >= 1
        before = snapshot(tree)
        assert len(before) == done.held
        assert all(states <= cgroups._STILL for states, _ in before.values())
        assert cgroups._states(process.pid) <= cgroups._STOPPED | {"D"}
        assert snapshot(tree) == before, "nobody was born, nobody ended, nobody worked"
        assert freeze(tree).held == done.held, "twice is once"
        assert snapshot(tree) == before
        thaw(tree)
        used = before[next(key for key in before if key[0] == process.pid)][1]
        wait_until(lambda: _ticks(process.pid) > used, "it goes on")
        assert process.poll() is None


@pytest.fixture
def leaver(lab: Lab) -> tuple[Attempt, subprocess.Popen[bytes], Path]:
    """An attempt with a process that always leaves a child and ends, its runner, and the log that grows as long as that goes on."""
    log = lab.folder / "log"
    attempt = lab.attempt("sh", "-c", f"{shlex.join(python(CHAIN))} {log} & exec sleep 60")
    attempt.session = True
    runner = attempt.start()
    wait_until(lambda: log.exists() and log.stat().st_size > 20, "it to move")
    return attempt, runner, log


def test_no_look_below_the_runner_misses_who_always_leaves_a_child_and_ends(leaver: tuple[Attempt, subprocess.Popen[bytes], Path]) -> None:
    _, runner, log = leaver
    found = [len(procfs.descendants(runner.pid)) for _ in range(3000)]
    assert min(found) >= 2, f"{found.count(1)} of {len(found)} looks found the sleep alone"
    size = log.stat().st_size
    wait_until(lambda: log.stat().st_size > size, "it still moves")


def test_who_always_leaves_a_child_and_ends_is_held_with_its_group_and_goes_on(
    leaver: tuple[Attempt, subprocess.Popen[bytes], Path],
) -> None:
    attempt, runner, log = leaver
    tree = Tree(attempt.spec.tag, processes.identity(runner.pid))
    done = freeze(tree)
    size, before = log.stat().st_size, snapshot(tree)
    assert done.moving == () and done.held == len(before) >= 2
    assert all(states <= cgroups._STOPPED for states, _ in before.values())
    assert snapshot(tree) == before and log.stat().st_size == size
    thaw(tree)
    wait_until(lambda: log.stat().st_size > size, "it goes on")
    runner.terminate()
    runner.wait(60)


def test_a_process_that_always_leaves_a_child_and_ends_is_stopped_when_its_runner_was_killed(
    leaver: tuple[Attempt, subprocess.Popen[bytes], Path],
) -> None:
    attempt, runner, log = leaver
    who = processes.identity(runner.pid)
    runner.kill()
    runner.wait(60)
    done = processes.stop(attempt.spec.tag, who, 0.0)
    size = log.stat().st_size
    assert done.survivors == () and done.killed >= 1
    assert not processes._chase(attempt.spec.tag), "nothing of the attempt is born any more"
    assert log.stat().st_size == size


def test_memory_is_kept() -> None:
    with tagged(*python(COUNTER)) as (process, tree):
        assert process.stdin is not None and process.stdout is not None
        print("x", file=process.stdin, flush=True)
        assert process.stdout.readline() == "1\n"
        assert freeze(tree).held == 1
        print("x", file=process.stdin, flush=True)
        assert cgroups._states(process.pid) == {"T"}
        assert thaw(tree) == 1
        assert process.stdout.readline() == "2\n"


def test_every_kind_of_child_is_held_and_the_runner_goes_on(lab: Lab) -> None:
    attempt, pids = lab.family(*KINDS, grace_s=0.3)
    runner = attempt.start()
    family = pids()
    who = processes.identity(runner.pid)
    tree = Tree(attempt.spec.tag, who)
    assert freeze(tree).held == len(KINDS) + 1
    assert {kind: cgroups._states(pid) for kind, pid in family.items()} == {kind: {"T"} for kind in KINDS}
    assert not cgroups._states(runner.pid) & cgroups._STOPPED
    runner.terminate()
    assert runner.wait(60) == 143, "a paused attempt can be ended, by its runner too"
    assert attempt.record().why == "stopped"
    assert [kind for kind, pid in family.items() if procfs.look(pid) is not None] == []


def test_without_its_runner_a_tree_is_found_by_tag_and_mark(lab: Lab) -> None:
    attempt, pids = lab.family("setsid", "clean")
    runner = attempt.start()
    family = pids()
    who = processes.identity(runner.pid)
    runner.kill()
    runner.wait()
    held = [cgroups._states(pid) for pid in family.values() if freeze(Tree(attempt.spec.tag, who)).held]
    assert held == [{"T"}, {"T"}]
    thaw(Tree(attempt.spec.tag, who))
    wait_until(lambda: not any(cgroups._states(pid) & {"T"} for pid in family.values()), "both go on")
    assert processes.stop(attempt.spec.tag, who, 0.2).survivors == ()


def test_what_a_person_had_stopped_stays_stopped() -> None:
    family = "sleep 60 & stopped=$!; sleep 60 & kill -STOP $stopped; echo up; echo $stopped; wait"
    with tagged("/bin/sh", "-c", family) as (process, tree):
        assert process.stdout is not None
        sleeper = int(process.stdout.readline())
        wait_until(lambda: cgroups._states(sleeper) == {"T"}, "it is stopped")
        done = freeze(tree)
        assert (done.held, [who.pid for who in done.before]) == (3, [sleeper])
        thaw(tree, done.before)
        wait_until(lambda: cgroups._states(process.pid) != {"T"}, "the shell goes on")
        assert cgroups._states(sleeper) == {"T"}
        thaw(tree)
        wait_until(lambda: cgroups._states(sleeper) != {"T"}, "unless it is told to go on too")


def test_a_parent_that_watches_for_stopped_children_sees_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "_POLITE_S", 60.0)  # with others at work it may take more than 2 s to stand still
    monkeypatch.setattr(cgroups, "_WAIT_S", 90.0)
    with tagged(*python(WATCHER)) as (process, tree):
        assert process.stdout is not None
        child = int(process.stdout.readline())
        for _ in range(10):
            assert freeze(tree).held == 3
            thaw(tree)
            wait_until(lambda: not cgroups._states(process.pid) & {"T"}, "it goes on")
        os.kill(child, signal.SIGKILL)
        assert process.stdout.readline() == "ended\n"


def test_a_bystander_moves_on() -> None:
    with tagged(*python(COUNTER)) as (_, tree), tagged(*python(COUNTER)) as (other, _):
        assert freeze(tree).held == 1
        said, _ = other.communicate("x\n", timeout=30)
        assert said == "1\n"


def test_nobody_is_no_error() -> None:
    tree = Tree(f"{uuid.uuid4().hex[:16]}:run/none:1", Identity(2**22 + 1, 1, processes.boot_id()))
    assert freeze(tree) == cgroups.Frozen(0)
    assert thaw(tree) == 0


FREEZER = """
import sys
from supervisor.kernel.names import Identity
from supervisor.host.cgroups import Tree, freeze

done = freeze(Tree("0123456789abcdef:run/none:1", Identity(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])))
print(done.held, [who.pid for who in done.moving])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="root stands for whom an agent became by sudo")
def test_who_cannot_be_stopped_is_named() -> None:
    with tagged("/bin/sh", "-c", "sleep 60 & echo up; echo $!; wait") as (process, _):
        assert process.stdout is not None
        child = int(process.stdout.readline())
        who = processes.identity(process.pid)
        assert who is not None
        argv = ["tools/as-user.sh", ".venv/bin/python", "-c", FREEZER, str(who.pid), str(who.ticks), who.boot_id]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
        if "skipped, not run" in done.stderr:
            pytest.skip(done.stderr.strip())
        assert (done.returncode, done.stdout) == (0, f"0 [{child}]\n"), done.stderr
        assert not cgroups._states(child) & cgroups._STOPPED


def test_with_a_group_the_tree_is_frozen_at_once_and_whoever_left_it_by_a_signal(support: Support) -> None:
    if not support.freeze:
        pytest.skip("groups cannot be frozen here")
    with group_of(support) as group, started(group, *python(COUNTER)) as inside, tagged(*python(COUNTER)) as (outside, tree):
        assert inside.stdin is not None and inside.stdout is not None and inside.stdout.readline() == "up\n"
        whole = Tree(tree.tag, None, group)
        done = freeze(whole)
        assert (done.held, done.moving, group.frozen(), cgroups._states(outside.pid)) == (2, (), True, {"T"})
        assert not cgroups._states(inside.pid) & {"T"}, "it was not stopped by a signal, which its parent could see"
        print("x", file=inside.stdin, flush=True)
        thaw(whole)
        assert not group.frozen()
        assert inside.stdout.readline() == "1\n"
        wait_until(lambda: cgroups._states(outside.pid) != {"T"}, "who left goes on too")


def test_a_group_that_cannot_be_frozen_or_is_gone_leaves_it_to_signals(tmp_path: Path) -> None:
    for group in (Group((tmp_path,)), Group((tmp_path / "gone",)), Group(())):
        with tagged(*python(COUNTER)) as (process, tree):
            whole = Tree(tree.tag, None, group)
            assert freeze(whole).held == 1
            assert cgroups._states(process.pid) == {"T"}
            assert thaw(whole) == 1
            assert process.communicate("x\n", timeout=30)[0] == "1\n"
