"""Cores, limits and the clock."""

from __future__ import annotations

import os
import resource
import time

import pytest

from supervisor.host import cores, limits
from supervisor.host.clock import Clock, SystemClock
from supervisor.host.cores import Plan


@pytest.mark.parametrize(
    ("usable", "reserve", "expected"),
    [
        ((), None, Plan()),
        ((0,), None, Plan()),
        ((0, 1, 2), None, Plan()),
        ((0, 1, 2, 3), None, Plan((0,), (1, 2, 3))),
        ((9, 4, 6, 5), None, Plan((4,), (5, 6, 9))),
        ((0, 1), 1, Plan((0,), (1,))),
        ((0, 1, 2, 3), 2, Plan((0, 1), (2, 3))),
        ((0, 1, 2, 3), 0, Plan()),
        ((0, 1, 2, 3), 99, Plan((0, 1, 2), (3,))),
        ((0,), 1, Plan()),
    ],
)
def test_who_gets_which_cores(usable: tuple[int, ...], reserve: int | None, expected: Plan) -> None:
    assert cores.plan(usable, reserve) == expected


@pytest.mark.parametrize(
    ("wanted", "reserve", "usable", "turn", "expected"),
    [
        (0, None, range(2), 0, ()),
        (0, None, range(4), 0, (1, 2, 3)),
        ((3, 0, 3), None, range(4), 0, (0, 3)),
        (1, None, range(2), 0, (0,)),
        (1, None, range(2), 1, (1,)),
        (2, None, range(4), 0, (1, 2)),
        (2, None, range(4), 1, (1, 3)),
        (9, None, range(4), 0, (1, 2, 3)),
        (1, 1, range(2), 5, (1,)),
    ],
)
def test_the_cores_of_one_task(
    wanted: tuple[int, ...] | int, reserve: int | None, usable: range, turn: int, expected: tuple[int, ...]
) -> None:
    assert cores.choose(wanted, reserve, usable, turn) == expected


def test_the_cores_of_this_host() -> None:
    assert set(cores.usable()) == os.sched_getaffinity(0)


def test_the_probe_says_what_holds_here() -> None:
    found = limits.probe()
    assert found.limits == {"memory_max", "file_max", "open_files"}
    assert found.pidfd == hasattr(os, "pidfd_open")
    assert found.affinity
    unlimited = resource.getrlimit(10)[1] == resource.RLIM_INFINITY
    assert found.mark == (os.geteuid() == 0 or unlimited)


def test_the_system_clock_is_the_systems() -> None:
    clock: Clock = SystemClock()
    before = time.time(), time.monotonic()
    now = clock.wall(), clock.monotonic()
    assert before <= now <= (time.time(), time.monotonic())
