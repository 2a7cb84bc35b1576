"""What an agent finds as it starts: its environment, its limits and handles, with the real runner as a process of its own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents.runner.kit import RUNNER, Lab, seen_by_agent


def python(program: str) -> tuple[str, ...]:
    return sys.executable, "-I", "-S", "-c", program


def test_only_the_allow_list_arrives(lab: Lab) -> None:
    """X16: the parent's environment is poisoned; nothing of it may reach the agent but the pane's TERM."""
    poison = dict.fromkeys(("PYTHONPATH", "GIT_DIR", "BASH_ENV", "TMUX", "AWS_SECRET_ACCESS_KEY", "NIGHTCREW_TAG"), "poison")
    attempt = lab.attempt("/usr/bin/env", "-0", env=(("PATH", "/usr/bin"), ("ODD", "a=b\nc\udcff"), ("TERM", "mine")))
    assert attempt.run(poison | {"TERM": "the-panes"}) == 0
    entries = sorted(attempt.read("stdout.log").rstrip(b"\0").split(b"\0"))
    assert entries == [b"ODD=a=b\nc\xff", b"PATH=/usr/bin", b"TERM=the-panes"]


def test_limits_are_in_place_before_the_agents_code(lab: Lab) -> None:
    core = min(os.sched_getaffinity(0))
    program = """
import os, resource
print(os.nice(0), sorted(os.sched_getaffinity(0)), os.getpgrp() == os.getpid())
print(*(resource.getrlimit(number) for number in (resource.RLIMIT_AS, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, 10)))
"""
    limits = (("AS", 2**31), ("NOFILE", 77))
    attempt = lab.attempt(*python(program), nice=7, cores=(core,), rlimits=limits)
    mark = attempt.spec.mark
    nice = min(os.nice(0) + 7, 19)
    assert seen_by_agent(attempt) == [f"{nice} [{core}] True", f"({2**31}, {2**31}) (77, 77) (0, 0) ({mark}, {mark})"]


SHARE = """
import os
print(os.nice(0), os.sched_getscheduler(0) == os.SCHED_IDLE, *open("/proc/self/autogroup").read().split()[-1:], flush=True)
pid = os.fork()
os.waitpid(pid, 0) if pid else print(os.sched_getscheduler(0) == os.SCHED_IDLE)
"""


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel shares no time between sessions")
def test_its_share_of_the_processor_holds_before_its_code_and_beside_other_sessions(lab: Lab) -> None:
    attempt = lab.attempt(*python(SHARE), nice=19, idle=True, share=("/nowhere/cgroup.procs",))
    attempt.session = True
    attempt.run()
    assert attempt.read("stdout.log") == b"19 True 19\nTrue\n", "a group that is gone keeps no agent from starting"


def niceness_of_session() -> list[str]:
    """Ours; a session that began before the kernel shared time between them has none."""
    return Path("/proc/self/autogroup").read_text().split()[-1:]


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel shares no time between sessions")
def test_a_session_that_is_not_the_runners_own_is_left_as_it_is(lab: Lab) -> None:
    before = niceness_of_session()
    attempt = lab.attempt(*python(SHARE), nice=19, mode="listening")
    attempt.run()
    assert niceness_of_session() == before
    assert attempt.read("stdout.log").decode().splitlines()[0].split()[2:] == before


def test_a_limit_never_loosens_one_that_is_there(lab: Lab) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    attempt = lab.attempt(*python("import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[1])"), rlimits=(("NOFILE", hard + 1),))
    assert seen_by_agent(attempt) == [str(hard)]


def test_no_handle_and_no_signal_disposition_of_the_runner_reaches_the_agent(lab: Lab) -> None:
    spare = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(spare, True)
    try:
        attempt = lab.attempt("sh", "-c", "ls /proc/$$/fd; grep -E 'Sig(Blk|Ign)' /proc/$$/status | cut -f 2")
        runner = subprocess.Popen([*RUNNER, str(attempt.directory)], stdin=subprocess.DEVNULL, close_fds=False)
        attempt.runners.append(runner)
        assert runner.wait(30) == 0
    finally:
        os.close(spare)
    *handles, blocked, ignored = attempt.read("stdout.log").decode().split()
    assert handles == ["0", "1", "2"]
    assert int(blocked, 16) == 0
    assert int(ignored, 16) & ~(0b11 << 31) == 0  # 32 and 33 are the C library's own, nobody can set them


def test_stdin_is_the_given_file_or_nothing(lab: Lab) -> None:
    (lab.folder / "prompt").write_text("do it\n")
    assert seen_by_agent(lab.attempt("cat", stdin=str(lab.folder / "prompt"))) == ["do it"]
    assert seen_by_agent(lab.attempt("cat")) == []
