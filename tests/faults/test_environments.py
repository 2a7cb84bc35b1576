"""`kill -9` of the supervisor, of runners, zygotes and tmux while agents work on snapshots and in sandboxes; then the checker."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agents import zygote
from supervisor.client import protocol
from supervisor.host import processes
from supervisor.kernel.errors import NightcrewError
from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from supervisor.server.attempts import zygotes
from tests.failpoints import FAILPOINTS
from tests.faults.checker import Evidence
from tests.faults.test_kill import kill_a_runner, kill_daemon, kill_tmux
from tests.server.snapshot_kit import commit, files_of_snapshots, rows
from tests.support import House, git, mounted_below, plan_of, shell_task, signal_if_there, wait_until

SNAPSHOTS = """
[snapshot.files]
setup = ["mkdir -p .venv && echo dependency > .venv/module"]
[snapshot.memory]
kind = "memory"
setup = ["mkdir -p .venv && echo dependency > .venv/module"]
preload = ["colorsys"]
"""
KINDS = ("files", "memory")
PROGRAM = """
import os, sys, time
out = os.environ["NIGHTCREW_OUT"]
open(f"{out}/begun", "w").close()
while not os.path.exists(f"{out}/go"):
    time.sleep(0.02)
print("colorsys" in sys.modules)
"""
STEPS = ("launch.environment", "finish.secured")
"""Those that environments make different; `make soak` takes every one."""
CHECK = "grep -q dependency .venv/module || exit 8; rm .venv/module"


@pytest.fixture(scope="module")
def sandbox() -> int:
    """What agents run in: tier 1 where it works."""
    return int(Tier.FILES in executors.probe().tiers)


@pytest.fixture
def house(house: House) -> House:
    """Its project file describes both snapshots."""
    (house.repo / ".gitignore").write_text(".venv/\n__pycache__/\n")
    commit(house, "nightcrew.toml", SNAPSHOTS)
    return house


def prepared(house: House) -> None:
    """Both are made before anything is killed."""
    daemon = house.start_daemon()
    for name in KINDS:
        house.ok("snapshot", "create", name)
    daemon.kill()
    daemon.wait()


def check(house: House, evidence: Evidence, tasks: int) -> None:
    """The checker; then everything that environments could leave."""
    evidence.check(acknowledged=tasks)
    assert [(view.id, view.state, view.reason) for view in house.tasks() if view.state != "done"] == []
    assert {row.uses for row in rows(house)} != {0}
    house.ok("clean", "--yes", "--discard", "--ignored", *(view.id for view in house.tasks()))
    assert mounted_below(house.home.root) == []
    assert git(house.repo, "worktree", "list", "--porcelain").count("worktree ") == 1
    house.ok("snapshot", "rm", *KINDS)
    assert rows(house) == [] and files_of_snapshots(house) == []
    assert list((house.home.run_dir / "z").glob("*.z")) == [], "zygotes went with their snapshots"


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "label",
    [pytest.param(name, marks=() if name in STEPS else pytest.mark.soak) for name in FAILPOINTS if name.startswith(("launch.", "finish."))],
)
def test_supervisor_killed_at_each_step_of_tasks_on_snapshots(house: House, label: str) -> None:
    prepared(house)
    evidence = Evidence.begin(house)
    daemon = house.start_daemon(die_at=f"{label}:2")
    tasks = [evidence.task(name, CHECK, snapshot=name) for name in KINDS]
    house.run("run", "-d", house.plan(plan_of([*tasks, evidence.task("last", CHECK, snapshot="memory", after=["files"])])))
    assert daemon.wait(60) == -signal.SIGKILL, f"the daemon never passed {label}\n{house.daemon_output()}"
    house.start_daemon()
    house.wait_final()
    check(house, evidence, 3)


def kill_a_zygote(house: House, chance: random.Random) -> bool:
    """SIGKILL to one that lives."""
    living = [found for row in rows(house) if (found := zygote.find(zygotes.place_of(house.home, row.id))) is not None]
    if not living:
        return False
    signal_if_there(chance.choice(living).identity.pid)
    return True


def unmount_one(house: House, chance: random.Random) -> bool:
    """An environment that is mounted nowhere any more, as when somebody cleans up by hand; only of an attempt that has ended."""
    ended = [view for view in house.tasks() if view.final and view.worktree in mounted_below(house.home.root)]
    if not ended:
        return False
    subprocess.run(["umount", "-l", str(chance.choice(ended).worktree)], check=False)
    return True


@pytest.mark.parametrize(("count", "kills"), [(10, 7), pytest.param(24, 18, marks=pytest.mark.soak)])
def test_random_kills_of_tasks_on_snapshots(house: House, seed: int, count: int, kills: int) -> None:
    chance = random.Random(seed)
    prepared(house)
    evidence = Evidence.begin(house)
    house.config.write_text(house.config.read_text().replace("[limits]", "slots = 6\n[limits]"))
    house.start_daemon()
    work = f"{CHECK}; sleep 0.{chance.randrange(10)}"
    tasks = [evidence.task(f"t{number}", work, snapshot=KINDS[number % 2]) for number in range(count)]
    house.ok("run", "-d", house.plan(plan_of(tasks)))
    weapons = (*[kill_daemon] * 4, *[kill_a_runner] * 3, *[kill_a_zygote] * 2, unmount_one, kill_tmux)
    done = 0
    while done < kills and any(not view.final for view in house.tasks()):
        time.sleep(chance.uniform(0.0, 0.8))  # the random moment itself
        done += chance.choice(weapons)(house, chance)
    print(f"{done} kills, {len(evidence.started())} starts")
    house.wait_final(150)
    check(house, evidence, count)


@pytest.mark.in_turns
@pytest.mark.parametrize("snapshot", KINDS)
def test_agents_in_a_sandbox_are_adopted_and_recorded_once(house: House, sandbox: int, snapshot: str) -> None:
    """The supervisor is killed while they work, and the next one finds them; what they leave is secured from their environment."""
    if not sandbox:
        pytest.skip("no sandbox works here")
    house.start_daemon()
    script = "while [ ! -e $NIGHTCREW_OUT/go ]; do sleep 0.05; done; cat .venv/module; echo left > left"
    command = f"touch $NIGHTCREW_OUT/begun; {script}"
    house.ok("snapshot", "create", snapshot)
    house.ok("run", "-d", house.plan(plan_of([_task(name, command, snapshot) for name in ("one", "two")])))
    for name in ("one", "two"):
        wait_until((_out(house, name) / "begun").exists, f"{name} to begin")
    kill_daemon(house, random.Random(0))
    for name in ("one", "two"):
        (_out(house, name) / "go").touch()
    house.wait_final()
    for name in ("one", "two"):
        view = house.task(name)
        assert (view.state, view.epoch) == ("done", 1)
        assert house.ok("logs", name) == "dependency\n"
        assert git(house.repo, "show", f"{view.branch}:left") == "left"
    wait_until(lambda: not house.tagged(), "nothing to be left")


def _task(name: str, command: str, snapshot: str) -> str:
    return shell_task(name, command, snapshot=snapshot, sandbox=1)


def _out(house: House, name: str) -> Path:
    """Seen by both sides; the worktree may be in the agent's own namespace alone."""
    return house.home.attempt(house.task(name).id, 1) / "out"


