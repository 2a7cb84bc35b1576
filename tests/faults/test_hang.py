"""A tmux that hangs, and what piles up in a supervisor over many attempts."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from pathlib import Path

import pytest

from supervisor.host import processes, procfs
from tests.faults.test_planted import hanging_git
from tests.gateway.kit import upstream
from tests.server.snapshot_kit import commit
from tests.support import House, git, plan_of, shell_task, wait_until


def test_a_hung_tmux_stops_neither_the_answers_nor_the_crew_afterwards(house: House, tmp_path: Path) -> None:
    """Every tmux command sleeps while the file `hang` is there; the supervisor answers meanwhile and goes on when it is gone."""
    real, hang = shutil.which("tmux"), tmp_path / "hang"
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin" / "tmux"
    wrapper.write_text(f'#!/bin/sh\nwhile [ -e {hang} ]; do sleep 0.1; done\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    path = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    daemon = house.start_daemon(env=path)
    hang.touch()
    os.kill(client_of(daemon.pid), 9)  # so that the next look must start a client, which hangs
    house.ok("run", "-d", house.plan(plan_of([shell_task("later", "true")])))
    assert house.ready(), "it answers while tmux hangs"
    wait_until(lambda: "tmux" in house.daemon_output(), "the supervisor to say that tmux does not answer")
    hang.unlink()
    house.wait_final()
    assert house.state("later") == "done"


@pytest.mark.in_turns
@pytest.mark.parametrize("setpriv", [True, False], ids=["with setpriv", "without setpriv"])
@pytest.mark.parametrize("how", ["waits", "stopped"])
def test_a_killed_supervisors_hung_git_keeps_no_other_one_out(house: House, tmp_path: Path, how: str, setpriv: bool) -> None:
    env, hung = hanging_git(tmp_path), tmp_path / "hung"
    if not setpriv:
        without_setpriv(tmp_path / "bin")
    daemon = house.start_daemon(env=env)
    house.ok("add", "--id", "agent", "echo leftover > left")
    wait_until(lambda: hung.read_text().strip(), "a git of ours to wait")
    pid = int(hung.read_text())
    if how == "stopped":
        os.kill(pid, signal.SIGSTOP)
    daemon.kill()
    daemon.wait()
    house.start_daemon()
    assert processes.identity(pid) is None, "two supervisors' gits never meet"
    house.wait_final()
    assert house.state("agent") == "done"


def without_setpriv(folder: Path) -> None:
    """A setpriv that knows no option of the real one, as busybox's."""
    fake = folder / "setpriv"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)


PRELOADED = '[snapshot.warm]\nkind = "memory"\npreload = ["colorsys"]\n'


def test_only_a_git_inherits_the_supervisors_lock_and_nobody_another_handle(house: House, tmp_path: Path) -> None:
    """Agents, their runners, the tmux server, the gateway and warm processes outlive the supervisor without a handle of it."""
    env, hung = hanging_git(tmp_path), tmp_path / "hung"
    without_setpriv(tmp_path / "bin")
    house.config.write_text(house.config.read_text() + upstream(house.home, "http://127.0.0.1:9"))
    commit(house, "nightcrew.toml", PRELOADED)
    daemon = house.start_daemon(env=env)
    wait_until(lambda: house.gateway() is not None, "the gateway")
    house.ok("snapshot", "create", "warm")
    house.ok("add", "--id", "living", "--snapshot", "warm", "sleep 600")
    wait_until(lambda: house.state("living") == "running", "an agent")
    gateway, tmux, client = house.gateway(), house.tmux_pid(), client_of(daemon.pid)
    assert gateway is not None and tmux is not None
    lasting = {*house.tagged(), *(seen.pid for seen in procfs.descendants(tmux)), tmux, gateway.identity.pid}
    lasting |= {who.pid for who in processes.all_running("-m", "agents.zygote")}
    fine = {"/dev/null"} | handles(client)  # its pipes: tmux hands them to the server, which reads and writes there for it
    inherited = {pid: left for pid in lasting if (left := handles(pid) & handles(daemon.pid) - fine)}
    assert not inherited, {processes.command(pid): left for pid, left in inherited.items()}
    house.ok("add", "--id", "agent", "echo leftover > left")
    wait_until(hung.exists, "a git of ours to wait")
    daemon.kill()
    daemon.wait()
    assert [holder.who.pid for holder in processes.holders(house.home.root)] == [int(hung.read_text())]
    wait_until(lambda: processes.identity(client) is None, "the control client to end with its pipe")


def handles(pid: int) -> set[str]:
    """What a process has open: paths, and the numbers of pipes and sockets."""
    found = set()
    with contextlib.suppress(OSError):  # it ended
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it closed that one
                found.add(str(link.readlink()))
    return {text for text in found if not text.startswith("anon_inode:")}


def test_tasks_of_one_repository_go_on_beside_one_whose_launch_hangs(house: House, tmp_path: Path) -> None:
    """Its git hangs twice while it holds the repository's lock."""
    house.start_daemon(env=hanging_git(tmp_path, '" worktree add "*"/agent.1 "'))
    git(house.repo, "config", "core.sharedRepository", "group")  # so that git itself registers worktrees
    tasks = [shell_task("agent", "true"), *(shell_task(f"t{n}", "true") for n in range(20))]
    house.ok("run", "-d", house.plan(plan_of(tasks)))
    house.wait_final()
    assert {view.name: view.state for view in house.tasks()} == {"agent": "failed"} | {f"t{n}": "done" for n in range(20)}
    assert "was stopped" in house.task("agent").reason and house.task("agent").epoch == 1


def client_of(pid: int) -> int:
    """The control client that a supervisor keeps."""
    found: list[int] = []

    def look() -> bool:
        found[:] = [child for child in children(pid) if b"\0-C\0" in Path(f"/proc/{child}/cmdline").read_bytes()]
        return bool(found)

    wait_until(look, "the control client")
    return found[0]


def children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


LATER = 5
"""Descriptors that may come after the first tasks: of the watch of the memory (an inotify and a pipe), of a look at the ledger."""


@pytest.mark.parametrize("count", [16, pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])])
def test_nothing_piles_up_over_many_attempts(house: House, count: int) -> None:
    """No zombie, no descriptor, no thread and no session more than after the first few."""
    house.config.write_text('slots = 8\ngrace = "1s"\nsandbox = 0\n[limits]\ndisk_free_min = 0\n')
    daemon = house.start_daemon()
    house.ok("run", "-d", house.plan(plan_of([shell_task(f"warm{n}", "true") for n in range(20)]), "warm.toml"))
    house.wait_final()
    before = descriptors(daemon.pid)
    house.ok("run", "-d", house.plan(plan_of([shell_task(f"t{n}", "true") for n in range(count)])))
    house.wait_final(6000)
    wait_until(lambda: not house.sessions(), "the last session to be closed")
    assert {view.state for view in house.tasks()} == {"done"}
    wait_until(lambda: not zombies(daemon.pid), "every child to be reaped")
    wait_until(lambda: descriptors(daemon.pid) <= before + LATER, "descriptors to be closed")
    wait_until(lambda: len(children(daemon.pid)) <= 1, "its children to end but for the control client")


def zombies(pid: int) -> list[int]:
    return [child for child in children(pid) if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z"]


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
