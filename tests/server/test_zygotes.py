"""Memory snapshots through a real supervisor: agents forked from a warm process, and everything about it killed in turn."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from agents import zygote
from agents.zygote.lifecycle import Record
from supervisor.host import processes, procfs
from supervisor.kernel import records
from supervisor.server.attempts import zygotes
from supervisor.server.attempts.zygotes import Zygotes
from tests.gateway.kit import StandingClock
from tests.server.snapshot_kit import assert_nothing_left, commit, rows, states
from tests.support import House, plan_of, shell_task, wait_until

TELL = """
import os, sys
print("warm" if "colorsys" in sys.modules else "cold", os.getcwd().rsplit("/", 1)[1], *sys.argv[1:], flush=True)
"""
WAIT = """
import os, sys, time
print("warm" if "colorsys" in sys.modules else "cold", flush=True)
with open("pid.new", "w") as file:
    file.write(str(os.getpid()))
os.rename("pid.new", "pid")
while not os.path.exists("go"):
    time.sleep(0.02)
print("finished")
"""


@pytest.fixture
def house(house: House) -> House:
    """Its snapshot `warm` has `colorsys` imported, which nothing imports by itself."""
    (house.repo / "nightcrew.toml").write_text('[snapshot.warm]\nkind = "memory"\npreload = ["colorsys"]\n')
    (house.repo / ".gitignore").write_text("pid\ngo\n__pycache__/\n")
    (house.repo / "wait.py").write_text(WAIT)
    commit(house, "tell.py", TELL)
    return house


def python(script: str, *words: str) -> tuple[str, ...]:
    return ("--", sys.executable, script, *words)


def place(house: House) -> zygote.Place:
    return zygotes.place_of(house.home, rows(house)[0].id)


def at_work(house: House, name: str = "agent", *words: str) -> Path:
    """A task forked from `warm` that has begun; its worktree."""
    house.ok("snapshot", "create", "warm")
    house.ok("add", "--snapshot", "warm", "--id", name, *words, *python("wait.py"))
    wait_until(lambda: (worktree := house.task(name).worktree) and Path(worktree, "pid").exists(), "it to work")
    return Path(str(house.task(name).worktree))


def runner_of(house: House, name: str = "agent") -> records.Started:
    file = house.home.attempt(house.task(name).id, house.task(name).epoch) / "started.json"
    started = records.parse_started(file.read_text())
    assert started is not None
    return started


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_an_agent_is_forked_with_its_modules_and_a_plain_one_is_not(house: House) -> None:
    """Also once its zygote died, and once it was stopped."""
    house.start_daemon()
    house.ok("snapshot", "create", "warm")
    house.ok("add", "-f", "--snapshot", "warm", "--id", "one", *python("tell.py", "a", "b"))
    house.ok("add", "-f", "--id", "plain", *python("tell.py"))
    assert house.ok("logs", "one") == "warm one.1 a b\n"
    assert house.ok("logs", "plain") == "cold plain.1\n"
    before = zygote.find(place(house))
    assert before is not None
    kill(before.identity.pid)
    after = _another_is_warm(house, "two", before)
    seen = procfs.look(before.identity.pid)
    assert seen is None or seen.ticks != before.identity.ticks, "the supervisor reaped it"
    os.kill(after.identity.pid, signal.SIGSTOP)
    try:
        _another_is_warm(house, "three", after)
        assert not processes.alive(after.identity)
    finally:
        kill(after.identity.pid)


def _another_is_warm(house: House, name: str, before: Record) -> Record:
    """A task is forked by another zygote than the one before; that one."""
    house.ok("snapshot", "create", "warm")
    house.ok("add", "-f", "--snapshot", "warm", "--id", name, *python("tell.py"))
    assert house.ok("logs", name) == f"warm {name}.1\n"
    after = zygote.find(place(house))
    assert after is not None and after.identity != before.identity
    return after


@pytest.mark.one_in(2)
@pytest.mark.parametrize("older", [{"program": "older"}, {}], ids=["another", "unknown"])
def test_a_supervisor_finds_the_zygote_of_the_one_before(house: House, older: dict[str, str]) -> None:
    """And replaces it when that one was older: after an upgrade tasks that start warm run what those run that start cold."""
    daemon = house.start_daemon()
    house.ok("snapshot", "create", "warm")
    house.ok("add", "-f", "--snapshot", "warm", "--id", "one", *python("tell.py"))
    before = zygote.find(place(house))
    assert before is not None and before.program == zygote.program()
    daemon.kill()
    daemon.wait()
    daemon = house.start_daemon()
    house.ok("snapshot", "create", "warm")
    house.ok("add", "-f", "--snapshot", "warm", "--id", "two", *python("tell.py"))
    assert house.ok("logs", "two") == "warm two.1\n" and zygote.find(place(house)) == before
    daemon.kill()
    daemon.wait()
    shape = json.loads(place(house).record.read_text())
    del shape["program"]
    place(house).record.write_text(json.dumps(shape | older))
    house.start_daemon()
    assert _another_is_warm(house, "three", before).program == zygote.program()


def test_one_that_answered_a_moment_ago_is_not_asked_again(house: House) -> None:
    """And one that answered then, and was stopped since, is found out a moment later."""
    clock = StandingClock()
    warm, wanted = Zygotes(house.home, clock), zygote.Wanted(("colorsys",))
    place = warm.ready("one", wanted)
    started = zygote.find(place)
    assert started is not None and warm.ready("one", wanted) == place
    os.kill(started.identity.pid, signal.SIGSTOP)
    clock.now += zygotes.TRUST_S / 2
    assert warm.ready("one", wanted) == place and zygote.find(place) == started
    clock.now += zygotes.TRUST_S
    assert warm.ready("one", wanted) == place and not processes.alive(started.identity)
    warm.stop("one")


def test_an_agent_outlives_supervisor_and_zygote_and_is_recorded_once(house: House) -> None:
    daemon = house.start_daemon()
    where = at_work(house)
    runner = runner_of(house)
    found = zygote.find(place(house))
    assert found is not None
    daemon.kill()
    daemon.wait()
    kill(found.identity.pid)
    house.start_daemon()
    assert processes.alive(runner.identity)
    (where / "go").touch()
    house.wait_final()
    view = house.task("agent")
    assert (view.state, view.epoch) == ("done", 1), view.reason
    assert house.ok("logs", "agent") == "warm\nfinished\n"


def test_a_killed_client_is_a_terminal_that_hung_up_and_a_killed_agent_failed(house: House) -> None:
    house.start_daemon()
    agent = int((at_work(house, "killed") / "pid").read_text())
    warm = zygote.find(place(house))
    kill(agent)
    house.wait_final()
    assert (house.state("killed"), house.task("killed").reason) == ("failed", "failed: killed by signal 9")
    assert zygote.find(place(house)) == warm != None  # noqa: E711 - both: there is one, and it is the same
    where, ours = at_work(house), (runner_of(house).identity.pid, zygote_pid(house))
    kill(next(one.pid for one in processes.all_running(str(place(house).socket)) if one.pid not in ours))
    house.wait_final()
    view = house.task("agent")
    assert ((view.state, view.epoch) == ("cancelled", 1) and "hangup" in view.reason) or "closed" in view.reason, view.reason
    assert where.exists() and not house.tagged()


def zygote_pid(house: House) -> int:
    found = zygote.find(place(house))
    assert found is not None
    return found.identity.pid


@pytest.mark.one_in(2)
@pytest.mark.parametrize("also_zygote", [True, False], ids=["runner-and-zygote", "runner"])
def test_a_killed_runner_takes_its_agent_along_and_is_run_again(house: House, *, also_zygote: bool) -> None:
    house.start_daemon()
    where = at_work(house)
    agent = int((where / "pid").read_text())
    runner = runner_of(house).identity.pid
    if also_zygote:
        kill(zygote_pid(house))
    kill(runner)
    wait_until(lambda: house.task("agent").epoch == 2 and Path(str(house.task("agent").worktree), "pid").exists(), "the second attempt")
    assert processes.identity(agent) is None
    Path(str(house.task("agent").worktree), "go").touch()
    house.wait_final()
    assert (house.state("agent"), house.task("agent").epoch) == ("done", 2)
    assert house.ok("logs", "agent") == "warm\nfinished\n"


def test_down_ends_zygotes_once_no_agent_lives(house: House) -> None:
    house.start_daemon()
    where = at_work(house)
    house.ok("down")
    assert zygote.find(place(house)) is not None, "an agent lives"
    house.start_daemon()
    (where / "go").touch()
    house.wait_final()
    wait_until(lambda: not house.sessions(), "its session to be closed")
    house.ok("down")
    assert zygote.find(place(house)) is None


def test_the_zygote_goes_with_its_snapshot(house: House) -> None:
    house.start_daemon()
    house.ok("snapshot", "create", "warm")
    where = place(house)
    assert zygote.find(where) is not None
    house.ok("snapshot", "rm", "warm")
    assert zygote.find(where) is None and states(house, "warm") == []
    assert_nothing_left(house)


def test_one_that_starts_threads_is_refused_by_name(house: House) -> None:
    house.start_daemon()
    (house.repo / "threads.py").write_text("")
    done = house.run("snapshot", "create", "bad", "--kind", "memory", "--preload", "no_such_module")
    assert done.returncode != 0 and "no_such_module" in done.stderr
    assert states(house, "bad") == ["failed"]
    assert not list((house.home.run_dir / "z").glob("*.z")), "no socket is left"


def test_modules_that_set_up_made_are_preloaded_and_those_of_the_last_build(house: House) -> None:
    """A virtual environment of the snapshot's own; a build of changed files has a zygote of its own."""
    house.start_daemon()
    packages = f".venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    commit(house, ".gitignore", ".venv/\n__pycache__/\n")
    (house.repo / "tell.py").write_text("import sys\nprint(sys.modules['ours'].VERSION)\n")
    for version in (1, 2):
        text = f"mkdir -p {packages} && echo VERSION = {version} > {packages}/ours.py"
        commit(house, "nightcrew.toml", f'[snapshot.warm]\nkind = "memory"\nsetup = ["{text}"]\npreload = ["ours"]\n')
        house.ok("snapshot", "create", "warm")
        house.ok("add", "-f", "--snapshot", "warm", "--id", f"v{version}", *python("tell.py"))
        assert house.ok("logs", f"v{version}") == f"{version}\n"
    assert states(house, "warm") == ["ready", "stale"]


def test_many_at_once_are_all_warm(house: House) -> None:
    house.config.write_text(house.config.read_text().replace("[limits]", "slots = 8\n[limits]"))
    house.start_daemon()
    tasks = [shell_task(f"t{number}", [sys.executable, "tell.py"], snapshot="warm") for number in range(10)]
    house.ok("snapshot", "create", "warm")
    house.ok("run", house.plan(plan_of(tasks)))
    assert {house.ok("logs", f"t{number}").split()[0] for number in range(10)} == {"warm"}
