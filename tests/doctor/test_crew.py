"""What attempts and supervisors left behind: found, told apart from what is alive, and mended only where that is safe."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.tmux import Tmux
from supervisor.doctor import crew
from supervisor.doctor.examine import CheckContext, Finding, State
from supervisor.host import files
from supervisor.kernel import names
from supervisor.server import lock
from supervisor.store import sqlite
from tests.server.snapshot_kit import create, unmounted, with_dependencies
from tests.support import House, git, mounted_below, wait_until
from worktrees.private_repository import beside

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


def at(house: House, *, tool_s: float = 10.0) -> CheckContext:
    """The house as doctor sees it."""
    return CheckContext(home=house.home, config=house.config, cwd=house.repo, environ=house.env, tool_s=tool_s)


def tag_home(house: House) -> str:
    return names.tag(str(house.home.root), "", 0).partition(":")[0]


def mended(finding: Finding) -> str:
    assert finding.mend is not None
    return finding.mend()


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that a test started; ended afterwards."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for one in started:
        one.kill()
        one.wait()


def test_before_anything_ran(house: House) -> None:
    for name, check in crew.CHECKS.items():
        assert check(at(house)).state is State.OK, name
    assert not house.home.root.exists()


def test_a_crew_at_work_is_well(house: House) -> None:
    daemon = house.start_daemon()
    house.ok("add", "--id", "long", "sleep 600")
    wait_until(lambda: house.task("long").attempt_state == "running", "its runner to begin")
    found = {name: check(at(house)) for name, check in crew.CHECKS.items()}
    assert {name for name, one in found.items() if one.state is not State.OK} == set(), found
    assert f"pid {daemon.pid}" in found["supervisor"].seen
    assert found["tmux server"].seen.endswith("1 agent")
    assert found["sessions"].seen == "1, each with its attempt"
    assert found["worktrees"].seen == "1, each with its attempt"
    assert found["leftovers"].seen != "none"
    house.ok("kill", "long")


def test_unfinished_tasks_without_a_supervisor(house: House) -> None:
    house.start_daemon()
    house.ok("add", "--id", "long", "sleep 600")
    wait_until(lambda: house.task("long").attempt_state == "running", "its runner to begin")
    house.ok("down")
    found = crew.supervisor(at(house))
    assert found.state is State.WARN and found.fix == "nightcrew up -d" and found.seen == "none runs; unfinished tasks: 1"


def test_a_stopped_supervisor_does_not_answer(house: House) -> None:
    daemon = house.start_daemon()
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: crew._state(at(house), daemon.pid) == "T", "it to stop")
        found = crew.supervisor(at(house, tool_s=0.2))
        assert (found.state, found.fix) == (State.FAIL, f"kill -CONT {daemon.pid}")
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


def test_a_holder_of_the_lock_that_serves_nobody(house: House) -> None:
    files.private_dir(house.home.root)
    files.private_dir(house.home.run_dir)
    held = lock.DaemonLock(house.home.lock)
    try:
        found = crew.supervisor(at(house))
        assert found.state is State.FAIL and found.seen == f"pid {os.getpid()} does not answer"
    finally:
        held.close()


def test_a_hung_tmux_server(house: House) -> None:
    files.private_dir(house.home.run_dir)
    with Tmux(house.home.tmux_socket) as tmux:
        pid = tmux.ensure_server()
    assert crew.server(at(house)).state is State.OK
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: crew._state(at(house), pid) == "T", "it to stop")
        found = crew.server(at(house, tool_s=0.2))
        assert (found.state, found.fix) == (State.FAIL, f"kill -CONT {pid}")
        assert crew.sessions(at(house, tool_s=0.2)).state is State.UNKNOWN
    finally:
        os.kill(pid, signal.SIGCONT)


def test_sessions_without_an_attempt_are_closed_only_without_a_supervisor(house: House) -> None:
    files.private_dir(house.home.root)
    files.private_dir(house.home.run_dir)
    with Tmux(house.home.tmux_socket) as tmux:
        tags = {"home": tag_home(house), "attempt": "1121-aaaa/lost:1"}
        tmux.spawn("1121-aaaa_lost_1", SLEEPER, house.repo, tags)
        mine = tmux.spawn("mine", SLEEPER, house.repo, {})
        other = tmux.spawn("other", SLEEPER, house.repo, {**tags, "home": "0" * 16})
        with pytest.raises(Exception, match="no ledger"):
            crew.sessions(at(house))
        sqlite.connect(house.home.ledger).close()
        found = crew.sessions(at(house))
        assert found.state is State.WARN and "1121-aaaa/lost:1" in found.seen
        held = lock.DaemonLock(house.home.lock)
        try:
            assert crew.sessions(at(house)).mend is None, "the supervisor may be about to use it"
            with pytest.raises(Exception, match="a supervisor has started meanwhile"):
                mended(found)
        finally:
            held.close()
        assert mended(found) == "closed 1121-aaaa/lost:1"
        assert {pane.session_id for pane in tmux.panes() if not pane.control} == {mine.session_id, other.session_id}


def test_a_worktree_removed_by_hand_is_forgotten_and_a_persons_own_is_not(house: House, tmp_path: Path) -> None:
    house.start_daemon()
    house.ok("add", "-f", "--id", "work", "echo new > file")
    house.ok("add", "-f", "--id", "stays", "echo new > file")
    assert crew.worktrees(at(house)).state is State.OK
    mine = tmp_path / "mine"
    git(house.repo, "worktree", "add", "-q", str(mine))
    shutil.rmtree(mine)  # as when its disk is not plugged in
    task = house.task("work")
    assert task.worktree is not None and task.branch is not None
    shutil.rmtree(task.worktree)
    found = crew.worktrees(at(house))
    assert found.state is State.WARN and f"{task.id}:1" in found.seen
    tip = git(house.repo, "rev-parse", task.branch)
    assert mended(found).startswith(f"git forgot {task.id}:1")
    listed = git(house.repo, "worktree", "list", "--porcelain")
    assert task.worktree not in listed and str(mine) in listed and str(house.task("stays").worktree) in listed
    assert git(house.repo, "rev-parse", task.branch) == tip
    assert crew.worktrees(at(house)).state is State.OK


@pytest.mark.timeout(120)
def test_a_pipe_in_place_of_gits_record_is_not_waited_for(house: House) -> None:
    house.start_daemon()
    house.ok("add", "-f", "--id", "work", "echo new > file")
    task = house.task("work")
    assert task.worktree is not None
    record = house.repo / ".git" / "worktrees" / Path(task.worktree).name / "gitdir"
    record.unlink()
    os.mkfifo(record)
    shutil.rmtree(task.worktree)
    assert crew.worktrees(at(house)).state is State.OK, "no record, nothing to forget"


def test_a_worktree_that_clean_removed_was_not_removed_by_hand(house: House) -> None:
    """git gives the name of its record to the next worktree of the same name, which is another task's."""
    house.start_daemon()
    house.ok("add", "-f", "--id", "work", "echo new > file")
    house.ok("take", "work")
    house.ok("clean", "--yes")
    house.ok("add", "-f", "--id", "work", "echo newer > file")
    rows = [row for row in crew._rows(at(house)) if row.task.endswith("/work")]
    assert len(rows) == 2 and len({row.admin_dir for row in rows}) == 1, rows
    assert crew.worktrees(at(house)).state is State.OK


