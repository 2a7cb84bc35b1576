"""Many at once, and several people's commands at the same moment."""

from __future__ import annotations

import functools
import os
import random
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agents.tmux import Tmux
from agents.tmux_control import PaneView
from supervisor.host import files
from supervisor.server import lock
from supervisor.server.attempts.observe import Observer
from supervisor.store import journal, sqlite
from tests.faults.checker import Evidence
from tests.support import House, git, plan_of, shell_task, wait_until

STAY = "while [ ! -e go ]; do sleep 0.2; done"


def at_once(house: House, commands: list[list[str]]) -> list[tuple[int, str]]:
    """Run all of them at the same time; exit codes and what they said on stderr."""
    with ThreadPoolExecutor(len(commands)) as each:
        return [(done.returncode, done.stderr) for done in each.map(lambda words: house.run(*words), commands)]


def slots(house: House, number: int) -> None:
    house.config.write_text(f'slots = {number}\ngrace = "1s"\nsandbox = 0\n[limits]\ndisk_free_min = 0\n')


def all_running(house: House) -> bool:
    return all(view.attempt_state == "running" for view in house.tasks())


def epochs(house: House) -> set[int]:
    return {view.epoch for view in house.tasks()}


def let_go(house: House) -> None:
    for view in house.tasks():
        if view.worktree is not None:
            Path(view.worktree, "go").touch()


IN_FULL = pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])


@pytest.mark.parametrize("count", [8, IN_FULL])
def test_live_agents_are_adopted_without_a_slot_and_without_a_restart(house: House, count: int) -> None:
    slots(house, count)
    evidence = Evidence.begin(house)
    daemon = house.start_daemon()
    house.ok("run", "-d", house.plan(plan_of([evidence.task(f"t{number}", STAY) for number in range(count)])))
    wait_until(lambda: all_running(house), "all of them to run", 300)
    daemon.kill()
    daemon.wait()
    assert len(house.sessions()) == count, "they outlive it"
    slots(house, 1)
    house.start_daemon()
    assert {view.attempt_state for view in house.tasks()} == {"running"}
    house.ok("add", "--id", "late", "true")
    let_go(house)
    house.wait_final(600)
    assert epochs(house) == {1}, "nobody was started again"
    assert {view.state for view in house.tasks()} == {"done"}
    evidence_only(evidence, house, count)


def evidence_only(evidence: Evidence, house: House, count: int) -> None:
    """The checker's invariants; the task `late` writes no evidence and has no file left behind."""
    starts = evidence.started()
    assert len(starts) == len(set(starts)) == count, "an agent was started twice"
    wait_until(lambda: not house.tagged() and not house.sessions(), "nothing to be left")


@pytest.mark.parametrize("count", [10, IN_FULL])
def test_many_agents_at_once_on_one_cold_server(house: House, count: int) -> None:
    slots(house, count)
    house.ok("run", "-d", house.plan(plan_of([shell_task(f"t{number}", STAY) for number in range(count)])))
    wait_until(lambda: all_running(house), "all of them to run", 300)
    assert len(house.sessions()) == count
    assert len(list(house.home.root.glob("runs/*/*/*/started.json"))) == count
    servers = [pid for pid in pids() if str(house.home.tmux_socket).encode() in command(pid) and is_tmux_server(pid)]
    assert servers == [house.tmux_pid()]
    assert len(git(house.repo, "worktree", "list").splitlines()) == count + 1
    let_go(house)
    house.wait_final(600)
    assert {(view.state, view.epoch) for view in house.tasks()} == {("done", 1)}


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def is_tmux_server(pid: int) -> bool:
    """A server was orphaned to init or a subreaper and holds many panes; a client has a terminal or a pipe as its standard input."""
    return Path(f"/proc/{pid}/comm").read_text().startswith("tmux: server")


def test_a_hundred_submitted_and_cancelled_leave_nothing(house: House, seed: int) -> None:
    slots(house, 8)
    house.start_daemon()
    chance = random.Random(seed)
    house.ok("run", "-d", house.plan(plan_of([shell_task(f"t{number}", "sleep 600") for number in range(100)])))
    names = [view.id for view in house.tasks()]
    chance.shuffle(names)
    answers = at_once(house, [["kill", *names[start : start + 25]] for start in range(0, 100, 25)])
    assert [code for code, _ in answers] == [0] * 4, answers
    assert {view.state for view in house.tasks()} == {"cancelled"}
    wait_until(lambda: not house.sessions() and not house.tagged(), "no session and no process to be left")
    locked = [line for line in git(house.repo, "worktree", "list", "--porcelain").splitlines() if line.startswith("locked")]
    assert locked == [], "a worktree's lock was left"
    house.ok("clean", "--yes")
    assert len(git(house.repo, "worktree", "list").splitlines()) == 1
    assert git(house.repo, "for-each-ref", "refs/heads/nightcrew") == ""
    assert unreleased(house) == []


