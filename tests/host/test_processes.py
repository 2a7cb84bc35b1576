"""The daemon's door to processes, with real ones."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervisor.host import processes, procfs
from supervisor.kernel.names import TAG_VARIABLE, Identity
from tests.agents.runner.kit import KINDS, Lab, running, until


@contextmanager
def sleeping(**popen: object) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"], **popen)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def known(pid: int) -> Identity:
    who = processes.identity(pid)
    assert who is not None
    return who


def test_an_identity_is_alive_until_its_process_ends_even_as_a_zombie() -> None:
    with sleeping() as process:
        who = known(process.pid)
        assert processes.alive(who)
        process.kill()
        until(lambda: not processes.alive(who), "it is dead before anybody waits for it")
        assert Path(f"/proc/{process.pid}").exists(), "it still is a zombie"
        assert processes.identity(process.pid) is None


def test_a_reused_pid_or_another_boot_is_somebody_else() -> None:
    with sleeping() as process:
        who = known(process.pid)
        for other in (dataclasses.replace(who, ticks=who.ticks - 1), dataclasses.replace(who, boot_id="earlier")):
            assert not processes.alive(other)
            assert not processes.send(other, signal.SIGKILL)
            assert processes.tree(other) == []
        assert process.poll() is None


def test_nobody_has_a_pid_that_is_free() -> None:
    with sleeping() as process:
        who = known(process.pid)
    assert processes.identity(who.pid) is None
    assert not processes.send(who, signal.SIGTERM)


def test_a_signal_arrives() -> None:
    with sleeping() as process:
        assert processes.send(known(process.pid), signal.SIGUSR1)
        assert process.wait(30) == -signal.SIGUSR1


def test_a_name_with_brackets_and_spaces_is_read_right(tmp_path: Path) -> None:
    odd = tmp_path / ") R 1 (x"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "60"]) as process:
        try:
            until(lambda: ") R 1 (x" in Path(f"/proc/{process.pid}/stat").read_text(), "exec")
            seen = procfs.look(process.pid)
            assert seen is not None
            assert (seen.ppid, seen.dead) == (os.getpid(), False)
        finally:
            process.kill()


def test_the_tag_is_matched_whole() -> None:
    tag = "0123456789abcdef:run/task:1"
    with sleeping(env={TAG_VARIABLE: tag}) as ours, sleeping(env={TAG_VARIABLE: tag + "0"}), sleeping(env={"X" + TAG_VARIABLE: tag}):
        until(lambda: procfs.slurp(f"/proc/{ours.pid}/cmdline") == b"sleep\x0060\x00", "exec")
        assert [who.pid for who in processes.tagged(tag)] == [ours.pid]


def test_the_tree_holds_every_kind_of_child_below_a_living_runner(lab: Lab) -> None:
    attempt, pids = lab.family(*KINDS)
    runner = attempt.start()
    family = pids()
    below = {who.pid for who in processes.tree(known(runner.pid))}
    assert set(family.values()) <= below
    assert len(below) == len(KINDS) + 1
    assert {who.pid for who in processes.tagged(attempt.spec.tag)} == below


def test_stop_lets_the_runner_do_it_and_write_its_record(lab: Lab) -> None:
    attempt, pids = lab.family(*KINDS, grace_s=0.3)
    runner = attempt.start()
    family = pids()
    report = processes.stop(attempt.spec.tag, known(runner.pid), attempt.spec.grace_s)
    assert report == processes.StopReport(killed=0, survivors=())
    assert (attempt.record().why, attempt.record().survivors) == ("stopped", ())
    assert [kind for kind, pid in family.items() if running(pid)] == []


def test_stop_after_the_runner_was_killed_finds_all_by_tag_and_mark(lab: Lab) -> None:
    """P04: plain tmux leaves five of these six, a tree walk two, a search for the tag one (it shed its environment)."""
    attempt, pids = lab.family(*KINDS)
    runner = attempt.start()
    family = pids()
    who = known(runner.pid)
    runner.kill()
    until(lambda: not processes.alive(who), "the runner is dead")
    report = processes.stop(attempt.spec.tag, who, 0.3)
    assert (report.survivors, report.killed >= 1) == ((), True)
    assert [kind for kind, pid in family.items() if running(pid)] == []
    assert attempt.exit() is None


def test_stop_does_it_all_when_the_runner_does_not_answer(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner that a debugger holds takes no TERM. Here its place is taken by a process that ignores it."""
    monkeypatch.setattr(processes, "_RUNNER_EXTRA_S", 0.2)
    attempt, pids = lab.family("setsid", "clean")
    deaf = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork() or os.execv(sys.argv[1], sys.argv[1:])
while True:
    signal.pause()
