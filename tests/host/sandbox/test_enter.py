"""A process that enters by itself: its memory stays, its handles stay, and who waits outside sees the ordinary end of a child."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.sandbox.executors import Executor, words
from supervisor.sandbox.policy import Tier
from tests.host.sandbox.kit import PYTHON, TIERS, House, need, without_private_tmp

ROOT = Path(__file__).resolve().parents[3]
WARM = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from supervisor.sandbox import namespaces
found, _ = namespaces.parse(json.loads(sys.argv[2]))
warm = {'answer': 42}
told, tell = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(told)
    try:
        namespaces.enter(found)
    except namespaces.SandboxError as error:
        os.write(tell, f'refused: {error}'.encode())
        os._exit(3)
    state = sys.argv[3]
    handles = {int(name) for name in os.listdir('/proc/self/fd')} - {tell}
    handles = sorted(handle for handle in handles if os.path.exists(f'/proc/self/fd/{handle}'))
    os.write(tell, json.dumps([warm['answer'], os.getpid(), os.getppid(), os.listdir(state), os.getcwd(), os.getpgrp(), handles]).encode())
    os.close(tell)
    os._exit(9)
os.close(tell)
said = b''.join(iter(lambda: os.read(told, 4096), b'')).decode()
print(said)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def warm(house: House, orders: tuple[str, ...]) -> list[str]:
    """What a warm process's fork says from inside, and how it ends."""
    argv = [sys.executable, "-I", "-S", "-c", WARM, str(ROOT), json.dumps(orders), str(house.home.root)]
    done = subprocess.run(argv, cwd=house.worktree, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("tier", TIERS)
def test_memory_and_handles_come_along(crew: House, tier: Tier) -> None:
    need(Executor.NAMESPACES, tier)
    said, status = warm(crew, words(crew.policy(tier)))
    answer, pid, parent, state, cwd, group, handles = json.loads(said)
    assert (answer, pid, parent, group, status) == (42, 2, 1, 2, "9")
    assert handles == [0, 1, 2], "and the one that it speaks through"
    assert sorted(state) == ["projects", "run", "runs", "worktrees"]
    assert cwd == os.path.realpath(crew.worktree)


@pytest.mark.parametrize("tier", TIERS)
def test_what_cannot_be_built_is_told_in_the_process_that_asked(crew: House, tier: Tier) -> None:
    need(Executor.NAMESPACES, tier)
    said, status = warm(crew, (*words(crew.policy(tier)), "--rw", "/no/such", "/no/such"))
    assert said.startswith("refused: /no/such")
    assert status == "3"


def test_a_directory_that_is_out_of_sight_is_refused(crew: House) -> None:
    need(Executor.NAMESPACES, Tier.FILES)
    orders = words(crew.policy(Tier.FILES))
    crew.worktree = crew.home.keys
    said, status = warm(crew, orders)
    assert said.startswith("refused:")
    assert status == "3"


VANISHES = """#!/bin/sh
# Bubblewrap, before which another program takes a socket away, and shows another one.
if mv {state}/later {later}; then rm -r {gone}; fi 2>/dev/null
exec {bwrap} "$@"
"""


@pytest.mark.parametrize("tier", TIERS, ids=str)
def test_a_socket_that_vanishes_while_bubblewrap_starts_costs_no_attempt(
    crew: House, tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each start looks anew: a socket that was not there before the first one is out of reach after the second."""
    need(Executor.BUBBLEWRAP, tier)
    gone, later = crew.elsewhere / "gone", crew.elsewhere / "later"
    for directory in (gone, later):
        directory.mkdir()
        crew.listen(socket.AF_UNIX, str(directory / "s"), b"I am a door out")
    policy = crew.policy(tier)
    assert {str(gone.resolve() / "s"), str(later.resolve() / "s")} <= set(policy.masked)
    later.rename(tmp_path / "later")
    fake = tmp_path / "bwrap"
    fake.write_text(VANISHES.format(state=tmp_path, later=later, gone=gone, bwrap=shutil.which("bwrap")))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    prefix = crew.prefix(Executor.BUBBLEWRAP, without_private_tmp(policy))
    ask = "import os, socket, sys; s = socket.socket(socket.AF_UNIX); print(os.path.exists(sys.argv[1])); s.connect(sys.argv[2])"
    done = crew.run(prefix, *PYTHON, "-c", ask, str(gone), str(later / "s"))
    assert done.stdout == "False\n", done.stderr
    assert done.returncode == 1 and "ConnectionRefusedError" in done.stderr, done.stderr


@pytest.mark.parametrize("tier", TIERS, ids=str)
def test_a_socket_that_vanishes_while_our_namespaces_are_built_costs_no_attempt(crew: House, tier: Tier) -> None:
    """What is in /proc of a process outside is there at the first look, and not when mounts are made."""
    need(Executor.NAMESPACES, tier)
    policy = replace(crew.policy(tier), masked=(f"/proc/{os.getpid()}/exe",))
    assert crew.run(crew.prefix(Executor.NAMESPACES, policy), "true").returncode == 0
