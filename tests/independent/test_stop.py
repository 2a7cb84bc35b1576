"""Agents whose processes hide, multiply and hear no signal are stopped, and nothing of them goes on.

The author read the documentation (docs/safety.md, "Stopping") and not the code. Each process of an agent holds a shared lock on a file
of the agent's; the kernel hands it to every child, and frees it when the last process that holds it is gone. So a test needs no look
at the right moment: when the file can be locked, nobody is left.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.host import procfs
from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from tests.support import House, make_repository, shell_task, signal_if_there, wait_until

STUBBORN = r"""
import contextlib, ctypes, fcntl, os, resource, signal, sys, time

PROGRAM, MODE, OUT = os.path.abspath(sys.argv[0]), sys.argv[1], sys.argv[2]
CLONE_NEWUSER, CLONE_NEWPID = 0x10000000, 0x20000000
LATEST = time.monotonic() + 200  # a test that fails leaves nothing for ever
held = open(OUT + "/held", "a")
fcntl.flock(held, fcntl.LOCK_SH)
for number in range(1, signal.NSIG):
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_IGN)


def ready(name):
    open(f"{OUT}/ready-{name}", "w").close()


def stay():
    while time.monotonic() < LATEST:
        time.sleep(0.2)
    os._exit(0)


def become(mode, name):
    "Go on as another program with an empty environment."
    os.execve(sys.executable, [sys.executable, "-I", "-S", PROGRAM, mode, OUT, name], {})


def leave():
    "Leave the session and the parent, as daemons do."
    os.setsid()
    if os.fork():
        os._exit(0)


def chain(name):
    "Fork and end, again and again: no process lives long enough to be looked at."
    links = 0
    while time.monotonic() < LATEST:
        if os.fork():
            os._exit(0)
        os.setsid()
        links += 1
        if links == 20:
            ready(name)
        time.sleep(0.01)


def many():
    "Start four daemons without handles and variables; two of them are chains."
    for number in range(4):
        if os.fork() == 0:
            os.closerange(0, 64)
            null = os.open("/dev/null", os.O_RDWR)
            for handle in range(3):
                os.dup2(null, handle)
            leave()
            os.chdir("/")
            become("chain" if number % 2 else "idle", str(number))
    stay()


def daemon():
    if os.fork() == 0:
        leave()
        become("idle", "0")
    stay()


def stopped():
    "Stop a child by SIGSTOP; it hears nothing any more."
    if os.fork() == 0:
        os.setsid()
        ready("0")
        os.kill(os.getpid(), signal.SIGSTOP)
    stay()


def resisting():
    "Start three processes at each TERM."
    def more(*_):
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                stay()
    signal.signal(signal.SIGTERM, more)
    ready("0")
    stay()


def namespaces():
    "Hide in namespaces of its own, where that is allowed."
    ctypes.CDLL(None).unshare(CLONE_NEWUSER | CLONE_NEWPID)
    if os.fork() == 0:
        os.setsid()
        ready("0")
    stay()


def shed():
    "Give up the environment and what a resource limit says."
    resource.setrlimit(10, (7, 7))  # RLIMIT_LOCKS
    become("idle", "0")


def idle():
    ready(sys.argv[3])
    stay()


if MODE == "chain" and len(sys.argv) > 3:
    chain(sys.argv[3])
elif MODE == "chain":
    if os.fork() == 0:
        chain("0")
    stay()
else:
    globals()[MODE]()
"""
MODES = {"chain": 1, "many": 4, "daemon": 1, "stopped": 1, "resisting": 1, "namespaces": 1, "shed": 1}
"""What the agents do, and how many of their processes say that they are there."""


class Stubborn:
    """A supervisor whose agents are one of each mode."""

    def __init__(self, place: Path) -> None:
        self.house = House(place, make_repository(place / "repo", {"stubborn.py": STUBBORN}))
        self.house.config.write_text(self.house.config.read_text().replace('grace = "1s"', f'grace = "0.3s"\nslots = {len(MODES)}'))

    def start(self, tier: int) -> None:
        """Start the agents, and wait until all of their processes are there."""
        self.house.start_daemon()
        python = "exec python3 -I -S stubborn.py"
        tasks = [shell_task(mode, f'{python} {mode} "$NIGHTCREW_OUT"', sandbox=tier) for mode in MODES]
        self.house.ok("run", "-d", self.house.plan("\n".join(tasks)))
        for mode, count in MODES.items():
            wait_until(lambda mode=mode, count=count: len(self.ready(mode)) == count, f"the processes of {mode}", 60)  # type: ignore[misc]
        assert sorted(self.living()) == sorted(MODES)

    def attempts(self, mode: str) -> list[Path]:
        """Return the directories of the task's attempts, the first one first."""
        attempts = self.house.home.attempt(self.house.task(mode).id, 1).parent.iterdir()
        return sorted((path for path in attempts if path.name.isdigit()), key=lambda path: int(path.name))

    def ready(self, mode: str) -> list[Path]:
        """Return what the processes of the first attempt have said."""
        return list((self.attempts(mode)[0] / "out").glob("ready-*"))

    def living(self, *, first_only: bool = False) -> list[str]:
        """Return the modes of which a process lives; `first_only` looks at first attempts alone."""
        found = []
        for mode in MODES:
            attempts = self.attempts(mode)
            if any(is_held(attempt / "out" / "held") for attempt in (attempts[:1] if first_only else attempts)):
                found.append(mode)
        return found

    def kill_runners(self) -> None:
        """Kill the runner of each agent."""
        for mode in MODES:
            os.kill(json.loads((self.attempts(mode)[0] / "started.json").read_text())["pid"], signal.SIGKILL)

    def end(self) -> None:
        """End by their ids what a failed test leaves: processes that name this house's directory, and then what the house knows of."""
        self.house.reap()
        for pid in procfs.pids():
            if os.fsencode(self.house.home.root) in procfs.slurp(f"/proc/{pid}/cmdline"):
                signal_if_there(pid)


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock of an agent's file."""
    if not path.exists():
        return False
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.fixture(params=[0, 1, 2])
def tier(request: pytest.FixtureRequest) -> int:
    """Each tier that works here."""
    number = int(request.param)
    if Tier(number) not in executors.known().tiers | {Tier.NONE}:
        pytest.skip("this host cannot")
    return number


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Stubborn]:
    """Stubborn agents, not yet started."""
    made = Stubborn(tmp_path)
    yield made
    made.end()


@pytest.mark.in_turns
def test_kill_leaves_no_process(agents: Stubborn, tier: int) -> None:
    agents.start(tier)
    agents.house.ok("kill", *MODES)
    assert agents.living() == []
    assert {mode: agents.house.state(mode) for mode in MODES} == dict.fromkeys(MODES, "cancelled")


@pytest.mark.in_turns
def test_the_supervisor_ends_what_a_killed_runner_leaves(agents: Stubborn, tier: int) -> None:
    agents.start(tier)
    agents.kill_runners()
    wait_until(lambda: not agents.living(first_only=True), "every process of the first attempts to be gone")
    agents.house.ok("kill", *MODES)
    assert agents.living() == []
    assert {mode: agents.house.state(mode) for mode in MODES} == dict.fromkeys(MODES, "cancelled")


@pytest.mark.in_turns
def test_kill_right_after_the_runner_was_killed_leaves_no_process(agents: Stubborn, tier: int) -> None:
    agents.start(tier)
    agents.kill_runners()
    agents.house.ok("kill", *MODES)
    assert agents.living() == []
