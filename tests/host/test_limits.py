"""Limits on real agents: by the runner's rlimits and inside a user namespace, and the reasons that follow. Battery: P13, P14."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from supervisor.host import cgroups
from supervisor.kernel.limits import By, Limits, Used, held, passed
from supervisor.kernel.limits import rlimits as core_rlimits
from supervisor.kernel.records import Exit
from supervisor.kernel.settings import Settings
from tests.agents.runner.kit import Lab
from tests.host.cgroup_kit import AS_NOBODY, python

NO_GROUPS = cgroups.means(cgroups.Support(), namespace=False)


def ended(lab: Lab, asked: Limits, code: str) -> Exit:
    """How a program ends that is held to `asked` as by a host without control groups."""
    attempt = lab.attempt(*python(code), rlimits=core_rlimits(Settings(), held(asked, NO_GROUPS)))
    attempt.run()
    return attempt.record()


def test_p13_memory_without_groups_is_held_for_each_process(lab: Lab) -> None:
    asked = Limits(memory_max=256 * 2**20)
    eater = "try: bytearray(400_000_000)\nexcept MemoryError: raise SystemExit(3)"
    assert ended(lab, asked, eater).code == 3
    assert ended(lab, asked, "bytearray(50_000_000)").code == 0
    assert ended(lab, Limits(), eater).code == 0


def test_processor_time_ends_who_used_it_up_and_the_reason_says_so(lab: Lab) -> None:
    asked = Limits(cpu_max=1.0)
    record = ended(lab, asked, "while True: pass")
    assert record.signal == signal.SIGXCPU
    said = passed(asked, Used(cpu_s=record.cpu_s), record.signal, record.code)
    assert said == "cpu_max: it used 1s of processor time, it may have 1s"


def test_who_goes_on_after_its_time_is_killed(lab: Lab) -> None:
    record = ended(lab, Limits(cpu_max=1.0), "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass")
    assert record.signal == signal.SIGKILL
    assert passed(Limits(cpu_max=1.0), Used(cpu_s=record.cpu_s), record.signal).startswith("cpu_max: it used ")


def test_a_file_that_grows_too_large_ends_its_writer_and_the_reason_says_so(lab: Lab) -> None:
    asked = Limits(file_max=2**20)
    code = "import signal, os; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nwith open('grows', 'wb') as file: file.write(bytes(2**21))"
    record = ended(lab, asked, code)
    assert (lab.folder / "grows").stat().st_size == 2**20
    assert passed(asked, Used(), record.signal, record.code) == "file_max: a file grew past 1.0 MiB"


def test_open_files_are_held(lab: Lab) -> None:
    code = "import os\ntry:\n    while True: os.dup(0)\nexcept OSError: raise SystemExit(7)"
    assert ended(lab, Limits(open_files=32), code).code == 7


# The number of processes inside a user namespace ----------------------------------------------------------------------------------------

COUNTS = """
import ctypes, os, resource, signal, sys
assert not ctypes.CDLL(None).unshare(0x10000000)
resource.setrlimit(resource.RLIMIT_NPROC, (20, 20))
children = []
try:
    while len(children) < 100:
        children.append(os.fork())
        if not children[-1]:
            signal.alarm(60)
            signal.pause()
except BlockingIOError:
    print(len(children) + 1)
finally:
    for child in children:
        os.kill(child, signal.SIGKILL)
"""


@contextlib.contextmanager
def others(number: int) -> Iterator[None]:
    """As many further processes of the ordinary user, outside of any namespace."""
    prefix = AS_NOBODY if os.geteuid() == 0 else []
    every = [subprocess.Popen([*prefix, "sleep", "60"]) for _ in range(number)]
    try:
        yield
    finally:
        for one in every:
            one.kill()
            one.wait()


def test_in_a_user_namespace_only_its_own_processes_count_and_more_are_refused() -> None:
    """Whatever else the user runs: 40 processes outside leave room for 20 inside."""
    prefix = AS_NOBODY if os.geteuid() == 0 else []
    program = [*prefix, sys.executable, "-I", "-S", "-c"]
    probed = subprocess.run([*program, cgroups._TRY_NAMESPACE], capture_output=True, text=True, check=False)
    if probed.stdout != "held\n":
        pytest.skip(f"user namespaces hold no processes here: {probed.stderr.strip() or probed.stdout.strip()}")
    with others(40):
        done = subprocess.run([*program, COUNTS], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.returncode) == ("20\n", 0), done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="is about root")
def test_root_is_never_held_so_and_the_probe_knows() -> None:
    assert not cgroups.namespace_holds_processes()


def test_means_are_those_of_the_host() -> None:
    groups = cgroups.Support(memory=True, processes=True, cpu=True)
    found = cgroups.means(groups, namespace=True)
    assert (found.group_memory, found.group_processes, found.group_cpu, found.namespace) == (True, True, True, False)
    assert {name for name in found.rlimits if not hasattr(resource, f"RLIMIT_{name}")} == set()
    alone = cgroups.means(cgroups.Support(), namespace=True)
    (processes,) = held(Limits(processes_max=5), alone)
    assert processes.by is (By.NAMESPACE if cgroups.namespace_holds_processes() else By.NOBODY)
    assert held(Limits(processes_max=5), NO_GROUPS)[0].by is By.NOBODY
