"""Control groups with real processes: counted, held, frozen and killed as a whole. Battery: P13 (out of memory), P14 (fork bomb)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.host import cgroups
from supervisor.host.cgroups import Group, Support
from supervisor.kernel.errors import ToolFailed
from tests.host.cgroup_kit import AS_NOBODY, JOIN, group_of, python, started
from tests.host.cgroup_kit import support as support
from tests.support import wait_until

ROOT = Path(__file__).resolve().parents[2]
FORKER = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("up", flush=True)
while True:
    try:
        if os.fork() == 0:
            os.setsid()
            signal.alarm(60)
            if os.fork() == 0:
                continue
            signal.pause()
    except OSError:
        pass
"""
"""A fork bomb; whatever a broken test leaves of it ends after a minute."""
EATER = 'print("up", flush=True); input(); data = bytearray(300_000_000); print("ate", flush=True); input()'


@pytest.fixture
def group(support: Support) -> Iterator[Group]:
    with group_of(support) as made:
        yield made


@pytest.fixture
def version_1() -> Support:
    """Hierarchies of version 1 alone, as on a machine that mounts no other."""
    own = dict(cgroups._own())
    found = {words: cgroups._parents(mount, root, own.get(words)) for words, mount, root in cgroups._mounts() if words}
    parents = tuple(places[0] for places in found.values() if places and os.access(places[0], os.W_OK))
    if frozenset().union(*found) < set(cgroups._V1) or len(parents) < len(found):
        pytest.skip("this machine has no hierarchies of version 1 that we may write to")
    return Support(parents, True, True, True, True)


def stopped(pids: set[int]) -> bool:
    """Whether none of them gets any processor time."""
    return all(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "RZ" for pid in pids)


def test_a_probe_says_what_works_or_why_it_does_not_and_leaves_nothing() -> None:
    before = trials()
    found = cgroups.probe()
    works = {"memory": found.memory, "processes": found.processes, "cpu": found.cpu, "freeze": found.freeze, "shares": bool(found.shares)}
    assert all(works.values()) or found.missing, works
    assert bool(found.parents) or not any(works.values())
    wait_until(lambda: trials() <= before, "nothing is left of it (another worker's own probe takes milliseconds)")


def trials() -> set[Path]:
    return {path for word in ("trial", "probe") for path in Path("/sys/fs/cgroup").glob(f"**/nightcrew-{word}-*")}


def test_whatever_a_member_starts_is_in_the_group_and_dies_with_it(group: Group) -> None:
    family = "for how in '' setsid 'nohup setsid'; do $how sleep 60 & done; (setsid sleep 60 &); echo up; wait"
    with started(group, "/bin/sh", "-c", family) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        wait_until(lambda: len(group.pids()) == 5, "all five are in")
        assert process.pid in group.pids()
        assert group.kill()
        assert process.wait(30) == -signal.SIGKILL
        assert group.pids() == set()


def test_a_neighbour_is_untouched(support: Support, group: Group) -> None:
    with group_of(support) as other, started(other, "sleep", "60") as bystander, started(group, "sleep", "60") as process:
        wait_until(lambda: process.pid in group.pids() and bystander.pid in other.pids(), "both are in")
        assert group.freeze() and not other.frozen()
        assert group.kill()
        assert process.wait(30) == -signal.SIGKILL
        assert bystander.poll() is None


def test_p13_memory_only_the_group_that_had_too_much_is_hit_and_the_reason_is_counted(support: Support, group: Group) -> None:
    if not support.memory:
        pytest.skip("no memory controller")
    group.limit(memory_max=64 * 2**20)
    with group_of(support) as other:
        other.limit(memory_max=64 * 2**20)
        with started(group, *python(EATER)) as eater, started(other, *python(EATER)) as modest:
            assert eater.stdout is not None and modest.stdout is not None
            assert (eater.stdout.readline(), modest.stdout.readline()) == ("up\n", "up\n")
            assert (group.oom_kills(), other.oom_kills()) == (0, 0)
            said, _ = eater.communicate("\n", timeout=60)
            assert (eater.returncode, said) == (-signal.SIGKILL, "")
            assert group.oom_kills() == 1
            assert (modest.poll(), other.oom_kills()) == (None, 0)


