"""The machine's limits: each check says well, not well and does not know, and the right thing to do."""

from __future__ import annotations

import os
import resource
import shutil
from dataclasses import replace
from typing import Any

import pytest

from supervisor.doctor import machine as checks
from supervisor.doctor.check_context import State
from supervisor.host.cores import Core
from supervisor.kernel.spec import Settings
from tests.doctor.conftest import Machine


def test_inotify(machine: Machine) -> None:
    assert checks.inotify(machine.place()).state is State.OK
    machine.file("proc/sys/fs/inotify/max_user_instances", "90\n")
    found = checks.inotify(machine.place())
    assert found.state is State.WARN and "fs.inotify.max_user_instances=128" in found.fix and "max_user_watches=" not in found.fix
    machine.slots = 100
    assert "fs.inotify.max_user_instances=512 fs.inotify.max_user_watches=2097152" in checks.inotify(machine.place()).fix
    shutil.rmtree(machine.root / "proc/sys")
    assert checks.inotify(machine.place()).state is State.UNKNOWN


def test_open_files(machine: Machine) -> None:
    assert checks.open_files(machine.place()).seen == "no limit"
    machine.limits[resource.RLIMIT_NOFILE] = (1024, 4096)
    assert checks.open_files(machine.place()).state is State.OK
    machine.slots = 200
    assert checks.open_files(machine.place()).fix == "ulimit -n 1664 before nightcrew up"


def limited(key: str, value: int) -> Settings:
    changes: dict[str, Any] = {"file_max": 0, key: value}
    return replace(Settings(), **changes)


@pytest.mark.parametrize(
    ("key", "number"), [("memory_max", resource.RLIMIT_AS), ("file_max", resource.RLIMIT_FSIZE), ("open_files", resource.RLIMIT_NOFILE)]
)
def test_a_setting_above_the_hard_limit_fails(machine: Machine, key: str, number: int) -> None:
    machine.limits[number] = (4096, 4096)
    found = checks.open_files(machine.place(limited(key, 4097)))
    assert found.state is State.FAIL and f"limits.{key} is 4,097, the hard limit 4,096" in found.seen
    assert checks.open_files(machine.place(limited(key, 4096))).state is State.OK


def test_whether_agents_give_way(machine: Machine) -> None:
    two = [Core(0, (0, 2)), Core(1, (1, 3))]
    held = checks.judged_processor(two, True, machine.place())
    assert held.state is State.OK and held.seen.startswith("2 cores, 4 CPUs, 2 NUMA nodes; ")
    assert checks.judged_processor(two, False, machine.place()).state is State.OK, "a kernel that shares no time between sessions"
    machine.file("proc/sys/kernel/sched_autogroup_enabled", "1\n")
    found = checks.judged_processor([Core(0, (0,))], False, machine.place())
    assert found.state is State.WARN and found.seen.startswith("1 cores; ") and found.fix.startswith("sudo sysctl")
    machine.systemd("/user.slice")
    assert "-p Delegate=yes" in checks.judged_processor(two, False, machine.place()).fix
    assert checks.processor(machine.place()).state in (State.OK, State.WARN)


def test_memory(machine: Machine) -> None:
    assert checks.memory(machine.place()).seen == "16.0 GiB, 2.0 GiB swap, 8 slots"
    machine.file("sys/fs/cgroup/memory.max", str(2**31))
    found = checks.memory(machine.place())
    assert found.state is State.WARN and "slots = 6 in " in found.fix
    machine.memory = 2**29, 0
    assert "slots = 1 in " in checks.memory(machine.place()).fix and "no swap" in checks.memory(machine.place()).seen


UNDER_USER_MANAGER = "/user.slice/user-1000.slice/user@1000.service/app.slice/vte.scope"
IN_SESSION = "/user.slice/user-1000.slice/session-3.scope"


@pytest.mark.parametrize(
    ("group", "linger", "kill", "state", "fix"),
    [
        (UNDER_USER_MANAGER, "yes", "no", State.OK, ""),
        (UNDER_USER_MANAGER, "no", "no", State.WARN, "loginctl enable-linger"),
        (IN_SESSION, "no", "no", State.OK, ""),
        (IN_SESSION, "no", "yes", State.WARN, "loginctl enable-linger; nightcrew down; systemd-run --user --scope nightcrew up -d"),
        (IN_SESSION, "yes", "yes", State.WARN, "nightcrew down; systemd-run --user --scope nightcrew up -d"),
        ("/system.slice/ci.service", "no", "yes", State.OK, ""),
    ],
)
def test_logout(machine: Machine, group: str, linger: str, kill: str, state: State, fix: str) -> None:
    assert checks.logout(machine.place()).state is State.UNKNOWN
    machine.systemd(group, Linger=linger, KillUserProcesses=kill)
    found = checks.logout(machine.place())
    assert (found.state, found.fix) == (state, fix)


def test_logout_when_logind_says_nothing(machine: Machine) -> None:
    machine.systemd(IN_SESSION)
    assert checks.logout(machine.place()).state is State.UNKNOWN


@pytest.mark.parametrize(
    ("policy", "oomd", "state"),
    [
        ("continue", "inactive", State.OK),
        ("continue", "active", State.WARN),
        ("stop", "inactive", State.WARN),
        ("kill", "active", State.WARN),
    ],
)
def test_out_of_memory(machine: Machine, policy: str, oomd: str, state: State) -> None:
    assert checks.out_of_memory(machine.place()).state is State.UNKNOWN
    machine.systemd(UNDER_USER_MANAGER, **{"systemd-oomd": oomd, "OOMPolicy": f"OOMPolicy={policy}"})
    found = checks.out_of_memory(machine.place())
    assert "--user show vte.scope" in (machine.root / "asked").read_text()
    assert found.state is state and f"vte.scope: OOMPolicy={policy}" in found.seen


def test_a_tool_that_hangs_is_no_answer(machine: Machine) -> None:
    machine.systemd(IN_SESSION)
    machine.program("systemctl", "exec sleep 600")
    machine.environ["PATH"] = f"{machine.root / 'bin'}:{os.environ['PATH']}"
    found = checks.out_of_memory(machine.place(tool_s=0.1))
    assert found.state is State.UNKNOWN and found.seen == "systemctl did not answer in 100ms"
