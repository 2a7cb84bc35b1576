"""Pausing agents: they stand still with all that they have, whatever becomes of the supervisor meanwhile, and go on where they were."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agents.tmux import Tmux
from supervisor.host import cgroups, procfs
from supervisor.kernel import names
from tests.support import House, plan_of, shell_task, wait_until

pytestmark = pytest.mark.usefixtures("no_groups_left")
COUNTS = 'i=0; while [ ! -e go ]; do i=$((i + 1)); echo "$$ $i"; sleep 0.02; done'
GROUPED = {"memory_max": "256MiB"}


@pytest.fixture(params=["signals", "group"])
def keys(request: pytest.FixtureRequest) -> dict[str, object]:
    """Of a task that has a control group, or none."""
    if request.param == "group" and not cgroups.probe().freeze:
        pytest.skip("no control group of this user can be frozen here")
    return dict(GROUPED) if request.param == "group" else {}


def counting(house: House, command: str | list[str] = COUNTS, /, **keys: object) -> subprocess.Popen[bytes]:
    """A daemon with a task that counts."""
    name, daemon = "agent", house.start_daemon()
    house.ok("run", "-d", house.plan(plan_of([shell_task(name, command, **keys)])))
    wait_until(lambda: counts(house), f"{name} to count")
    wait_until(lambda: house.task(name).attempt_state == "running", f"{name} to be seen running")
    return daemon


def counts(house: House) -> list[str]:
    log = house.home.attempt(house.task("agent").id, 1) / "stdout.log"
    return log.read_text().splitlines() if log.exists() else []


def stands_still(house: House, name: str = "agent") -> bool:
    """Whether no process of a task can run, by the kernel's word, whoever stopped it."""
    try:
        tag = names.tag(str(house.home.root), house.task(name).id, 1).encode()
        theirs = [pid for pid in house.tagged() if tag in procfs.slurp(f"/proc/{pid}/environ")]
        own = [pid for pid in theirs if b"main.py" not in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return bool(own) and all(still(pid) for pid in own)
    except (FileNotFoundError, ProcessLookupError):  # one ended while we looked, so it moved
        return False


def still(pid: int) -> bool:
    """In the kernel (D) a parent waits for its vforked child to be another program; a stop that is sent there comes before its own code."""
    if state(pid) in "TtZX" or (state(pid) == "D" and stop_is_pending(pid)):
        return True
    held = [line.rpartition(":")[2] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if "nightcrew-" in line]
    return bool(held) and any(group.frozen() for group in cgroups.left(cgroups.probe(), held[0].rpartition("nightcrew-")[2][:16]))


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def stop_is_pending(pid: int) -> bool:
    pending = [line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("ShdPnd:")]
    return bool(int(pending[0], 16) >> (signal.SIGSTOP - 1) & 1)


def replaced(house: House, daemon: subprocess.Popen[bytes]) -> None:
    daemon.kill()
    daemon.wait()
    house.start_daemon()


@pytest.mark.in_turns
def test_it_stands_still_and_goes_on_where_it_was(house: House, keys: dict[str, object]) -> None:
    counting(house, **keys)
    assert house.ok("pause", "agent") == f"{house.task('agent').id}\n"
    assert stands_still(house) and house.state("agent") == "running" and house.task("agent").paused
    before = counts(house)
    assert house.ok("status").startswith("‖ paused ")
    assert counts(house) == before
    assert house.ok("resume", "agent") == f"{house.task('agent').id}\n"
    wait_until(lambda: len(counts(house)) > len(before) + 3, "it to count on")
    assert house.ok("status").startswith("● running ")
    Path(house.task("agent").worktree or "", "go").touch()
    house.wait_final()
    lines = counts(house)
    assert house.state("agent") == "done" and len({line.split()[0] for line in lines}) == 1
    assert [int(line.split()[1]) for line in lines] == list(range(1, len(lines) + 1)), "the same process, and nothing of it lost"


@pytest.mark.in_turns
def test_it_outlives_the_supervisor(house: House, keys: dict[str, object]) -> None:
    daemon = counting(house, **keys)
    house.ok("pause", "agent")
    before = counts(house)
    replaced(house, daemon)
    assert house.task("agent").paused and stands_still(house) and counts(house) == before
    house.ok("resume", "agent")
    wait_until(lambda: len(counts(house)) > len(before), "it to count on")
    assert house.task("agent").epoch == 1 and not house.task("agent").paused


@pytest.mark.in_turns
def test_a_paused_task_can_be_ended(house: House, keys: dict[str, object]) -> None:
    counting(house, **keys)
    house.ok("pause", "agent")
    house.ok("kill", "agent")
    assert (house.state("agent"), house.task("agent").paused) == ("cancelled", "")
    wait_until(lambda: not house.tagged(), "nothing of it to live")


@pytest.mark.in_turns
def test_it_hears_a_polite_end(house: House, keys: dict[str, object]) -> None:
    """What stands still is let go on first, so that it has its grace time."""
    counting(house, f"trap 'echo bye; exit 0' TERM; {COUNTS}", **keys)
    house.ok("pause", "agent")
    house.ok("kill", "agent")
    assert counts(house)[-1] == "bye"


def test_what_was_stopped_before_stays_stopped(house: House) -> None:
    """Also when the supervisor that resumes is another one than the one that paused."""
    daemon = counting(house, f"sleep 600 & kill -STOP $!; echo $! > stopped; {COUNTS}")
    stopped = int(Path(house.task("agent").worktree or "", "stopped").read_text())
    house.ok("pause", "agent")
    replaced(house, daemon)
    before = len(counts(house))
    house.ok("resume", "agent")
    wait_until(lambda: len(counts(house)) > before, "it to count on")
    assert state(stopped) == "T"
    os.kill(stopped, signal.SIGCONT)
    house.ok("kill", "agent")


@pytest.mark.in_turns
@pytest.mark.parametrize("place", ["pause.committed", "pause.stopped", "resume.committed", "resume.started"])
def test_a_supervisor_killed_in_the_middle(house: House, place: str) -> None:
    """The ledger and the processes agree again once the next one has recovered."""
    counting(house)
    house.ok("down")
    dying = house.start_daemon(die_at=place)
    if place.startswith("resume"):
        house.ok("pause", "agent")
    assert house.run(place.partition(".")[0], "agent").returncode != 0
    dying.wait(30)
    before = len(counts(house))
    house.start_daemon()
    if place.startswith("pause"):
        wait_until(lambda: stands_still(house), "it to stand still")
        assert house.task("agent").paused
        house.ok("resume", "agent")
    wait_until(lambda: len(counts(house)) > before, "it to count on")
    assert not house.task("agent").paused and house.task("agent").epoch == 1


STARTS = """
import os
os.mkfifo("pipe")
print("starts", flush=True)
child = os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "pipe", os.O_RDONLY, 0)])
print("goes on", os.waitpid(child, 0)[1])
"""


def test_one_that_is_starting_a_program_stands_still_too(house: House) -> None:
    """The child is stopped before it is another program, so its parent, which shares its memory, waits in the kernel meanwhile."""
    counting(house, [sys.executable, "-c", STARTS])
    wait_until(lambda: "D" in map(state, house.tagged()), "it to wait for its child")
    house.ok("pause", "agent")
    assert stands_still(house)
    with (Path(house.task("agent").worktree or "") / "pipe").open("r+b", buffering=0):
        assert stands_still(house) and counts(house) == ["starts"]
        house.ok("resume", "agent")
        house.wait_final()
    assert counts(house) == ["starts", "goes on 0"] and house.state("agent") == "done"


def test_its_slot_is_free_until_it_goes_on(house: House) -> None:
    """It is no more than asked for to go on while another runs on its slot, also of the next supervisor; then it goes on by itself."""
    house.config.write_text("slots = 1\n" + house.config.read_text())
    daemon = counting(house)
    house.ok("pause", "agent")
    house.ok("add", "--id", "next", "while [ ! -e go ]; do sleep 0.02; done")
    wait_until(lambda: house.task("next").attempt_state == "running", "the next one to run on its slot")
    before, name = counts(house), house.task("agent").id
    resumed = house.run("resume", "agent")
    assert (resumed.stdout, resumed.stderr) == (f"{name}\n", f"nightcrew: {name} goes on when a slot is free\n")
    shown = json.loads(house.ok("status", "--json"))["tasks"]
    assert {task["name"]: task["paused"] for task in shown} == {"agent": {"until": "slot", "for": None}, "next": None}
    assert stands_still(house, "agent") and counts(house) == before
    replaced(house, daemon)
    assert stands_still(house, "agent") and counts(house) == before
    Path(house.task("next").worktree or "", "go").touch()
    wait_until(lambda: len(counts(house)) > len(before), "it to count on")
    assert house.task("agent").epoch == 1 and not house.task("agent").paused
    house.ok("kill", "agent")


def test_what_waits_is_held_back_too(house: House) -> None:
    """Also what waits for another task, and what comes after it; and `--all` means all of them."""
    house.config.write_text("slots = 1\n" + house.config.read_text())
    house.start_daemon()
    tasks = [shell_task("first", "sleep 600"), shell_task("a", "true"), shell_task("b", "true", after=["a"])]
    house.ok("run", "-d", house.plan(plan_of(tasks)))
    wait_until(lambda: house.task("first").attempt_state == "running", "the first one to run")
    assert len(house.ok("pause", "--all").splitlines()) == 3
    assert (house.state("a"), house.state("b"), house.task("first").paused) == ("paused", "paused", "person")
    house.ok("kill", "first")
    assert house.ok("resume", "b") == f"{house.task('b').id}\n" and house.state("b") == "waiting"
    assert house.ok("resume", "--all") == f"{house.task('a').id}\n"
    house.wait_final()
    assert (house.state("a"), house.state("b")) == ("done", "done")


def test_its_time_stands_still(house: House) -> None:
    """What the runner is told: since when it stands still, then for how long it did."""
    counting(house)
    record = house.home.attempt(house.task("agent").id, 1) / "paused"
    house.ok("pause", "agent")
    seconds, since = map(float, record.read_text().split())
    assert seconds == 0 < since
    house.ok("resume", "agent")
    once, since = map(float, record.read_text().split())
    assert once > 0 and since == 0
    house.ok("pause", "agent")
    house.ok("resume", "agent")
    assert once < float(record.read_text().split()[0])
    history = house.ok("status", "agent")
    assert len(re.findall("attempt 1: paused", history)) == len(re.findall("attempt 1: resumed", history)) == 2


@pytest.mark.in_turns
def test_a_session_that_is_closed_takes_a_paused_agent_along(house: House, keys: dict[str, object]) -> None:
    """Its runner cannot end what the kernel holds frozen, so the supervisor does."""
    counting(house, **keys)
    house.ok("pause", "agent")
    with Tmux(house.home.tmux_socket) as tmux:
        tmux.kill_session(house.task("agent").session_id or "")
    house.wait_final()
    assert house.task("agent").reason == "cancelled: its session was closed by hand"
    wait_until(lambda: not house.tagged(), "nothing of it to live")