def test_without_the_limit_the_same_program_eats_its_fill(group: Group) -> None:
    with started(group, *python(EATER)) as eater:
        said, _ = eater.communicate("\n\n", timeout=60)
        assert (eater.returncode, said, group.oom_kills()) == (0, "up\nate\n", 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="the bomb runs as another user than the group's owner")
def test_p14_a_fork_bomb_is_held_counted_and_ended_and_the_host_goes_on(support: Support, group: Group) -> None:
    if not support.processes or shutil.which("setpriv") is None:
        pytest.skip("no pids controller, or no setpriv")
    if subprocess.run([*AS_NOBODY, *python("import signal")], capture_output=True, check=False).returncode:
        pytest.skip("that user cannot run this Python")
    group.limit(processes_max=50)
    with started(group, *AS_NOBODY, *python(FORKER)) as bomb:
        assert bomb.stdout is not None and bomb.stdout.readline() == "up\n"
        wait_until(lambda: group.refused_forks() > 100, "it wants more than it may have")
        assert 1 < len(group.pids()) <= 50
        assert subprocess.run(["true"], check=True).returncode == 0, "we can still start what we want"
        assert group.kill(), "and end it"
        assert group.pids() == set()


def test_a_fork_bomb_is_ended_where_there_is_only_version_1(version_1: Support) -> None:
    with group_of(version_1) as group:
        group.limit(processes_max=300)
        with started(group, *python(FORKER)) as bomb:
            assert bomb.stdout is not None and bomb.stdout.readline() == "up\n"
            wait_until(lambda: group.refused_forks() > 100, "it wants more than it may have")
            assert group.freeze() and group.frozen()
            assert group.cpu_s() > 0
            assert group.kill()
            assert group.pids() == set()


@pytest.mark.parametrize("which", ["support", "version_1"])
def test_a_tree_that_forks_stands_still_while_frozen_and_goes_on_after(which: str, request: pytest.FixtureRequest) -> None:
    found: Support = request.getfixturevalue(which)
    with group_of(found) as group:
        group.limit(processes_max=50)
        with started(group, *python(FORKER)) as bomb:
            assert bomb.stdout is not None and bomb.stdout.readline() == "up\n"
            wait_until(lambda: len(group.pids()) > 5, "it forks")
            assert group.freeze() and group.frozen()
            seen, used = group.pids(), group.cpu_s()
            assert group.freeze(), "twice is once"
            assert stopped(seen)
            assert (group.pids(), group.cpu_s()) == (seen, used)
            group.thaw()
            assert not group.frozen()
            wait_until(lambda: group.cpu_s() > used, "it goes on")
            group.thaw()


@pytest.mark.parametrize("which", ["support", "version_1"])
def test_what_is_frozen_can_be_killed(which: str, request: pytest.FixtureRequest) -> None:
    with group_of(request.getfixturevalue(which)) as group, started(group, "sleep", "60") as process:
        wait_until(lambda: process.pid in group.pids(), "it is in")
        assert group.freeze()
        assert group.kill()
        assert process.wait(30) == -signal.SIGKILL


def test_groups_that_an_agent_made_below_its_own_are_killed_and_removed_with_it(group: Group) -> None:
    with started(group, "sleep", "60") as process:
        wait_until(lambda: process.pid in group.pids(), "it is in")
        for place in group.places:
            (place / "deep" / "er").mkdir(parents=True)
        (group.places[0] / "deep" / "er" / "cgroup.procs").write_text(str(process.pid))
        assert process.pid in group.pids()
        assert group.kill()
        assert process.wait(30) == -signal.SIGKILL


def test_a_group_with_somebody_in_it_is_not_removed(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "_WAIT_S", 0.1)
    with started(group, "sleep", "60") as process:
        wait_until(lambda: process.pid in group.pids(), "it is in")
        assert not group.remove()
        assert process.poll() is None
        monkeypatch.undo()
        group.kill()
        process.wait(30)
    assert group.remove() and group.remove()
    assert (group.pids(), group.oom_kills(), group.refused_forks(), group.cpu_s(), group.frozen()) == (set(), 0, 0, 0.0, False)