"""
    runner = subprocess.Popen([sys.executable, "-I", "-c", deaf, *attempt.spec.argv], env=dict(attempt.spec.env))
    attempt.runners.append(runner)
    family = pids()
    report = processes.stop(attempt.spec.tag, known(runner.pid), 0.2)
    assert (report.killed >= 1, report.survivors) == (True, ())
    assert runner.wait(30) == -signal.SIGKILL
    assert not running(family["setsid"])
    os.kill(family["clean"], signal.SIGKILL)  # without a runner of ours it has neither tag nor mark: not ours to signal


def test_stop_signals_nobody_without_the_tag(lab: Lab) -> None:
    """Not even another attempt of the same task, whose tag begins the same."""
    one = lab.attempt("sleep", "60")
    tag = one.spec.tag + "0"
    other = lab.attempt("sleep", "60", tag=tag, env=((TAG_VARIABLE, tag), ("PATH", os.environ["PATH"])), mark=one.spec.mark + 1)
    runners = [one.start(), other.start()]
    for attempt in (one, other):
        until(attempt.started, "started.json")
    with sleeping() as bystander:
        assert processes.stop(one.spec.tag, known(runners[0].pid), 5.0).survivors == ()
        assert (runners[1].poll(), bystander.poll(), other.exit()) == (None, None, None)


def test_stop_twice_is_stop_once(lab: Lab) -> None:
    attempt = lab.attempt("sleep", "60")
    runner = attempt.start()
    until(attempt.started, "started.json")
    who = known(runner.pid)
    processes.stop(attempt.spec.tag, who, 5.0)
    record = attempt.record()
    assert processes.stop(attempt.spec.tag, who, 5.0) == processes.StopReport(0, ())
    assert attempt.record() == record


def test_threads_that_ask_at_the_same_time_share_a_look_that_began_after_they_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 agents that are stopped together: each look reads three files of every process of the machine."""
    looks, entered, go_on = 0, threading.Event(), threading.Event()
    table = procfs.table

    def slow() -> dict[int, procfs.Seen]:
        nonlocal looks
        looks += 1
        found = table()
        if looks == 1:
            entered.set()
            assert go_on.wait(60)
        return found

    monkeypatch.setattr(procfs, "table", slow)
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(processes.members, "nobody", None)
        assert entered.wait(60)
        with sleeping(env={**os.environ, TAG_VARIABLE: "late:1"}) as late:
            others = [pool.submit(processes.members, "late:1", None) for _ in range(8)]
            waiting = processes._looks._turn._waiters  # type: ignore[attr-defined]  # there is no other way to see who waits
            until(lambda: len(waiting) == len(others), "all to wait for their turn")
            go_on.set()
            assert [[seen.pid for seen in other.result()] for other in others] == [[late.pid]] * len(others)
        assert first.result() == []
    assert looks == 2


def test_an_empty_tag_is_refused() -> None:
    with pytest.raises(ValueError, match="empty tag"):
        processes.stop("", None, 1.0)


def test_occupied_finds_working_directories_and_open_files(tmp_path: Path) -> None:
    tree, beside = tmp_path / "tree", tmp_path / "tree-2"
    (tree / "deep").mkdir(parents=True)
    beside.mkdir()
    with (tree / "log").open("wb") as log, sleeping(cwd=tree / "deep") as dweller, sleeping(stdout=log) as writer, sleeping(cwd=beside):
        (tree / "log").unlink()
        until(lambda: procfs.slurp(f"/proc/{writer.pid}/cmdline") == b"sleep\x0060\x00", "exec")
        link = tmp_path / "link"
        link.symlink_to(tree)
        for path in (tree, link):
            assert sorted(who.pid for who in processes.occupied()(path)) == sorted([dweller.pid, writer.pid])
        assert processes.occupied()(tmp_path / "nowhere") == []
        seen = processes.occupied()
    assert not procfs.slurp(f"/proc/{dweller.pid}/cmdline")
    assert seen(tree) == [], "who has ended meanwhile is not there"


def test_a_child_that_has_not_begun_its_own_program_is_not_inside(tmp_path: Path) -> None:
    """As while another thread starts a git: for a moment it has every handle of ours."""
    ours, theirs = os.pipe()
    handle = os.open(tmp_path, os.O_RDONLY)
    child = os.fork()
    if not child:
        os.read(ours, 1)
        os._exit(0)
    try:
        assert processes.occupied()(tmp_path) == []
    finally:
        for one in (theirs, ours, handle):
            os.close(one)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_one_look_answers_for_any_number_of_directories(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("one", "one-more", "one/inner", "none")]
    for place in places:
        place.mkdir()
    with sleeping(cwd=places[0]) as first, sleeping(cwd=places[1]) as second, sleeping(cwd=places[2]) as third:
        seen = processes.occupied()
        found = [[who.pid for who in seen(place)] for place in (*places, tmp_path)]
    everybody = [first.pid, second.pid, third.pid]
    assert [sorted(pids) for pids in found] == [sorted([first.pid, third.pid]), [second.pid], [third.pid], [], sorted(everybody)]


def test_without_children_files_the_whole_table_is_read(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel without CONFIG_PROC_CHILDREN."""
    attempt, pids = lab.family("plain", "setsid")
    runner = attempt.start()
    family = pids()
    fast = {seen.pid for seen in procfs.descendants(runner.pid)}
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: exists(path) and not str(path).endswith("/children"))
    assert {seen.pid for seen in procfs.descendants(runner.pid)} == fast
    assert set(family.values()) <= fast


def test_a_process_of_another_user_is_seen_but_not_signalled() -> None:
    if os.geteuid() == 0:
        pytest.skip("root may signal everybody")
    init = known(1)
    assert not processes.send(init, signal.SIGTERM)


def test_the_socket_of_a_dead_process_does_not_confuse_a_look() -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert procfs.slurp(folder) == b""
        assert procfs.slurp(f"{folder}/none") == b""