def test_a_warm_program_in_a_sandbox_survives_the_supervisor(house: House, sandbox: int) -> None:
    if not sandbox:
        pytest.skip("no sandbox works here")
    commit(house, "agent.py", PROGRAM)
    house.start_daemon()
    house.ok("snapshot", "create", "memory")
    house.ok("run", "-d", house.plan(shell_task("one", [sys.executable, "agent.py"], snapshot="memory", sandbox=1)))
    wait_until((_out(house, "one") / "begun").exists, "it to begin")
    kill_daemon(house, random.Random(0))
    (_out(house, "one") / "go").touch()
    house.wait_final()
    assert (house.state("one"), house.task("one").epoch) == ("done", 1)
    assert house.ok("logs", "one") == "True\n"


def test_a_zygote_goes_with_a_snapshot_whose_removal_was_cut_off(house: House) -> None:
    daemon = house.start_daemon(die_at="snapshot.removed")
    house.ok("snapshot", "create", "memory")
    (row,) = rows(house)
    living = zygote.find(zygotes.place_of(house.home, row.id))
    assert living is not None
    house.run("snapshot", "rm", "memory")
    assert daemon.wait(60) == -signal.SIGKILL
    house.start_daemon()
    wait_until(lambda: not processes.alive(living.identity), "the zygote to go")


def test_a_zygote_that_a_dead_supervisor_was_waiting_for_stands_in_nobodys_way(house: House, tmp_path: Path) -> None:
    """It imports until somebody lets it."""
    slow = f"import os, time\\nopen('{tmp_path}/imports', 'w').close()\\nwhile not os.path.exists('{tmp_path}/go'): time.sleep(0.02)\\n"
    packages = f".venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    words = ("snapshot", "create", "slow", "--kind", "memory", "--preload", "slow")
    order = (*words, "--setup", f'mkdir -p {packages} && printf "{slow}" > {packages}/slow.py')
    daemon = house.start_daemon()
    asking = threading.Thread(target=house.run, args=order)
    asking.start()
    wait_until((tmp_path / "imports").exists, "the import")
    daemon.kill()
    daemon.wait()
    asking.join()
    (tmp_path / "imports").unlink()
    house.start_daemon()
    again = threading.Thread(target=house.run, args=order)
    again.start()
    wait_until((tmp_path / "imports").exists, "another import")
    (tmp_path / "go").touch()
    again.join()
    assert [str(row.state) for row in rows(house) if row.spec.name == "slow"] == ["ready"]


def test_what_was_cancelled_while_it_was_made_is_found_by_the_next_supervisor(house: House) -> None:
    prepared(house)
    daemon = house.start_daemon(die_at="launch.environment")
    digest = hashlib.sha256(os.fsencode((house.repo / ".git").resolve())).hexdigest()[:12]
    with (house.home.root / "git" / "locks" / f"git-{digest}").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        house.ok("add", "--id", "one", "--snapshot", "files", "sleep 100")
        wait_until(lambda: house.task("one").attempt_state == "launching", "it to be made")
        with contextlib.suppress(NightcrewError):  # the answer comes when the launch is over, and then nobody is there
            protocol.call(house.home.daemon_socket, "kill", {"tasks": [house.task("one").id]}, timeout_s=1)
        wait_until(lambda: house.task("one").attempt_state == "stopping", "it to be cancelled")
    assert daemon.wait(60) == -signal.SIGKILL
    house.start_daemon()
    house.wait_final()
    house.ok("clean", "--yes", "--ignored")
    assert git(house.repo, "worktree", "list", "--porcelain").count("worktree ") == 1
    assert mounted_below(house.home.root) == []
    house.ok("snapshot", "rm", *KINDS)
