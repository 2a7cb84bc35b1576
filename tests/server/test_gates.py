"""The gate of a task under the whole supervisor: what it says decides, it sees what the agent saw, and the next attempt is told."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from supervisor.host import files
from supervisor.sandbox import executors
from supervisor.store import queries, sqlite
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.support import House, git, wait_until


@pytest.fixture
def sim(house: House) -> Iterator[Simulator]:
    """A provider behind the gateway of the house."""
    files.private_dir(house.home.root)
    know_prices(house.home)
    with Simulator() as running:
        house.config.write_text(f'grace = "1s"\nsandbox = 0\n[limits]\ndisk_free_min = 0\n{upstream(house.home, running.url)}')
        yield running


MINE = "git add -A; git -c user.name=g -c user.email=g@x commit -qm mine"


def task(name: str, **keys: Any) -> str:
    """A table of a plan."""
    return "[[tasks]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in {"id": name, **keys}.items())


def ends(house: House, name: str) -> list[tuple[str, str]]:
    """How its attempts ended and why."""
    with closing(sqlite.connect_readonly(house.home.ledger)) as db:
        return [(row["end"], row["end_cause"]) for row in queries.attempts(db, house.task(name).id)]


def record(house: House, name: str, epoch: int, file: str) -> str:
    return (house.home.attempt(house.task(name).id, epoch) / file).read_text()


def test_a_gate_decides_and_a_failed_one_is_tried_once_more(house: House, sim: Simulator) -> None:
    """All in one crew, since each of them waits for the pause after a failure."""
    sim.faults(tool="bash", tool_input={"command": "echo wrong > work"}, contains="the agent's work.", times=1)
    sim.faults(tool="bash", tool_input={"command": "echo right > work"}, contains="did not pass its gate", times=1)
    sim.faults(text="It is done.", contains="the agent's work.")
    tier = max(tier for tier in (0, 1) if not tier or tier in executors.known().tiers)
    seen = f"cat made; test -e {house.home.ledger} && echo the ledger"
    plan = (
        task("good", command="echo made > made", gate=f"{seen}; true", sandbox=tier)
        + task("bad", command="true", gate="printf '\\033[1mno\\033[0m'; exit 3")
        + task("agent", kind="builtin", prompt="Do the agent's work.", gate="grep right work", sandbox=tier)
    )
    house.start_daemon()
    house.ok("run", "--detach", house.plan(plan))
    house.wait_final()

    good = house.task("good")
    assert good.result is not None and (good.state, ends(house, "good")) == ("done", [("done", "")])
    assert good.result["gate"]["passed"] and record(house, "good", 1, "gate.log").splitlines()[0] == "made"
    assert (good.result["gate"]["said"] == "made") == bool(tier), "a gate sees what its agent sees"
    assert (house.task("bad").state, ends(house, "bad")) == ("failed", [("failed", "gate: exit code 3")] * 2)
    assert house.ok("logs", "--stream", "gate", "bad") == "\x1b[1mno\x1b[0m"
    assert f"gate      exit code 3; what it printed: nightcrew logs --stream gate {house.task('bad').id}\n" in house.ok("status", "bad")
    prompt = record(house, "bad", 2, "prompt.md")
    assert "did not pass its gate (exit code 3)" in prompt and "\x1b" not in prompt and "[1mno" in prompt

    agent = house.task("agent")
    assert (agent.state, ends(house, "agent")) == ("done", [("failed", "gate: exit code 1"), ("done", "")]), house.account()
    assert git(house.repo, "show", f"{agent.branch}:work") == "right"
    with closing(sqlite.connect_readonly(house.home.ledger)) as db:
        assert queries.attempts(db, agent.id)[1]["cause"] == "resumed: failed: gate: exit code 1"
    assert record(house, "agent", 2, "out/transcript.jsonl").count("did not pass its gate") == 1


def test_a_gate_goes_on_while_no_supervisor_lives_and_runs_once(house: House) -> None:
    go = house.home.root.parent / "go"
    daemon = house.start_daemon()
    gate = f"echo ran; while [ ! -e {go} ]; do sleep 0.02; done"
    house.ok("run", "--detach", house.plan(task("one", command="true", gate=gate)))
    log = house.home.attempt(house.task("one").id, 1) / "gate.log"
    wait_until(lambda: log.exists() and log.read_text(), "the gate to begin")
    daemon.kill()
    daemon.wait()
    go.touch()
    house.start_daemon()
    house.wait_final()
    assert (house.task("one").state, ends(house, "one"), log.read_text()) == ("done", [("done", "")], "ran\n")


def test_a_gate_that_meets_a_limit_says_which(house: House) -> None:
    house.start_daemon()
    house.ok("run", "--detach", house.plan(task("one", command="true", gate="while :; do :; done", cpu_max="1s")))
    house.wait_final()
    assert all(cause.startswith("gate: cpu_max: it used ") for _, cause in ends(house, "one")), ends(house, "one")


LEAVES = "mkdir -p __pycache__; echo x > __pycache__/a.pyc; echo gate >> README; rm work; echo new > report"
"""Files that a gate writes, changes and removes beside judging."""
TIERS = [tier for tier in (0, 1, 2) if not tier or tier in executors.known().tiers]


def test_what_a_gate_changes_is_kept_apart_from_the_work(house: House) -> None:
    """In each tier: an agent that commits nothing, one that commits, and a gate that commits and moves about."""
    moves = f"{LEAVES}; git add -A; git -c user.name=g -c user.email=g@x commit -qm gate; git checkout -q --detach HEAD~1"
    done = "echo mine > work; echo agent > README"
    plan = ""
    for tier in TIERS:
        plan += task(f"loose-{tier}", command=done, gate=LEAVES, sandbox=tier)
        plan += task(f"tidy-{tier}", command=f"{done}; {MINE}", gate=LEAVES, sandbox=tier)
        plan += task(f"moves-{tier}", command=done, gate=moves, sandbox=tier)
        plan += task(f"clean-{tier}", command=done, gate="grep -q mine work", sandbox=tier)
    house.start_daemon()
    house.ok("run", house.plan(plan))
    for name in (f"{kind}-{tier}" for tier in TIERS for kind in ("loose", "tidy", "moves", "clean")):
        view = house.task(name)
        assert view.result is not None and view.state == "done", (name, house.account())
        tip = git(house.repo, "rev-parse", str(view.branch))
        assert view.result["tip"] == tip == view.result["rescue"], name
        assert git(house.repo, "ls-tree", "-r", "--name-only", tip).split() == ["README", "work"], name
        assert (git(house.repo, "show", f"{tip}:README"), git(house.repo, "show", f"{tip}:work")) == ("agent", "mine"), name
        assert view.result["diff"]["files"] == 2, name
        notes = [note for note in view.result["notes"] if "its gate changed" in note]
        ref = f"refs/nightcrew/rescue/{view.id}/1-tips"
        if name.startswith("clean"):
            assert notes == [] and git(house.repo, "for-each-ref", ref) == "", name
            continue
        assert "its gate changed 4 files (README, __pycache__/a.pyc, report and work)" in " ".join(notes), name
        if not name.startswith("moves"):
            assert notes == [
                f"its gate changed 4 files (README, __pycache__/a.pyc, report and work): that is no part of the result, and {ref} keeps it"
            ], name
        assert git(house.repo, "show", f"{ref}:README") == "agent\ngate" and git(house.repo, "show", f"{ref}:report") == "new", name
        tree = str(view.worktree)
        assert git(house.repo, "-C", tree, "status", "--porcelain") == "", name
    removable = json.loads(house.run("clean", "--json").stdout)
    house.ok("take", "loose-0")
    assert (house.repo / "work").exists() and not (house.repo / "report").exists()
    said = house.run("clean", "loose-0", "--yes")
    assert said.returncode == 0 and removable, said.stderr


def test_the_next_attempt_begins_without_what_the_gate_changed(house: House) -> None:
    work = "test ! -e report && echo $NIGHTCREW_EPOCH >> work"
    gate = "echo x > report; test $NIGHTCREW_EPOCH = 2"
    plan = "".join(task(f"again-{tier}", command=work, gate=gate, sandbox=tier) for tier in TIERS)
    house.start_daemon()
    house.ok("run", house.plan(plan))
    for tier in TIERS:
        view = house.task(f"again-{tier}")
        assert ends(house, view.name) == [("failed", "gate: exit code 1"), ("done", "")], house.account()
        assert git(house.repo, "ls-tree", "-r", "--name-only", str(view.branch)).split() == ["README", "work"]


def test_a_gate_waits_for_a_supervisor_that_secures_the_work(house: House) -> None:
    daemon = house.start_daemon(die_at="gate.secured")
    house.ok("run", "--detach", house.plan(task("one", command="echo mine > work", gate="echo ran; echo gate > work")))
    assert daemon.wait(60) == -signal.SIGKILL
    attempt = house.home.attempt(house.task("one").id, 1)
    assert (attempt / "worked").exists() and not (attempt / "gate.log").exists() and not (attempt / "exit.json").exists()
    house.start_daemon()
    house.wait_final()
    assert (house.state("one"), (attempt / "gate.log").read_text()) == ("done", "ran\n")
    assert git(house.repo, "show", f"{house.task('one').branch}:work") == "mine"


def test_a_gate_that_waits_is_ended_like_any_attempt(house: House) -> None:
    daemon = house.start_daemon(die_at="gate.secured")
    house.ok("run", "--detach", house.plan(task("one", command="echo mine > work", gate="echo ran")))
    assert daemon.wait(60) == -signal.SIGKILL
    attempt = house.home.attempt(house.task("one").id, 1)
    started = json.loads((attempt / "started.json").read_text())
    os.kill(started["pid"], signal.SIGTERM)
    wait_until((attempt / "exit.json").exists, "the runner to end")
    record_ = json.loads((attempt / "exit.json").read_text())
    assert (record_["why"], record_["gate"]) == ("stopped", None)
    assert git(house.repo, "show", f"{house.task('one').branch}:work") == "mine", "it was secured before"
