"""A job that fails again and again: it is tried a bounded number of times, its task is set aside with the reason, and others go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.host import processes
from tests.support import House, git, wait_until

FAULTY = """
from supervisor.kernel.errors import DiskFull, ToolFailed, ToolHung
from supervisor.server.attempts import collect, jobs, launch

jobs.FIRST_S = jobs.STEP_S = 0.01
owner, method = {{"collect": (collect.Ending, "collect"), "release": (collect.Ending, "release"), "judge": (collect.Ending, "judged"),
                 "prepare": (launch.Launching, "prepare"), "begin": (launch.Launching, "begin")}}[{step!r}]
whole = getattr(owner, method)
left = {times}

def faulty(self, *args):
    global left
    names = [str(getattr(arg, "task", getattr(getattr(arg, "spec", None), "name", arg))) for arg in args]
    if not any(name.rpartition("/")[2] == "bad" for name in names) or left == 0:
        return whole(self, *args)
    left -= 1
    with open({room!r}, "a") as tried:
        tried.write("tried\\n")
    raise {{"fault": KeyError("a fault of ours"), "tool": ToolFailed("no answer", on="tmux"), "full": DiskFull("no space"),
           "hung": ToolHung("git add was stopped")}}[{error!r}]

setattr(owner, method, faulty)
"""


class Faulty:
    """A supervisor, one of whose steps fails for the task `bad`."""

    def __init__(self, house: House, room: Path) -> None:
        self.house = house
        self._room = room

    def start(self, step: str, error: str, times: int = -1) -> None:
        self.house.start_daemon(first=FAULTY.format(step=step, error=error, times=times, room=str(self._room)))

    @property
    def said(self) -> str:
        return self.house.daemon_output()

    @property
    def tried(self) -> int:
        return len(self._room.read_text().splitlines()) if self._room.exists() else 0


@pytest.fixture
def faulty(house: House, tmp_path: Path) -> Faulty:
    house.config.write_text('slots = 1\ngrace = "1s"\nsandbox = 0\n[limits]\ndisk_free_min = 0\n')
    return Faulty(house, tmp_path / "tried")


@pytest.mark.in_turns
@pytest.mark.parametrize("step", ["collect", "judge", "prepare"])
def test_a_step_that_cannot_succeed_sets_its_task_aside_and_frees_its_slot(faulty: Faulty, step: str) -> None:
    house = faulty.house
    faulty.start(step, "fault")
    house.ok("add", "--id", "bad", "echo leftover > left")
    house.ok("add", "-f", "--id", "next", "true")  # needs the only slot
    house.wait_final()
    bad = house.task("bad")
    assert bad.state == "failed" and "a fault of ours" in bad.reason, (bad, faulty.said)
    assert faulty.tried == 5
    if step == "collect":
        assert bad.worktree is not None and bad.worktree in bad.reason and "branch nightcrew/" in bad.reason, bad.reason
        assert Path(bad.worktree, "left").read_text() == "leftover\n"
        assert "untracked files: left" in house.ok("clean", "bad"), "it is not locked for good"
        house.ok("clean", "--yes", "--discard", "bad")
        assert git(house.repo, "show", f"refs/nightcrew/rescue/{bad.id}/1:left") == "leftover"
    assert house.state("next") == "done"


def test_nothing_of_a_task_that_is_set_aside_lives(faulty: Faulty) -> None:
    """Its beginning fails for ever while its runner waits."""
    house = faulty.house
    house.config.write_text('slots = 2\ngrace = "1s"\nsandbox = 0\n[limits]\ndisk_free_min = 0\n')
    faulty.start("begin", "fault")
    plan = "".join(f'[[tasks]]\nid = "{name}"\ncommand = "true"\ntogether = "both"\n' for name in ("bad", "good"))
    house.run("run", house.plan(plan))
    bad = house.task("bad")
    assert bad.state == "failed" and "a fault of ours" in bad.reason, (bad, faulty.said)
    assert house.state("good") == "done"
    wait_until(lambda: not house.sessions(), "their sessions to be closed")
    assert not [pid for pid in house.tagged() if processes.runs(pid, str(house.home.attempt(bad.id, 1)))]


def test_a_launch_whose_git_hangs_twice_is_not_repeated(faulty: Faulty) -> None:
    """Each hang holds the repository's lock for some seconds; a loss would be tried six times more."""
    faulty.start("prepare", "hung")
    faulty.house.run("add", "-f", "--id", "bad", "true")
    assert (faulty.house.state("bad"), faulty.tried) == ("failed", 2), faulty.said
    assert "git add was stopped" in faulty.house.task("bad").reason


def test_a_launch_whose_git_hung_once_goes_on(faulty: Faulty) -> None:
    faulty.start("prepare", "hung", 1)
    faulty.house.ok("add", "-f", "--id", "bad", "true")
    assert (faulty.house.task("bad").epoch, faulty.tried) == (1, 1)


@pytest.mark.in_turns
@pytest.mark.parametrize(("step", "error"), [("collect", "full"), ("release", "tool")])
def test_what_comes_back_is_waited_for_longer_than_any_number_of_tries(faulty: Faulty, step: str, error: str) -> None:
    faulty.start(step, error, 8)
    faulty.house.ok("add", "-f", "--id", "bad", "true")
    wait_until(lambda: faulty.tried == 8 and not faulty.house.sessions(), "the last try, which succeeds")
    assert faulty.house.state("bad") == "done"
