"""`kill -9` of the supervisor at every step of a train: the next one goes on, nothing is half landed, and no gate runs twice."""

from __future__ import annotations

import json
import signal
from collections import Counter

import pytest

from tests.failpoints import FAILPOINTS
from tests.support import House, git, plan_of, shell_task

GATE = "ls a b 2>/dev/null | wc -l | grep -qv 2"
LABELS = [name for name in FAILPOINTS if name.startswith("train.") and name != "train.repair-submitted"]
SAVED = 10
"""Commits of a train of three results, at least: put on, begun and ended each, and the move."""


def _prepared(house: House) -> str:
    house.start_daemon()
    work = {"a": "echo a > a", "b": "echo b > b; seq 5 > more", "c": "echo c > README; seq 9 > c"}
    house.ok("run", house.plan(plan_of([shell_task(name, f"{text}; git add -A; git commit -qm {name}") for name, text in work.items()])))
    house.ok("down")
    return git(house.repo, "rev-parse", "main")


def _killed_at(house: House, label: str) -> None:
    before = _prepared(house)
    daemon = house.start_daemon(die_at=label)
    house.run("land", "--ready", "-d", "--gate", GATE, "--width", "2")
    if daemon.wait(60) != -signal.SIGKILL:
        raise AssertionError(f"the daemon never passed {label}\n{house.daemon_output()}")
    stands = git(house.repo, "rev-parse", "main")
    assert git(house.repo, "status", "--porcelain") == "" and (stands != before) == (label == "train.moved")
    house.start_daemon()
    done = house.run("land", "--follow", "--json")
    shape = json.loads(done.stdout)
    assert done.returncode == 1 and shape["state"] == "landed", (shape, done.stderr, house.daemon_output())
    states = {entry["task"].partition("/")[2]: entry["state"] for entry in shape["entries"]}
    assert states == {"a": "landed", "b": "ejected", "c": "landed"}
    assert git(house.repo, "rev-parse", "main") == shape["tip"] and git(house.repo, "status", "--porcelain") == ""
    assert (house.repo / "README").read_text() == "c\n" and not (house.repo / "b").exists()
    house.ok("down")  # fsck calls a ref damaged that is removed while it looks
    assert git(house.repo, "merge-base", before, "main") == before and git(house.repo, "fsck", "--connectivity-only", "--no-dangling") == ""
    ran = Counter((one["commit"], one["command"]) for one in shape["ran"] if one["state"] in ("passed", "failed"))
    assert max(ran.values()) == 1, "a gate ran twice on one tree"
    tasks = [view.id for view in house.tasks() if view.kind == "landing-gate"]
    assert sorted(tasks) == sorted(one["task"] for one in shape["ran"] if one["task"]), "a gate was submitted that the train does not know"


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.one_in(2)
def test_killed_at_each_kind_of_step(house: House, label: str) -> None:
    _killed_at(house, label)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(1, SAVED))
def test_killed_after_each_commit(house: House, number: int) -> None:
    _killed_at(house, f"train.saved:{number}")
