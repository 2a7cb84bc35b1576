"""What the processes of agents take, with real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from supervisor.host import processes, procfs
from supervisor.host.usage import Agent, GpuUsage, Reader, parse
from supervisor.kernel.account import Gpu, Tree
from supervisor.kernel.names import Identity
from tests.agents.runner.kit import until

KEY = ("run/a", 1)
TREE = """
import os, signal, sys, time
held = bytearray(60 << 20)  # before the fork: two processes share it
child = os.fork()
if not child:
    while time.process_time() < 0.2: pass
os.setpgid(0, 0)
open(sys.argv[1] + (".parent" if child else ".child"), "w").close()
signal.pause()
"""


@contextmanager
def tree(tmp_path: Path) -> Iterator[Identity]:
    """A parent with 60 MiB and a child that shares them and was busy, both at rest; who the parent is."""
    program = tmp_path / "tree.py"
    program.write_text(TREE)
    ready = tmp_path / "ready"
    who = None
    process = subprocess.Popen([sys.executable, str(program), str(ready)])
    try:
        until(lambda: all(Path(f"{ready}.{name}").exists() for name in ("parent", "child")), "both to be at rest")
        who = processes.identity(process.pid)
        assert who is not None
        yield who
    finally:
        for child in processes.tree(who) if who is not None else ():
            os.kill(child.pid, 9)
        process.kill()
        process.wait()


def one(reader: Reader, who: Identity, program: str = "") -> Tree:
    return reader.read({KEY: Agent(who, program)})[KEY]


def test_shared_memory_counts_once_and_all_processor_time_counts(tmp_path: Path) -> None:
    with tree(tmp_path) as who:
        seen = one(Reader(), who)
    assert (seen.processes, seen.gpu) == (2, None)
    assert 60 << 20 <= seen.memory < 100 << 20, "not twice 60 MiB"
    assert seen.cpu_s >= 0.2
    assert seen.agent_cpu_s < seen.cpu_s - 0.15, "what it started was busy"


def test_a_child_that_is_the_agents_own_program_is_no_tool(tmp_path: Path) -> None:
    with tree(tmp_path) as who:
        seen = one(Reader(), who, Path(sys.executable).name)
    assert seen.agent_cpu_s == seen.cpu_s


def test_a_look_that_may_not_take_longer_counts_rather_too_much(tmp_path: Path) -> None:
    with tree(tmp_path) as who:
        dear = one(Reader(), who)
        cheap = one(Reader(budget_s=0.0), who)
    assert cheap.memory >= 120 << 20 and dear.memory < 100 << 20, "without the kernel's word on it both have the 60 MiB"


def test_what_the_kernel_said_once_is_not_asked_again_while_little_changes(tmp_path: Path) -> None:
    spent = iter([0.0, 0.0, 0.0, *[99.0] * 100])  # only the first look has time to ask
    with tree(tmp_path) as who:
        reader = Reader(budget_s=1.0, clock=lambda: next(spent))
        first, second = one(reader, who), one(reader, who)
    assert abs(first.memory - second.memory) < 2**20


def test_who_is_gone_and_who_has_its_number_now_are_left_out(tmp_path: Path) -> None:
    with tree(tmp_path) as who:
        other = Identity(who.pid, who.ticks + 1, who.boot_id)
        assert Reader().read({KEY: Agent(other)}) == {}
    assert Reader().read({KEY: Agent(who)}) == {}


def test_all_agents_are_found_in_one_pass(tmp_path: Path) -> None:
    passes = []

    def table() -> dict[int, procfs.Seen]:
        passes.append(1)
        return procfs.table()

    with tree(tmp_path) as who:
        agents = {("run/a", number): Agent(who) for number in range(20)}
        assert len(Reader(table=table).read(agents)) == 20
    assert passes == [1]


# Graphics processors ----------------------------------------------------------------------------------------------------------------------

PMON = """\
# gpu         pid   type     sm    mem    enc    dec     fb    command
# Idx           #    C/G      %      %      %      %     MB    name
    0       1234     C     45     20      -      -   1024    python
    0       4321     C      -      -      -      -    512    python
    1       1234     C     50      2      -      -      -    python
    2          -     -      -      -      -      -      -    -
"""


def test_what_the_tool_prints_is_read() -> None:
    assert parse(PMON) == {1234: Gpu(1024 << 20, 0.95), 4321: Gpu(512 << 20, None)}
    assert parse("") == parse("no devices were found\n") == {}


def tool(tmp_path: Path, text: str) -> str:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


def test_an_agents_part_of_the_devices_is_that_of_its_processes(tmp_path: Path) -> None:
    with tree(tmp_path) as who:
        (child,) = processes.tree(who)
        table = PMON.replace("4321", str(child.pid))
        seen = one(Reader(gpus=GpuUsage(tool(tmp_path, f"cat <<'END'\n{table}END"))), who)
    assert seen.gpu == Gpu(512 << 20, None), "the other process is somebody else's"


def test_a_tool_that_fails_is_asked_once(tmp_path: Path) -> None:
    gpus = GpuUsage(tool(tmp_path, f"echo asked >>{tmp_path}/log; exit 9"))
    assert (gpus.read(), gpus.read()) == (None, None)
    assert (tmp_path / "log").read_text() == "asked\n"
    assert GpuUsage("/nowhere/nvidia-smi").read() is None
