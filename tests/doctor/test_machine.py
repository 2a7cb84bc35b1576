"""The machine's limits: each check says well, not well and does not know, and the right thing to do."""

from __future__ import annotations

import os
import resource
from dataclasses import replace
from typing import Any

import pytest

from supervisor.doctor import machine as checks
from supervisor.doctor.examine import State
from supervisor.kernel.settings import Settings
from tests.doctor.conftest import Machine


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


def test_a_tool_that_hangs_is_no_answer(machine: Machine) -> None:
    machine.systemd(IN_SESSION)
    machine.program("loginctl", "exec sleep 600")
    machine.environ["PATH"] = f"{machine.root / 'bin'}:{os.environ['PATH']}"
    found = checks.logout(machine.place(tool_s=0.1))
    assert found.state is State.UNKNOWN and found.seen == "loginctl did not answer in 100ms"