def test_a_record_that_git_gave_to_another_worktree_is_left_alone(house: House) -> None:
    house.start_daemon()
    house.ok("add", "-f", "--id", "work", "echo new > file")
    first = house.task("work").worktree
    assert first is not None
    shutil.rmtree(first)
    mended(crew.worktrees(at(house)))
    house.ok("add", "-f", "--id", "work", "echo newer > file")
    rows = [row for row in crew._rows(at(house)) if row.task.endswith("/work")]
    assert not any(row.removed for row in rows) and len({row.admin_dir for row in rows}) == 1, rows
    assert crew.worktrees(at(house)).state is State.OK
    second = house.task("work").worktree
    assert second is not None
    shutil.rmtree(second)
    found = crew.worktrees(at(house))
    assert found.seen == f"removed by hand: {house.task('work').id}:1"
    assert mended(found).startswith("git forgot")


def test_a_directory_that_no_attempt_knows_is_named_and_kept(house: House) -> None:
    strange = house.home.worktrees / "0123456789ab" / "1121-aaaa" / "lint.1"
    strange.mkdir(parents=True)
    (strange / "work").write_text("precious\n")
    sqlite.connect(house.home.ledger).close()
    found = crew.worktrees(at(house))
    assert found.state is State.WARN and "1121-aaaa/lint.1" in found.seen and found.mend is None
    assert (strange / "work").exists()


def test_a_worktree_on_a_snapshot_is_one_worktree_and_its_layers_keep_it(house: House) -> None:
    """What lies beside it is no worktree, and while its files are in a layer nobody removed them."""
    with_dependencies(house)
    house.start_daemon()
    create(house)
    house.ok("add", "-f", "--id", "work", "--snapshot", "deps", "echo new > file")
    assert crew.worktrees(at(house)).seen == "1, each with its attempt"
    tree = Path(house.task("work").worktree or "")
    layered = beside(tree).exists()
    unmounted(house)
    shutil.rmtree(tree)
    found = crew.worktrees(at(house))
    assert found.state is (State.OK if layered else State.WARN), found.seen
    if layered:
        assert "+new" in house.ok("diff", "work")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts what everybody sees")
def test_a_mount_that_no_attempt_knows_is_released_and_its_files_stay(house: House) -> None:
    strange = house.home.worktrees / "0123456789ab" / "1121-aaaa" / "lint.1"
    strange.mkdir(parents=True)
    sqlite.connect(house.home.ledger).close()
    layers = [house.home.root / name for name in ("lower", "upper", "work")]
    for layer in layers:
        layer.mkdir()
    options = "lowerdir={},upperdir={},workdir={}".format(*layers)
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(strange)], check=True)
    (strange / "work").write_text("precious\n")
    found = crew.worktrees(at(house))
    assert found.state is State.WARN and found.seen == "mounted: 0123456789ab/1121-aaaa/lint.1"
    assert mended(found) == "unmounted 1; their files stay where they lie"
    assert mounted_below(house.home.root) == [] and (layers[1] / "work").read_text() == "precious\n"


def test_processes_of_an_attempt_that_is_over(house: House, sleepers: list[subprocess.Popen[bytes]]) -> None:
    files.private_dir(house.home.root)
    sqlite.connect(house.home.ledger).close()
    for name in (tag_home(house), "0" * 16):  # of this state directory, and of another
        env = {**os.environ, names.TAG_VARIABLE: f"{name}:1121-aaaa/lint:2"}
        sleepers.append(subprocess.Popen(SLEEPER, env=env))
    ours, other = (one.pid for one in sleepers)
    wait_until(lambda: ours in crew._tagged(at(house)), "it to be seen")
    found = crew.leftovers(at(house))
    assert found.state is State.WARN and found.seen == "1121-aaaa/lint:2: 1 still run"
    assert found.fix.endswith(f"kill {ours}") and str(other) not in found.fix and found.mend is None
