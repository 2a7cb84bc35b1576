"""Cores, limits and the clock."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest

from supervisor.host import cgroups, cores
from supervisor.host.clock import Clock, SystemClock
from supervisor.host.cores import Core, Plan


def singles(usable: Iterable[int]) -> list[Core]:
    """Cores of one thread each."""
    return [Core(0, (cpu,)) for cpu in usable]


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
    assert cores.plan(singles(usable), reserve) == expected


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
    assert cores.choose(wanted, reserve, singles(usable), turn) == expected


def test_the_cores_of_this_host() -> None:
    assert set(cores.usable()) == os.sched_getaffinity(0)
    assert sorted(cpu for core in cores.topology() for cpu in core.cpus) == list(cores.usable())
    counted = psutil.cpu_count(logical=False)
    assert counted is None or len(cores.topology()) <= counted, "psutil counts the machine's, and we those that we may use"


def machine(place: Path, nodes: int, each: int, threads: int) -> None:
    """A machine as Linux shows it: the first threads of all cores have the lowest numbers."""
    count = nodes * each
    for cpu in range(count * threads):
        folder = place / f"cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(",".join(str(cpu % count + count * thread) for thread in range(threads)) + "\n")
    for node in range(nodes):
        (place / f"node/node{node}").mkdir(parents=True)
        ranges = (f"{node * each + count * thread}-{(node + 1) * each - 1 + count * thread}" for thread in range(threads))
        (place / f"node/node{node}/cpulist").write_text(",".join(ranges) + "\n")


def test_two_threads_of_a_core_are_one_core_and_stay_together(tmp_path: Path) -> None:
    machine(tmp_path, nodes=1, each=4, threads=2)
    found = cores.topology(range(8), tmp_path)
    assert [core.cpus for core in found] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert cores.plan(found) == Plan((0, 4), (1, 2, 3, 5, 6, 7))
    assert cores.choose(2, None, found, 0) == (1, 2), "two that do not share a core"
    assert cores.topology([4, 1, 5], tmp_path) == (Core(0, (1, 5)), Core(0, (4,))), "a cpuset may leave us one thread of a core"


def test_two_cores_of_two_threads_are_a_small_machine(tmp_path: Path) -> None:
    machine(tmp_path, nodes=1, each=2, threads=2)
    assert cores.plan(cores.topology(range(4), tmp_path)) == Plan()


def test_a_system_that_says_nothing_of_its_cores_has_one_thread_each(tmp_path: Path) -> None:
    assert cores.topology(range(2), tmp_path) == (Core(0, (0,)), Core(0, (1,)))
    (tmp_path / "cpu/cpu0/topology").mkdir(parents=True)
    (tmp_path / "cpu/cpu0/topology/thread_siblings_list").write_text("nonsense\n")
    assert cores.topology(range(2), tmp_path) == (Core(0, (0,)), Core(0, (1,)))


def test_lanes_are_as_large_as_one_another_and_stay_on_a_node(tmp_path: Path) -> None:
    machine(tmp_path, nodes=2, each=4, threads=2)
    found = cores.topology(range(16), tmp_path)
    assert cores.lanes(found, 0, 2) == ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))
    kept = cores.lanes(found, None, 3)
    assert [len(lane) for lane in kept] == [4, 4, 6] and not {0, 8} & {cpu for lane in kept for cpu in lane}
    assert len({cpu for lane in kept for cpu in lane}) == 14, "no CPU is in two lanes, and none is left over"
    assert len(cores.lanes(found, None, 99)) == 7, "a lane has a core at least"
    assert cores.lanes(singles([3]), None, 0) == ((3,),)


def test_what_this_host_cannot_do_is_said() -> None:
    can_mark = os.geteuid() == 0 or resource.getrlimit(10)[1] == resource.RLIM_INFINITY
    assert any("no inherited mark" in text for text in cgroups.shortfalls()) != can_mark


def test_the_system_clock_is_the_systems() -> None:
    clock: Clock = SystemClock()
    before = time.time(), time.monotonic()
    now = clock.wall(), clock.monotonic()
    assert before <= now <= (time.time(), time.monotonic())