def unreleased(house: House) -> list[str]:
    db = sqlite.connect_readonly(house.home.ledger)
    try:
        return [str(row["task"]) for row in db.execute("SELECT task FROM attempt WHERE state <> 'released'")]
    finally:
        db.close()


def test_run_kill_and_clean_at_the_same_moment(house: House) -> None:
    slots(house, 8)
    evidence = Evidence.begin(house)
    house.start_daemon()
    plan = house.plan(plan_of([evidence.task(f"t{number}", "sleep 0.1") for number in range(3)]))
    for _ in range(2):
        answers = at_once(
            house, [["run", "-d", plan], ["kill", "--all"], ["clean", "--yes"], ["run", "-d", plan], ["kill", "--all"], ["clean", "--yes"]]
        )
        strange = [text for code, text in answers if "Traceback" in text or code not in (0, 4)]
        assert strange == [], "each succeeds, or says that nothing was ever run"
    house.wait_final()
    assert {view.state for view in house.tasks()} <= {"done", "cancelled"} and len(house.tasks()) == 12
    starts = evidence.started()
    assert len(starts) == len(set(starts))
    wait_until(lambda: unreleased(house) == [] and not house.sessions() and not house.tagged(), "nothing to be left")


def test_kill_and_a_natural_end_and_a_crash_at_once_are_one_end(house: House, seed: int) -> None:
    """The agent ends, a person kills it and the supervisor is killed, all within the same instant, in a random order."""
    chance = random.Random(seed)
    slots(house, 8)
    house.start_daemon()
    for number in range(4):
        end_in_three_ways(house, f"r{number}", chance)
    wait_until(lambda: unreleased(house) == [] and not house.sessions() and not house.tagged(), "nothing to be left")


def end_in_three_ways(house: House, name: str, chance: random.Random) -> None:
    house.ok("add", "--id", name, STAY)
    wait_until(lambda: house.task(name).attempt_state == "running", "it to run")
    view = house.task(name)
    steps: list[Callable[[], None]] = [Path(view.worktree or "", "go").touch, functools.partial(crash, house)]
    chance.shuffle(steps)
    said = house.home.root.parent / "said"
    asking = house.begin("kill", view.id, said=said)
    wait_until(lambda: asking.poll() is not None or chance.random() < 0.05, "a moment")
    for step in steps:
        step()
    if lock.holder(house.home.lock) is None:
        house.start_daemon()
    assert asking.wait(60) in (0, 5), said.read_text()
    wait_until(lambda: house.task(name).final, "it to have one end")
    after = house.task(name)
    assert after.state in ("done", "cancelled") and after.epoch == 1, f"{after.state}: {after.reason}"
    assert ends(house, view.id) == 1


def crash(house: House) -> None:
    pid = lock.holder(house.home.lock)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: lock.holder(house.home.lock) != pid, "the kernel to give the lock back")


def ends(house: House, task: str) -> int:
    db = sqlite.connect_readonly(house.home.ledger)
    try:
        return sum(entry["event"].startswith("end ") for entry in journal.journal_of_task(db, task))
    finally:
        db.close()


def test_the_panes_of_an_adopted_crew_are_looked_for_once(house: House) -> None:
    """Not once for each agent: every look lists the panes of all of them."""
    files.private_dir(house.home.root)
    files.private_dir(house.home.run_dir)
    listed = 0
    with Tmux(house.home.tmux_socket) as tmux:
        tmux.ensure_server()
        before = Observer(house.home, tmux)
        for number in range(4):
            tmux.spawn(f"agent{number}", ["sleep", "600"], house.repo, before.tags(f"run/agent{number}", 1))

        class Counting(Observer):
            def panes(self) -> dict[tuple[str, int], PaneView]:
                nonlocal listed
                listed += 1
                return super().panes()

        after = Counting(house.home, tmux)
        places = [after.place((f"run/agent{number}", 1)) for number in range(4)]
        assert None not in places and len(set(places)) == 4
        assert places == [before.place((f"run/agent{number}", 1)) for number in range(4)]
        assert listed == 1
        assert after.place(("run/nobody", 1)) is None
        tmux.kill_server()
        assert after.place(("run/agent0", 1)) is None, "another server's ids are not believed"
