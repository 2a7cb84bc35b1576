"""`kill -9` of the daemon, of runners and of the tmux server, at every labelled step and at random moments; then the checker."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.kernel import records
from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from tests.failpoints import FAILPOINTS
from tests.faults.checker import Evidence
from tests.support import House, git, plan_of, signal_if_there, wait_until

Weapon = Callable[[House, random.Random], bool]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("label", [name for name in FAILPOINTS if name.startswith(("launch.", "finish."))])
def test_daemon_killed_at_each_step_of_launch_and_finish(house: House, label: str) -> None:
    evidence = Evidence.begin(house)
    daemon = house.start_daemon(die_at=label)
    plan = house.plan(plan_of([evidence.task("first"), evidence.task("second"), evidence.task("third", after=["first"])]))
    house.run("run", "-d", plan)
    assert daemon.wait(60) == -signal.SIGKILL, f"the daemon never passed {label}\n{house.daemon_output()}"
    house.start_daemon()
    house.wait_final()
    evidence.check(acknowledged=3)
    assert {view.state for view in house.tasks()} == {"done"}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("label", [name for name in FAILPOINTS if name.startswith(("securing.", "intake."))])
def test_daemon_killed_while_work_comes_out_of_a_sandbox(house: House, label: str) -> None:
    if Tier.FILES not in executors.known().tiers:
        pytest.skip("no sandbox works here")
    evidence = Evidence.begin(house)
    daemon = house.start_daemon(die_at=label)
    house.run("run", "-d", house.plan(plan_of([evidence.task(name, sandbox=1) for name in ("first", "second")])))
    assert daemon.wait(60) == -signal.SIGKILL, f"the daemon never passed {label}\n{house.daemon_output()}"
    house.start_daemon()
    house.wait_final()
    evidence.check(acknowledged=2)
    assert {view.state for view in house.tasks()} == {"done"} and len(evidence.started()) == 2
    assert git(house.repo, "fsck", "--connectivity-only") == ""


@pytest.mark.parametrize("label", ["stop.committed", "stop.stopped"])
def test_daemon_killed_while_it_stops_an_agent(house: House, label: str) -> None:
    evidence = Evidence.begin(house)
    daemon = house.start_daemon(die_at=label)
    house.ok("run", "-d", house.plan(plan_of([evidence.task("long", "sleep 600")])))
    wait_until(lambda: evidence.started(), "the agent to start")
    _ask_kill(house)
    assert daemon.wait(60) == -signal.SIGKILL
    house.start_daemon()
    house.wait_final()
    evidence.check(acknowledged=1)
    assert house.state("long") == "cancelled"


def test_a_run_is_acknowledged_or_not_known(house: House) -> None:
    evidence = Evidence.begin(house)
    daemon = house.start_daemon(die_at="submit.committed")
    plan = house.plan(plan_of([evidence.task("only")]))
    refused = house.run("run", "-d", "--key", "k1", plan)
    assert daemon.wait(60) == -signal.SIGKILL
    assert refused.returncode == 5, refused.stderr
    house.start_daemon()
    house.ok("run", "-d", "--key", "k1", plan)
    house.wait_final()
    evidence.check(acknowledged=1)
    assert len(house.tasks()) == 1, "the same key made a second run"


def test_runner_killed(house: House) -> None:
    evidence = Evidence.begin(house)
    house.start_daemon()
    once = 'test "$NIGHTCREW_EPOCH" = 1 && { echo partial > partial; sleep 600; }'
    house.ok("run", "-d", house.plan(plan_of([evidence.task("hit", once)])))
    wait_until(lambda: (worktree(house, "hit") / "partial").exists(), "the agent to work")
    assert kill_a_runner(house, random.Random(0))
    house.wait_final()
    evidence.check(acknowledged=1)
    assert evidence.started() == [(house.task("hit").id, 1), (house.task("hit").id, 2)]


def test_tmux_server_killed_is_survived_without_a_crash_loop(house: House) -> None:
    evidence = Evidence.begin(house)
    daemon = house.start_daemon()
    once = 'test "$NIGHTCREW_EPOCH" = 1 && sleep 600'
    house.ok("run", "-d", house.plan(plan_of([evidence.task("a", once), evidence.task("b", once)])))
    wait_until(lambda: len(evidence.started()) == 2, "both agents to start")
    kill_tmux(house, random.Random(0))
    house.wait_final()
    assert daemon.poll() is None
    evidence.check(acknowledged=2)
    assert sorted(evidence.started()) == sorted((view.id, epoch) for view in house.tasks() for epoch in (1, 2))


def _random_kills(house: House, *, tasks: int, moments: int, seed: int, pause_s: float = 0.6, end_s: float = 600.0) -> None:
    """`pause_s`: the longest between two kills; `end_s`: how long the rest may take."""
    chance = random.Random(seed)
    evidence = Evidence.begin(house)
    house.config.write_text(house.config.read_text().replace("[limits]", "slots = 8\n[limits]"))
    house.start_daemon()
    for first in range(0, tasks, 500):  # a plan is no larger than a megabyte
        some = [evidence.task(f"t{n}", f"sleep 0.{chance.randrange(10)}") for n in range(first, min(tasks, first + 500))]
        house.ok("run", "-d", house.plan(plan_of(some)))
    weapons: tuple[Weapon, ...] = (*[kill_daemon] * 6, *[kill_a_runner] * 3, kill_tmux)
    done = 0
    while done < moments and any(not view.final for view in house.tasks()):
        time.sleep(chance.uniform(0.0, pause_s))  # the random moment itself
        done += chance.choice(weapons)(house, chance)
    print(f"{done} kills, {len(evidence.started())} starts of {tasks} tasks")
    house.wait_final(end_s)
    evidence.check(acknowledged=tasks)
    assert [(view.id, view.state, view.reason) for view in house.tasks() if view.state != "done"] == []


def test_random_kills(house: House, seed: int) -> None:
    _random_kills(house, tasks=14, moments=7, seed=seed)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_random_kills_in_full(house: House, seed: int) -> None:
    _random_kills(house, tasks=200, moments=100, seed=seed)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_thirty_kills_and_more_beside_three_thousand_tasks(house: House, seed: int) -> None:
    _random_kills(house, tasks=3000, moments=60, seed=seed, pause_s=6.0, end_s=3000.0)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_minutes_of_everything(house: House, seed: int) -> None:
    """What the virtual night does (`tests/kernel/night.py`), on real processes: work comes all the time, people cancel and retry, and
    something is killed every few seconds."""
    _ten_minutes(house, random.Random(seed), float(os.environ.get("NIGHTCREW_TEST_SOAK_S", "600")))


def _ten_minutes(house: House, chance: random.Random, seconds: float) -> None:
    evidence, count, until = Evidence.begin(house), 0, time.monotonic() + seconds
    house.config.write_text(house.config.read_text().replace("[limits]", "slots = 8\n[limits]"))
    house.start_daemon()
    while time.monotonic() < until:
        names = [f"n{count + number}" for number in range(chance.randrange(1, 12))]
        work = [f"sleep {chance.choice([0, 0.3, 3])}" for _ in names]
        house.ok("run", "-d", house.plan(plan_of([evidence.task(name, sleep, retries=3) for name, sleep in zip(names, work, strict=True)])))
        count += len(names)
        chance.choice((kill_daemon, kill_daemon, kill_a_runner, kill_a_runner, kill_tmux, _cancel_one, _retry_one))(house, chance)
        time.sleep(chance.uniform(0.0, 3.0))  # the random moment itself
    print(f"{len(evidence.started())} starts of {count} tasks")
    house.wait_final(600)
    evidence.check(acknowledged=count)
    assert {view.state for view in house.tasks()} <= {"done", "cancelled"}


def _cancel_one(house: House, chance: random.Random) -> bool:
    """A person ends one that has not ended; by the time of the request it may have."""
    return house.run("kill", _one_of(house, chance, final=False)).returncode == 0


def _retry_one(house: House, chance: random.Random) -> bool:
    """A person has one run again that was cancelled."""
    return house.run("retry", _one_of(house, chance, final=True)).returncode == 0


def _one_of(house: House, chance: random.Random, *, final: bool) -> str:
    wanted = ("cancelled",) if final else ("ready", "running")
    return chance.choice([view.id for view in house.tasks() if view.state in wanted] or ["nobody"])


def kill_daemon(house: House, chance: random.Random) -> bool:
    """SIGKILL to the supervisor, and a new one."""
    from supervisor.server import lock

    pid = lock.holder(house.home.lock)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: lock.holder(house.home.lock) is None, "the kernel to give the lock back")
    house.start_daemon(wait=chance.random() < 0.5)
    wait_until(lambda: lock.holder(house.home.lock) is not None, "the next supervisor")
    return True


def kill_a_runner(house: House, chance: random.Random) -> bool:
    """SIGKILL to one live runner; False when there is none."""
    live = []
    for file in house.home.root.glob("runs/*/*/*/started.json"):
        started = records.parse_started(file.read_text())
        if started is not None and not (file.parent / "exit.json").exists():
            live.append(started.identity.pid)
    if not live:
        return False
    signal_if_there(chance.choice(live))
    return True


def kill_tmux(house: House, chance: random.Random) -> bool:
    """SIGKILL to our tmux server."""
    pid = house.tmux_pid()
    if pid is None:
        return False
    os.kill(pid, signal.SIGKILL)
    return True


def worktree(house: House, name: str) -> Path:
    """Where the newest attempt of a task works."""
    return Path(house.task(name).worktree or "/nonexistent")


def _ask_kill(house: House) -> None:
    from supervisor.client import protocol
    from supervisor.kernel.errors import NightcrewError

    with contextlib.suppress(NightcrewError):
        protocol.call(house.home.daemon_socket, "kill", {"tasks": [house.task("long").id]}, timeout_s=10)
