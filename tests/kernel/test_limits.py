"""By what limits are held, the rlimits that follow, and what is said when an agent met one."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel import limits
from supervisor.kernel.limits import By, Held, Limits, Means, Used
from supervisor.kernel.settings import Settings
from supervisor.kernel.snapshots import SnapshotSpec
from supervisor.kernel.spec import TaskSpec

ALL = frozenset({"AS", "CPU", "FSIZE", "NOFILE", "NPROC"})
FULL = Limits(memory_max=2**30, processes_max=50, cpu_max=60.5, disk_max=2**31, file_max=2**20, open_files=64)
means = st.builds(Means, st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.frozensets(st.sampled_from(sorted(ALL))))
some = st.builds(Limits, *(st.integers(0, 3) for _ in fields(Limits)))


def by(found: tuple[Held, ...]) -> dict[str, By]:
    return {one.name: one.by for one in found}


def test_the_best_that_there_is_holds_each() -> None:
    assert by(limits.held(FULL, Means(True, True, True, True, ALL))) == {
        "memory_max": By.GROUP, "processes_max": By.GROUP, "cpu_max": By.GROUP,
        "disk_max": By.WATCHED, "file_max": By.EACH, "open_files": By.EACH,
    }  # fmt: skip
    assert by(limits.held(FULL, Means(namespace=True, rlimits=ALL))) == {
        "memory_max": By.EACH, "processes_max": By.NAMESPACE, "cpu_max": By.EACH,
        "disk_max": By.WATCHED, "file_max": By.EACH, "open_files": By.EACH,
    }  # fmt: skip
    assert by(limits.held(FULL, Means())) == {
        "memory_max": By.NOBODY, "processes_max": By.NOBODY, "cpu_max": By.NOBODY,
        "disk_max": By.WATCHED, "file_max": By.NOBODY, "open_files": By.NOBODY,
    }  # fmt: skip


@given(some, means)
def test_what_is_asked_for_is_answered_and_nothing_else(asked: Limits, found: Means) -> None:
    answers = limits.held(asked, found)
    assert {one.name: one.value for one in answers} == {
        item.name: getattr(asked, item.name) for item in fields(asked) if getattr(asked, item.name)
    }
    assert all(one.name in one.words for one in answers)
    assert all(("nothing holds" in one.words) == (one.by is By.NOBODY) for one in answers)


@given(some, means, means)
def test_more_means_never_hold_less(asked: Limits, one: Means, other: Means) -> None:
    both = Means(
        group_memory=one.group_memory or other.group_memory,
        group_processes=one.group_processes or other.group_processes,
        group_cpu=one.group_cpu or other.group_cpu,
        namespace=one.namespace or other.namespace,
        rlimits=one.rlimits | other.rlimits,
    )
    order = list(By)
    less, more = by(limits.held(asked, one)), by(limits.held(asked, both))
    assert all(order.index(more[name]) <= order.index(less[name]) for name in less)


def test_words_say_what_each_process_alone_means() -> None:
    words = {one.name: one.words for one in limits.held(FULL, Means(rlimits=ALL))}
    assert "address space of each process alone" in words["memory_max"]
    assert words["processes_max"] == "nothing holds processes_max here: no pids controller, and no user namespace for the agent"
    assert words["cpu_max"] == "cpu_max holds for each process alone"


def test_the_memory_of_agents_is_looked_at_where_no_group_holds_it() -> None:
    """A program on V8 reserves more than the limits that suit its work: it would not start within such an address space."""
    asked = Limits(memory_max=2**30)
    (found,) = limits.held(asked, Means(rlimits=ALL, looks=True))
    assert (found.by, found.words) == (By.WATCHED, "memory_max holds for all processes together, and is looked at from time to time")
    assert limits.rlimits(Settings(), (found,)) == ()
    assert by(limits.held(asked, Means(group_memory=True, rlimits=ALL, looks=True))) == {"memory_max": By.GROUP}
    assert by(limits.held(Limits(cpu_max=1.0), Means(rlimits=ALL, looks=True))) == {"cpu_max": By.EACH}


def test_rlimits_follow_from_what_holds_each() -> None:
    settings = Settings(memory_max=2**31)
    grouped = limits.held(FULL, Means(True, True, True, True, ALL))
    assert limits.rlimits(settings, grouped) == (("AS", 2**31), ("CPU", 61), ("FSIZE", 2**20), ("NOFILE", 64))
    alone = limits.held(FULL, Means(rlimits=ALL))
    assert limits.rlimits(settings, alone) == (("AS", 2**30), ("CPU", 61), ("FSIZE", 2**20), ("NOFILE", 64))
    assert limits.rlimits(Settings(memory_max=5), alone)[0] == ("AS", 5), "the tighter one"
    assert limits.rlimits(Settings(), ()) == ()


def test_a_task_says_its_own_and_the_settings_the_rest() -> None:
    task = TaskSpec("a", "a", "shell", ("true",), memory_max=1, processes_max=2, cpu_max=3.0, disk_max=4)
    settings = Settings(memory_max=9, file_max=5, open_files=6)
    snapshot = SnapshotSpec("deps", memory_max=7, processes_max=8)
    assert limits.limits_of(settings, task) == limits.limits_of(settings, task, snapshot) == Limits(1, 2, 3.0, 4, 5, 6)
    assert limits.limits_of(settings, TaskSpec("a", "a", "shell", ("true",)), snapshot) == Limits(7, 8, 0.0, 0, 5, 6)


@pytest.mark.parametrize(
    ("used", "end", "said"),
    [
        (Used(), {"code": 1}, ""),
        (Used(oom_kills=1), {"signal": 9}, "out of memory: memory_max is 1.0 GiB, and the kernel killed 1 of its processes"),
        (Used(oom_kills=2), {"code": 1}, "out of memory: memory_max is 1.0 GiB, and the kernel killed 2 of its processes"),
        (Used(oom_kills=1), {"code": 0}, ""),
        (Used(refused_forks=7), {"code": 2}, "processes_max: it may have 50 at once, and 7 more were refused"),
        (Used(refused_forks=7), {"code": 0}, ""),
        (Used(disk=2**31 + 2**30), {}, "disk_max: its files take 3.0 GiB, it may have 2.0 GiB"),
        (Used(disk=2**31), {}, ""),
        (Used(disk=2**40, cpu_s=1e6), {"code": 0}, ""),
        (Used(cpu_s=61.0), {"signal": 15}, "cpu_max: it used 1m01s of processor time, it may have 1m"),
        (Used(cpu_s=1.0), {"signal": limits.SIGXCPU}, "cpu_max: it used 1m of processor time, it may have 1m"),
        (Used(cpu_s=1.0), {"code": 128 + limits.SIGXCPU}, "cpu_max: it used 1m of processor time, it may have 1m"),
        (Used(cpu_s=55.0), {"signal": 9}, ""),
        (Used(cpu_s=55.0), {"signal": 15}, ""),
        (Used(), {"signal": limits.SIGXFSZ}, "file_max: a file grew past 1.0 MiB"),
    ],
)
def test_the_reason_names_the_limit(used: Used, end: dict[str, int], said: str) -> None:
    assert limits.passed(FULL, used, **end) == said


def test_a_limit_that_was_not_set_is_never_the_reason() -> None:
    assert limits.passed(Limits(), Used(cpu_s=1e9, disk=2**60)) == ""
    assert limits.passed(Limits(file_max=1000, disk_max=10), Used(disk=2000)) == "disk_max: its files take 2.0 KiB, it may have 10 B"
