"""What agents start in and what confines them: on this machine, and on machines that lack one thing or another."""

from __future__ import annotations

import os

import pytest

from supervisor.doctor import machine as checks
from supervisor.doctor.examine import State, examine
from supervisor.kernel.limits import Means
from supervisor.sandbox import executors
from supervisor.sandbox.executors import Executor, Support
from supervisor.sandbox.policy import Tier
from tests.doctor.conftest import Machine
from worktrees import backends
from worktrees.backends import Verdict

BOTH = frozenset({Tier.FILES, Tier.OFFLINE})
NOTHING: frozenset[Tier] = frozenset()
EACH = frozenset({"AS", "CPU", "FSIZE", "NOFILE", "NPROC"})


def support(namespaces: frozenset[Tier], bubblewrap: frozenset[Tier], *, terminal: bool = True) -> Support:
    works = {Executor.NAMESPACES: namespaces, Executor.BUBBLEWRAP: bubblewrap}
    why = {(each, tier): f"{each} said no" for each, tiers in works.items() for tier in BOTH - tiers}
    return Support(works, why, terminal)


def test_the_file_backends_of_this_machine(machine: Machine) -> None:
    place = machine.place()
    place.home.root.mkdir()
    found = checks.file_backends(place)
    best = backends.best(place.home.root)
    assert found.state is (State.WARN if best.caveat else State.OK) and "plain" in found.seen.partition(";")[0]
    assert found.seen.startswith(best.name)
    assert list(place.home.root.iterdir()) == [], "a look leaves nothing"


def test_backend_that_cannot_rename_a_directory_is_named_loudly() -> None:
    found = checks.judged_backends(Verdict(one, None if one.name in ("overlay-userns", "plain") else "no") for one in backends.BACKENDS)
    assert found.state is State.WARN and "EXDEV" in found.why


def test_every_file_backend_is_named_with_its_reason() -> None:
    first, *others = backends.BACKENDS
    found = checks.judged_backends([Verdict(first, "no such call"), *(Verdict(one, None) for one in others)])
    assert found.state is State.OK
    assert found.seen == f"{', then '.join(one.name for one in others)}; not {first.name}: no such call"
    found = checks.judged_backends(Verdict(one, "read-only") for one in backends.BACKENDS)
    assert found.state is State.FAIL and found.seen.count("read-only") == len(backends.BACKENDS)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_directory_that_cannot_be_written_is_no_verdict(machine: Machine) -> None:
    place = machine.place()
    place.home.root.mkdir(mode=0o500)
    found = examine(place, {"environments": {"file backends": checks.file_backends}})
    assert found[0].finding.state is State.UNKNOWN and "cannot write" in found[0].finding.seen


def test_the_sandbox_of_this_machine(machine: Machine) -> None:
    found, tiers = checks.sandbox(machine.place()), executors.probe().tiers
    assert {tier for tier in BOTH if f"tier {int(tier)}: " in found.seen} == tiers - {Tier.NONE}
    assert not (found.state is State.OK and tiers != {Tier.NONE, *BOTH})


def test_two_ways_to_two_tiers(machine: Machine) -> None:
    found = checks.judged_sandbox(support(BOTH, BOTH), machine.place())
    assert (found.state, found.seen) == (State.OK, "tier 1: bubblewrap, namespaces; tier 2: bubblewrap, namespaces")
    found = checks.judged_sandbox(support(BOTH, NOTHING), machine.place())
    assert (found.state, found.seen) == (State.OK, "tier 1: namespaces; tier 2: namespaces; not bubblewrap: bubblewrap said no")


def test_a_machine_without_a_sandbox_is_warned_of(machine: Machine) -> None:
    found = checks.judged_sandbox(support(NOTHING, NOTHING), machine.place())
    assert found.state is State.WARN and "all that you can" in found.why
    assert "namespaces said no" in found.seen and "install bubblewrap" in found.fix
    machine.program("bwrap", "")
    assert checks.judged_sandbox(support(NOTHING, NOTHING), machine.place()).fix == "docs/environments.md"
    elsewhere = checks.judged_sandbox(Support(dict.fromkeys(Executor, NOTHING), {}, terminal=False), machine.place())
    assert elsewhere.state is State.WARN and elsewhere.seen.startswith("none")


def test_a_machine_with_half_a_sandbox_is_warned_of(machine: Machine) -> None:
    found = checks.judged_sandbox(support(frozenset({Tier.FILES}), NOTHING), machine.place())
    assert found.state is State.WARN and "network = false" in found.why
    found = checks.judged_sandbox(support(BOTH, BOTH, terminal=False), machine.place())
    assert found.state is State.WARN and "legacy_tiocsti" in found.fix


@pytest.mark.parametrize(
    ("name", "forbids", "fix"),
    [
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=16384"),
    ],
)
def test_the_switch_that_forbids_namespaces_is_named(machine: Machine, name: str, forbids: str, fix: str) -> None:
    machine.file(f"proc/sys/{name}", f"{forbids}\n")
    assert fix in checks.judged_sandbox(support(NOTHING, NOTHING), machine.place()).fix
    machine.file(f"proc/sys/{name}", "7\n")
    assert fix not in checks.judged_sandbox(support(NOTHING, NOTHING), machine.place()).fix


def test_the_limits_of_this_machine(machine: Machine) -> None:
    found = checks.agents_limits(machine.place())
    assert all(found.seen.count(name) == 1 for name in ("memory_max", "processes_max", "cpu_max"))


def test_limits_that_more_processes_pass_are_warned_of(machine: Machine) -> None:
    groups = Means(group_memory=True, group_processes=True, group_cpu=True, rlimits=EACH)
    found = checks.judged_limits(groups, (), machine.place())
    assert (found.state, found.seen) == (State.OK, "memory_max, processes_max, cpu_max for all its processes together")
    found = checks.judged_limits(Means(rlimits=EACH), ("no pids controller",), machine.place())
    assert found.state is State.WARN and found.why == "no pids controller"
    assert found.seen == "memory_max, cpu_max for each of its processes alone; processes_max held by nothing"
    machine.systemd("/user.slice")
    assert "Delegate=yes" in checks.judged_limits(Means(rlimits=EACH), (), machine.place()).fix


def test_what_is_not_there_yet_is_looked_at_where_it_will_be(machine: Machine) -> None:
    found, there = checks.file_backends(machine.place()), checks.judged_backends(backends.survey(machine.root))
    assert (found.state, found.seen) == (there.state, there.seen) and found.state is not State.FAIL
    assert not machine.place().home.root.exists()