def test_a_later_supervisor_finds_what_an_earlier_one_left(support: Support) -> None:
    home = os.urandom(8).hex()
    with group_of(support, f"{home}:r/a:1") as one, group_of(support, f"{home}:r/a:2") as two, group_of(support):
        assert {left.places for left in cgroups.left(support, home)} == {one.places, two.places}
        assert cgroups.create(support, f"{home}:r/a:1") == one, "making it again is finding it"
        assert Group.of(one.join_files) == one


def test_a_limit_that_cannot_be_set_is_never_left_out(group: Group, tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match=r"no memory\.max or memory\.limit_in_bytes here"):
        Group((tmp_path,)).limit(memory_max=2**30)
    with pytest.raises(ToolFailed, match=r"no pids\.max here"):
        Group((tmp_path,)).limit(processes_max=5)
    with pytest.raises(ToolFailed, match=r"no freezer\.state here"):
        Group((tmp_path,)).freeze()
    with pytest.raises(ToolFailed, match="cannot hold a group to its limits"):
        group.limit(processes_max=-5)


def test_no_group_where_none_may_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ToolFailed, match="cannot make a control group"):
        cgroups.create(Support((tmp_path, tmp_path / "file")), "0123456789abcdef:r/a:1")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "file"], "what was made of it is gone"


@pytest.mark.parametrize("tag", ["../../x:r/a:1", "a/b/../../..:x:1", "\udcff:x:1", "", "0123456789abcdef:r/a:1"])
def test_a_tag_cannot_lead_anywhere_else(tag: str) -> None:
    found = cgroups.name(tag)
    assert found.startswith("nightcrew-") and found.replace("-", "").isalnum() and found.isascii()


DELEGATED = """
import os, subprocess, sys, time
from supervisor.host import cgroups

found = cgroups.probe()
assert found.parents and found.freeze and found.cpu, found
group = cgroups.create(found, "0123456789abcdef:r/a:1")
join = 'for file in "$@"; do echo 0 >"$file" || exit; done; exec sleep 60'
child = subprocess.Popen(["/bin/sh", "-c", join, "sh", *group.join_files])
while child.pid not in group.pids():
    assert child.poll() is None
    time.sleep(0.005)
assert group.freeze() and group.frozen()
assert group.kill() and child.wait() == -9
assert group.remove()
print(os.getuid(), "held", *found.parents)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to delegate a group to an ordinary user")
def test_an_ordinary_user_has_groups_where_one_was_delegated() -> None:
    """As systemd does for a user's own services; here without controllers, which this machine keeps in version 1."""
    top = next(
        (place for place in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")) if (place / "cgroup.controllers").exists()), None
    )
    if top is None or shutil.which("setpriv") is None:
        pytest.skip("no hierarchy of version 2, or no setpriv")
    delegated = Group((top / f"nightcrew-test-{os.urandom(6).hex()}",))
    delegated.places[0].mkdir()
    try:
        for path in (delegated.places[0], *delegated.places[0].iterdir()):
            os.chown(path, 65534, 65534)
        argv = ["/bin/sh", "-c", JOIN, "sh", *delegated.join_files, "--", "tools/as-user.sh", ".venv/bin/python", "-c", DELEGATED]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
        if "skipped, not run" in done.stderr:
            pytest.skip(done.stderr.strip())
        assert (done.returncode, done.stdout) == (0, f"65534 held {delegated.places[0]}\n"), done.stderr
    finally:
        assert delegated.kill() and delegated.remove()


def test_the_agents_of_a_class_share_one_weight(support: Support) -> None:
    word = f"test-{os.urandom(6).hex()}"
    group = cgroups.of_class(support, word, 5)
    if group is None:
        assert not support.shares and any("share of the processor" in why for why in support.missing)
        return
    try:
        weights = [(place / name).read_text() for place in group.places for name in ("cpu.weight", "cpu.shares") if (place / name).exists()]
        assert [int(weight) for weight in weights] in ([5], [51])
        assert cgroups.of_class(support, word, 5) == group, "making it again is finding it"
        with started(group, *python("import time; print(flush=True); time.sleep(60)")) as process:
            assert process.stdout is not None and process.stdout.readline() and process.pid in group.pids()
        assert group.kill()
    finally:
        assert group.remove()
